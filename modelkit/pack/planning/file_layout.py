"""Decided tensors -> the files that will hold them: in natural order of their names, in shards of at most
SHARD_BYTES under MLX's names, a draft head in a file of its own.

In a file, tensors of an odd size come last. The format has no gaps, and behind one of two bytes (Gemma 4's
`layer_scalar`) codes would begin where no mapped array can: they would be copied at every load.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from modelkit.errors import PlanError
from modelkit.pack.planning import heads
from modelkit.pack.planning.heads import in_head
from modelkit.pack.planning.plan_types import Planned, PlannedFile

SHARD_BYTES = 5 << 30


def in_order(planned: Iterable[Planned]) -> tuple[Planned, ...]:
    """Natural order: layer 2 before layer 10. Two tensors of one name cannot be written."""
    ordered = tuple(sorted(planned, key=lambda tensor: _natural(tensor.name)))
    seen: set[str] = set()
    for output in (output for tensor in ordered for output in tensor.outputs):
        if output.name in seen:
            raise PlanError(f"two tensors would be written as {output.name}")
        seen.add(output.name)
    return ordered


def _natural(name: str) -> list[tuple[int, str]]:
    pieces = re.split(r"(\d+)", name)
    return [(int(piece), "") if piece.isdigit() else (-1, piece) for piece in pieces]


def files_of(planned: Sequence[Planned], config: Mapping[str, Any]) -> tuple[PlannedFile, ...]:
    """Shards, and the draft head in a file of its own."""
    apart = list(map(in_head(config), (tensor.name for tensor in planned)))
    head = tuple(tensor for tensor, is_head in zip(planned, apart, strict=True) if is_head)
    rest = [tensor for tensor, is_head in zip(planned, apart, strict=True) if not is_head]
    return (*_shards(rest), *((_file(heads.FILE, head),) if head else ()))


def _file(name: str, planned: Sequence[Planned]) -> PlannedFile:
    return PlannedFile(name, tuple(sorted(planned, key=_oddness)))


def _oddness(tensor: Planned) -> int:
    """0 to 2, of the outputs that moves what comes behind it furthest from where four bytes may begin."""
    return max((2 if one.nbytes % 2 else 1 if one.nbytes % 4 else 0 for one in tensor.outputs), default=0)


def _shards(planned: Sequence[Planned]) -> tuple[PlannedFile, ...]:
    groups: list[list[Planned]] = [[]]
    filled = 0
    for tensor in planned:
        if groups[-1] and filled + tensor.nbytes > SHARD_BYTES:
            groups.append([])
            filled = 0
        groups[-1].append(tensor)
        filled += tensor.nbytes
    if len(groups) == 1:
        return (_file("model.safetensors", planned),)
    count = len(groups)
    return tuple(
        _file(f"model-{number:05d}-of-{count:05d}.safetensors", group)
        for number, group in enumerate(groups, 1)
    )
