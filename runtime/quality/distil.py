"""Scales and biases of affine matrices tuned until the packed network says what its source says.

Codes stay what they are; each group's scale s and offset b move, as s (1 + u) and b + s v, by Adam on the KL
divergence from the source's predictions over texts that the source wrote; of vectors, on what their cosine
lacks of 1. The order of texts is fixed, so a run can be repeated.

Source of the idea: "distilled weight quantization" of mlx-lm; Hinton et al., arXiv 1503.02531.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import cos, pi
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.loaded import LoadedModel
from runtime.nn.operations import ops, plain
from runtime.nn.operations.signatures import Operations
from runtime.quality.reading import distance, outputs
from runtime.quality.watch import ask

RATE = 0.01
"""Of a step at the beginning, in shares of a group's scale; falls along half a cosine to nothing."""
_DECAY, _DECAY_SQUARES, _LEAST = 0.9, 0.99, 1e-8
_AT_ONCE = 4

Tuned = dict[str, tuple[mx.array, mx.array]]
"""Module -> scales and biases, float32."""


def tune(
    source: LoadedModel,
    student: LoadedModel,
    texts: Sequence[Sequence[int]],
    steps: int,
    advance: Callable[[int], None] = lambda _: None,
) -> Tuned:
    """For all affine modules of the student, which is left as it was. advance: called with the tokens
    read.
    """
    modules = {
        path: module
        for path, module in student.network.named_modules()
        if "scales" in module and module.mode == "affine"
    }
    if not modules:
        return {}
    moves = [mx.zeros_like(module["scales"]) for module in modules.values() for _ in range(2)]
    optimizer = _Adam(moves)
    shown = _Shown(modules)

    def lost(moves: Sequence[mx.array], ids: Sequence[Sequence[int]], wanted: mx.array) -> mx.array:
        shown.moves = moves
        return distance(wanted, outputs(student, ids), student).mean()

    gradient = mx.grad(lost)
    for step in range(steps):
        some = [texts[(step * _AT_ONCE + place) % len(texts)] for place in range(min(_AT_ONCE, len(texts)))]
        with ops.using("plain"):
            wanted = outputs(source, some)
            mx.eval(wanted)
        with ops.using(shown.column()):
            found = gradient(moves, some, wanted)
            moves = optimizer.step(moves, found, RATE * (1 + cos(pi * step / steps)) / 2)
            mx.eval(*moves)
        advance(sum(map(len, some)))
    pairs = zip(modules, moves[::2], moves[1::2], strict=True)
    return {path: _moved(modules[path], u, v) for path, u, v in pairs}


def _moved(module: Any, u: mx.array, v: mx.array) -> tuple[mx.array, mx.array]:
    scales, biases = module["scales"].astype(mx.float32), module["biases"].astype(mx.float32)
    return scales * (1 + u), biases + scales * v


class _Adam:
    """Adam (Kingma and Ba, arXiv 1412.6980)."""

    def __init__(self, arrays: Sequence[mx.array]) -> None:
        self._means = [mx.zeros_like(array) for array in arrays]
        self._squares = [mx.zeros_like(array) for array in arrays]
        self._steps = 0

    def step(self, arrays: Sequence[mx.array], gradients: Sequence[mx.array], rate: float) -> list[mx.array]:
        self._steps += 1
        first, second = 1 - _DECAY**self._steps, 1 - _DECAY_SQUARES**self._steps
        self._means = [_DECAY * m + (1 - _DECAY) * g for m, g in zip(self._means, gradients, strict=True)]
        self._squares = [
            _DECAY_SQUARES * s + (1 - _DECAY_SQUARES) * g.square()
            for s, g in zip(self._squares, gradients, strict=True)
        ]
        mx.eval(*self._means, *self._squares)
        return [
            array - rate * (m / first) / (mx.sqrt(s / second) + _LEAST)
            for array, m, s in zip(arrays, self._means, self._squares, strict=True)
        ]


class _Shown:
    """A column in which some packed modules compute with scales and biases that have moved."""

    def __init__(self, modules: dict[str, Any]) -> None:
        self._places = {id(module): 2 * place for place, module in enumerate(modules.values())}
        self.moves: Sequence[mx.array] = ()

    def column(self) -> Operations:
        known = ops.COLUMNS["plain"]
        return replace(known, linear=self._linear, embed=self._embed, gather=self._gather, ask=ask)

    def _linear(self, module: nn.Module, x: mx.array) -> mx.array:
        y = x @ self._weight(module, x.dtype).swapaxes(-1, -2)
        return y + module["bias"] if "bias" in module else y

    def _embed(self, module: nn.Module, ids: mx.array) -> mx.array:
        return self._weight(module, mx.float32)[ids]

    def _gather(self, module: nn.Module, x: mx.array, chosen: mx.array, ordered: bool) -> mx.array:
        chosen = mx.stop_gradient(chosen)
        y = mx.gather_mm(x, self._weight(module, x.dtype).swapaxes(-1, -2), rhs_indices=chosen)
        return y + module["bias"][chosen][..., None, :] if "bias" in module else y

    def _weight(self, module: Any, dtype: mx.Dtype) -> mx.array:
        place = self._places.get(id(module))
        if place is None:
            return plain.unpacked(module, dtype)
        scales, biases = _moved(module, self.moves[place], self.moves[place + 1])
        whole = (mx.ones_like(scales), mx.zeros_like(scales))
        group, bits = module.group_size, module.bits
        codes = mx.stop_gradient(mx.dequantize(module["weight"], *whole, group_size=group, bits=bits))
        grouped = codes.astype(mx.float32).reshape(*scales.shape, group)
        return (grouped * scales[..., None] + biases[..., None]).reshape(codes.shape).astype(dtype)


def put(student: LoadedModel, tuned: Tuned, dtype: dict[str, mx.Dtype]) -> None:
    """Let the student compute with tuned scales and biases, rounded to the floats that a package has."""
    modules = dict(student.network.named_modules())
    for path, (scales, biases) in tuned.items():
        module = modules[path]
        module["scales"] = scales.astype(dtype[path]).astype(mx.float32)
        module["biases"] = biases.astype(dtype[path]).astype(mx.float32)
