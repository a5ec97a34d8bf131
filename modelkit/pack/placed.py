"""Decided tensors -> the files that will hold them: in natural order of their names, in shards of at most
SHARD_BYTES under MLX's names, a draft head in a file of its own.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from modelkit.errors import PlanError
from modelkit.pack import heads
from modelkit.pack.heads import in_head
from modelkit.pack.planned import Planned, PlannedFile

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
    return (*_shards(rest), *((PlannedFile(heads.FILE, head),) if head else ()))


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
        return (PlannedFile("model.safetensors", tuple(planned)),)
    count = len(groups)
    return tuple(
        PlannedFile(f"model-{number:05d}-of-{count:05d}.safetensors", tuple(group))
        for number, group in enumerate(groups, 1)
    )
