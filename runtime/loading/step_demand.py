"""What one step works with beside weights and layer memory, foreseen from the shapes of a network.

A step holds what sublayers make of its tokens (the answers of their matrices, what passes a convolution and a
scan) and the stream before and after them. Kernels keep such buffers from one layer to the next: of each kind
of sublayer there is one set, that of the widest. Without kernels MLX holds arrays of neighbours in its graph
at once, and a scan the states of a chunk of tokens.
"""

from collections import defaultdict
from typing import Any

import mlx.nn as nn

from runtime.cache.layout import SCAN_CHUNK, LayerSpec, Recurrent, bytes_per_sequence
from runtime.nn.recurrent.conv import CausalConv
from runtime.records import dataclass

Path = tuple[str, ...]
"""Of a module: the names that lead to it."""

_STREAMS = 3
"""The residual stream before a sublayer, after it and normed."""
_CONVOLVED = 2
"""What a convolution has made, and what the scan behind it has answered."""
_EXPERTS_TIMES = 2
"""Experts are asked by some tokens each, and buffers of several sizes are kept."""
_GRAPH_TIMES = 2
"""Arrays of each kind that a graph of small nodes holds at once."""
_SCAN_TIMES = 4
"""Of a chunk's states, while they are joined at distance 1, 2, 4 ..."""


@dataclass(frozen=True, slots=True)
class StepDemand:
    """Bytes that a step works with."""

    token_bytes: int = 0
    """For each of its tokens."""
    scan_bytes: int = 0
    """For each of the first `SCAN_CHUNK` tokens, besides."""

    def of(self, width: int) -> int:
        """Of a step of so many tokens."""
        return width * self.token_bytes + min(width, SCAN_CHUNK) * self.scan_bytes


def step_demand(
    network: nn.Module, layout: tuple[LayerSpec, ...], hidden: int, element_bytes: int, *, by_kernels: bool
) -> StepDemand:
    """hidden: D. by_kernels: are layers computed by kernels of our own?"""
    token_bytes = (_made(network) + _STREAMS * hidden) * element_bytes
    if by_kernels:
        return StepDemand(token_bytes)
    states = [bytes_per_sequence(spec, 1, element_bytes) for spec in layout if isinstance(spec, Recurrent)]
    return StepDemand(_GRAPH_TIMES * token_bytes, _SCAN_TIMES * max(states, default=0))


def _made(network: nn.Module) -> int:
    """Numbers that sublayers make of a token, one of each kind."""
    made = {tuple(path.split(".")): _answers(module) for path, module in network.named_modules()}
    matrices = {path: numbers for path, numbers in made.items() if numbers and not _hidden(path)}
    owners = {path[:-1] for path in matrices}
    sublayers: defaultdict[Path, dict[Path, int]] = defaultdict(dict)
    for path, numbers in matrices.items():
        layer = next((i for i, name in enumerate(path) if name.isdigit()), None)
        if layer is None:
            continue  # tables and the head, of which a step asks for its last token alone
        end = next((end for end in range(layer + 2, len(path)) if path[:end] in owners), len(path))
        # Of modules that differ in a number alone (experts) one is at work.
        alike = _unnumbered(path[end:])
        if alike[-2:] == ("", ""):
            continue  # a pair of low rank: what it makes is added to what a matrix has made
        sublayers[path[:end]][alike] = max(sublayers[path[:end]].get(alike, 0), numbers)
    kinds: dict[Path, int] = {}
    for path, answers in sublayers.items():
        kind = _unnumbered(path)
        kinds[kind] = max(kinds.get(kind, 0), sum(answers.values()))
    return sum(kinds.values())


def _hidden(path: Path) -> bool:
    """Is it another name of a module that several layers share?"""
    return any(name.startswith("_") for name in path)


def _unnumbered(path: Path) -> Path:
    return tuple("" if name.isdigit() else name for name in path)


def _answers(module: Any) -> int:
    """Numbers that this module's own matrix makes of a token."""
    weight = module.get("weight")
    if isinstance(module, CausalConv):
        return _CONVOLVED * weight.shape[0]
    if weight is None or weight.ndim < 2:
        return 0
    return weight.shape[-2] * (_EXPERTS_TIMES if weight.ndim == 3 else 1)
