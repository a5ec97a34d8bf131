"""The adapters of a step's rows: rows with different ones, several, or none share a step.

Each row's pair is gathered by its place in the module's stack, so a row is multiplied by itself, whoever its
neighbours are: what is added to it does not depend on them, to the last bit. A row without an adapter is
multiplied by another one's numbers, which may be none, and what comes of it is not taken. Where no row has
one there is no `RowAdapters`, and nothing is computed.

Dimensions: B rows, L tokens, r the rank, E experts, H heads, n adapters of a module.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx

from runtime.nn.adapters.adapter import Adapter, Part
from runtime.nn.adapters.stacks import AdapterStacks, Stack
from runtime.nn.operations import ops
from runtime.records import dataclass

Members = tuple[tuple[Adapter, float], ...]
"""The adapters of one row, in order, each with its scale."""


@dataclass(frozen=True, slots=True)
class StackPlace:
    """Where in a stack the k-th adapter of each row is."""

    slots: mx.array
    """uint32 [B]"""
    own: mx.array
    """uint32 [B]: 0, 1, ... A gathered product that is not told makes it anew."""
    scales: mx.array | None
    """float32 [B], 0 for rows without one; None: all are 1."""
    having: mx.array | None
    """bool [B], which rows have one; None: all."""
    alike: float | None
    """The scale, where all rows have the same adapter at the same scale."""
    same: int | None
    """The place of that adapter."""

    def scaled(self, more: mx.array) -> mx.array:
        """[B, ...], each row times its scale."""
        if self.scales is None:
            return more
        return more * self.scales.astype(more.dtype).reshape(-1, *[1] * (more.ndim - 1))

    def added(self, out: mx.array, more: mx.array) -> mx.array:
        """[B, ...], with more where a row has an adapter."""
        if self.having is None:
            return out + more
        return mx.where(self.having.reshape(-1, *[1] * (out.ndim - 1)), out + more, out)

    def of(self, stacked: mx.array, like: mx.array) -> mx.array:
        """[n, out] -> [B, 1, ..., out], each row's own, of the form and type of an answer [B, ..., out]."""
        own = _as(stacked, like)[self.slots]
        return own.reshape(own.shape[0], *[1] * (like.ndim - 2), -1)


class RowAdapters:
    """`runtime.step.Adapters`. rows: of each row the adapters, () for none; all of them are in `stacks`."""

    def __init__(self, stacks: AdapterStacks, rows: Sequence[Members]) -> None:
        self._stacks, self._rows = stacks, tuple(rows)
        self.made: dict[Any, Any] = {}
        self._known: dict[tuple[Adapter, ...], list[StackPlace]] = {}

    @property
    def stacks(self) -> AdapterStacks:
        return self._stacks

    @property
    def members(self) -> list[list[tuple[int, float]]]:
        """Of each row its adapters, as `stacks` counts them, each with its scale."""
        places = {adapter: place for place, adapter in enumerate(self._stacks.adapters)}
        return [[(places[adapter], scale) for adapter, scale in row] for row in self._rows]

    def linear(self, module: object, x: mx.array, y: mx.array) -> mx.array:
        stack = self._stacks.get(module)
        return y if stack is None else self._linear(stack, module, x, y)

    def head(self, module: object, x: mx.array, y: mx.array) -> mx.array:
        stack = self._stacks.get(module, head=True)
        return y if stack is None else self._linear(stack, module, x, y)

    def embed(self, module: object, ids: mx.array, y: mx.array) -> mx.array:
        stack, out = self._stacks.get(module), y
        for place in self._places(stack):
            assert stack is not None
            if stack.down is not None and stack.up is not None:
                tokens, rank = stack.down.shape[-2:]
                at = place.slots[:, None] * tokens + ids.reshape(ids.shape[0], -1)
                inner = place.scaled(_as(stack.down.reshape(-1, rank)[at], y))
                more = ops.table.matmul(inner, _as(stack.up, y)[place.slots])
                out = place.added(out, more.reshape(y.shape))
            if stack.factor is not None:
                out = place.added(out, place.scaled(y * place.of(stack.factor, y)))
        return self._replaced(stack, ids, y, out, _looked_up)

    def gather(self, module: object, x: mx.array, chosen: mx.array, y: mx.array) -> mx.array:
        stack, out = self._stacks.get(module), y
        for place in self._places(stack):
            assert stack is not None
            assert stack.down is not None
            assert stack.up is not None
            experts = stack.down.shape[1]
            if place.alike is not None:  # chosen may be in any order, and of any form
                at = chosen + place.slots[0] * experts
                scale = None if place.alike == 1 else mx.array(place.alike, dtype=x.dtype)
            else:
                form = (-1, *[1] * (chosen.ndim - 1))
                at = chosen + (place.slots * experts).reshape(form)
                scale = None if place.scales is None else _as(place.scales, x).reshape(*form, 1, 1)
            inner = ops.table.pick(x, _as(stack.down.flatten(0, 1), x), at)
            inner = inner if scale is None else inner * scale
            out = place.added(out, _as(ops.table.pick(inner, _as(stack.up.flatten(0, 1), x), at), y))
        return out

    def by_heads(self, module: object, x: mx.array, y: mx.array) -> mx.array:
        stack, out = self._stacks.get(module), y
        for place in self._places(stack):
            assert stack is not None
            if stack.down is not None and stack.up is not None:
                inner = ops.table.matmul(x, _as(stack.down, x)[place.slots][:, None])
                out = place.added(out, ops.table.matmul(place.scaled(inner), _as(stack.up, x)[place.slots]))
            if stack.factor is not None:
                out = place.added(out, place.scaled(y * _as(stack.factor, y)[place.slots][:, :, None]))
        return out

    def by_heads_back(self, module: Any, x: mx.array, y: mx.array) -> mx.array:
        stack, out = self._stacks.get(module), y
        for place in self._places(stack):
            assert stack is not None
            if stack.down is not None and stack.up is not None:
                inner = ops.table.matmul(x, _as(stack.up, x)[place.slots], transposed=True)
                down = _as(stack.down, x)[place.slots][:, None]
                out = place.added(out, ops.table.matmul(place.scaled(inner), down, transposed=True))
            if stack.factor is not None:
                more = x * _as(stack.factor, x)[place.slots][:, :, None]
                out = place.added(out, module.back(place.scaled(more)))
        return out

    def mixed(self, module: Mapping[str, object]) -> bool:
        places = [place for child in module.values() for place in self._places(self._stacks.get(child))]
        return any(place.alike is None for place in places)

    def _linear(self, stack: Stack, module: Any, x: mx.array, y: mx.array) -> mx.array:
        out = ops.table.add_pairs(self, stack, module, x, y)
        out = self._added(stack, module, x, y) if out is None else out
        return self._replaced(stack, x, y, out, _multiplied)

    def _added(self, stack: Stack, module: Any, x: mx.array, y: mx.array) -> mx.array:
        """With pairs, factors and biases, but no whole weights."""
        out = y
        for place in self._places(stack):
            if stack.down is not None and stack.up is not None:
                flat = x if x.ndim == 3 else x.reshape(x.shape[0], -1, x.shape[-1])
                up = _as(stack.up, x)
                inner = ops.table.pick(flat, _as(stack.down, x), place.slots, place.own, place.same)
                more = ops.table.pick(place.scaled(inner), up, place.slots, place.own, place.same)
                out = place.added(out, _as(more if x.ndim == 3 else more.reshape(y.shape), y))
            if stack.factor is not None:
                base = y - module["bias"] if "bias" in module else y
                out = place.added(out, _as(place.scaled(base * place.of(stack.factor, y)), y))
            if stack.bias is not None:
                out = place.added(out, place.scaled(place.of(stack.bias, y)))
        return out

    def _replaced(
        self, stack: Stack | None, x: mx.array, y: mx.array, out: mx.array, answer: Any
    ) -> mx.array:
        """With what whole weights, or rows of the weight, answer for their rows, in place of the base's y."""
        if stack is None or not stack.replaces:
            return out
        pieces: dict[int, mx.array] = {}
        for row, members in enumerate(self._rows):
            own = [(stack.parts[adapter], scale) for adapter, scale in members if adapter in stack.parts]
            alone = len(own) == 1 and own[0][1] == 1 and not own[0][0].adds
            mine = slice(row, row + 1)
            for part, scale in own:
                if part.whole is not None or part.rows is not None:
                    other = _as(answer(part, x[mine], y[mine]), y)
                    before = pieces.get(row, out[mine])
                    pieces[row] = other if alone else before + (other - y[mine]) * scale
        if not pieces:
            return out
        return mx.concatenate([pieces.get(row, out[row : row + 1]) for row in range(out.shape[0])])

    def _places(self, stack: Stack | None) -> list[StackPlace]:
        """One for each adapter that a row has behind the module, in the rows' orders."""
        if stack is None:
            return []
        adapters = stack.adapters
        known = self._known.get(adapters)
        if known is None:
            known = self._known[adapters] = _places(adapters, self._rows)
        return known


def _places(adapters: tuple[Adapter, ...], rows: Sequence[Members]) -> list[StackPlace]:
    slots = {adapter: place for place, adapter in enumerate(adapters)}
    own = [[(adapter, scale) for adapter, scale in row if adapter in slots] for row in rows]
    own_rows = mx.arange(len(rows), dtype=mx.uint32)
    places: list[StackPlace] = []
    for k in range(max(map(len, own), default=0)):
        having = tuple((i, *row[k]) for i, row in enumerate(own) if len(row) > k)
        at, scales = [0] * len(rows), [0.0] * len(rows)
        for i, adapter, scale in having:
            at[i], scales[i] = slots[adapter], scale
        alike = len(having) == len(rows) and len(set(zip(at, scales, strict=True))) == 1
        array = None if all(scale == 1 for scale in scales) else mx.array(scales, dtype=mx.float32)
        scale, same = (scales[0], at[0]) if alike else (None, None)
        have = None if all(scales) else mx.array([scale != 0 for scale in scales])
        places.append(StackPlace(mx.array(at, dtype=mx.uint32), own_rows, array, have, scale, same))
    return places


def _as(array: mx.array, like: mx.array) -> mx.array:
    return array if array.dtype == like.dtype else array.astype(like.dtype)


def _multiplied(part: Part, x: mx.array, y: mx.array) -> mx.array:
    """x Wᵀ + b where W, or some of its rows, are the part's."""
    if part.whole is not None:
        y = ops.table.linear(part.whole, x)
    if part.rows is not None:
        y = y + 0  # assignment would reach whoever else holds it
        y[..., part.rows.ids] = _as(ops.table.matmul(x, part.rows.values, transposed=True), y)
    return y


def _looked_up(part: Part, ids: mx.array, y: mx.array) -> mx.array:
    """The rows of a table, some or all of which are the part's."""
    if part.whole is not None:
        y = ops.table.embed(part.whole, ids)
    if part.rows is not None:
        hits = ids[..., None] == part.rows.ids
        found = part.rows.values[mx.argmax(hits, axis=-1)]
        y = mx.where(hits.any(axis=-1, keepdims=True), _as(found, y), y)
    return y
