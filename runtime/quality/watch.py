"""Stands behind every matrix of a network and sees what goes in; what it adds behind shows what comes of it.

A column of the table of operations (`runtime.nn.operations.ops`): the plain one, in straight MLX, which can
be differentiated. Matrices that a network multiplies by itself, past the table, are not seen.
"""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.nn.operations import gpu, ops, plain
from runtime.nn.operations.signatures import Answer, Operations
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Call:
    """A matrix was asked once. N tokens, times experts where each asks several."""

    path: str
    """The module, by its name in the network."""
    table: int
    """Rows of a table in which ids were looked up; 0 for a product."""
    shape: tuple[int, ...]
    """Of the answer."""
    seen: mx.array
    """What came in: the mean square of each input [in], or the ids."""
    count: int
    """N."""
    inputs: mx.array | None = None
    """All that came in, float32 [N, in] or ids [N], where that is wanted and one matrix answers."""


class Watch:
    """Of one network. `calls` are those since the last `start`, in their order. whole: with their inputs."""

    def __init__(self, network: nn.Module, *, whole: bool = False) -> None:
        self._whole = whole
        self._paths = {id(module): path for path, module in network.named_modules()}
        self._probes: Sequence[mx.array] | None = None
        self.calls: list[Call] = []

    def start(self, probes: Sequence[mx.array] | None = None) -> None:
        """probes: what is added to the answers, call by call; without them calls are noted."""
        self.calls, self._probes, self._place = [], probes, 0

    def column(self) -> Operations:
        known = ops.COLUMNS["plain"]
        return ops.changed(known, linear=self._linear, embed=self._embed, gather=self._gather, ask=ask)

    def _linear(self, module: nn.Module, x: mx.array) -> mx.array:
        return self._passed(module, plain.linear(module, x), x)

    def _embed(self, module: nn.Module, ids: mx.array) -> mx.array:
        return self._passed(module, plain.embed(module, ids), ids, table=module["weight"].shape[0])

    def _gather(self, module: nn.Module, x: mx.array, chosen: mx.array, ordered: bool) -> mx.array:
        y = gpu.gather(module, x, mx.stop_gradient(chosen), ordered)
        return self._passed(module, y, x, several=True)

    def _passed(
        self, module: Any, y: mx.array, x: mx.array, *, table: int = 0, several: bool = False
    ) -> mx.array:
        """several: matrices answer, each for some."""
        path = self._paths.get(id(module))
        if path is None:
            return y
        if self._probes is not None:
            probe, self._place = self._probes[self._place], self._place + 1
            return y + probe.astype(y.dtype)
        wide = x.astype(mx.float32)
        seen = x if table else wide.square().mean(axis=tuple(range(x.ndim - 1)))
        inputs = (x.reshape(-1) if table else wide.reshape(-1, x.shape[-1])) if self._whole else None
        inputs = None if several else inputs
        self.calls.append(Call(path, table, y.shape, seen, y.size // y.shape[-1], inputs))
        return y


def ask(x: mx.array, chosen: mx.array, answer: Answer, experts: int | None) -> mx.array:
    """Which experts are asked has no gradient, and MLX refuses to look for one."""
    return plain.ask(x, mx.stop_gradient(chosen), answer, experts)
