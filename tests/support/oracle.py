"""A memory that cannot be wrong: each row is the list of its tokens, and everything is recomputed from it.

A Probe stands for one layer. Its keys, values and states are functions of (token, position) that can be read
back, so what a query was shown is compared with what it must be shown, entry by entry.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np

from runtime.cache.layout import Chunked, Encoder, Full, LayerSpec, Pooled, Recurrent, Rotating, State
from runtime.cache.snapshot import Reach
from runtime.step import Step

HEADS = 2
SIZE = 4
MODULUS = 997
CONV = 3
RECURRENT = Recurrent({"conv": State((CONV, 1)), "hash": State((1,), "float32")})
Seen = list[Any]


@dataclass
class Row:
    """`source`: the first token of the step that brought what an encoder layer holds, if one did."""

    tokens: list[int] = field(default_factory=list[int])
    source: int | None = None

    def prefix(self, length: int) -> "Row":
        return Row(self.tokens[:length], self.source if length else None)


def run(spec: LayerSpec, cache: Any, step: Step, tokens: Sequence[Sequence[int]]) -> list[list[Seen]]:
    """Feed a step to the cache. For each row and each real token: what it was shown."""
    padded = np.zeros((len(tokens), step.width), dtype=np.int32)
    for b, row in enumerate(tokens):
        padded[b, : len(row)] = row
    match spec:
        case Full() | Rotating() | Chunked():
            return shown(step, cache.append(step, *_keys_values(spec, step, padded)))
        case Pooled():
            return _pooled(spec, step, cache.pool(step, _ended(spec, step, padded)))
        case Recurrent():
            return _states(step, cache.scan(step, fold, mx.array(padded)))
        case Encoder():
            return _sources(step, _read_source(cache, step, padded))
        case _:
            raise AssertionError(spec)


def expected(spec: LayerSpec, row: Row, start: int, count: int) -> list[Seen]:
    """What the tokens [start, start + count) of the row must be shown."""
    positions = range(start, start + count)
    match spec:
        case Full() | Rotating() | Chunked():
            oldest = Reach.of(spec).oldest
            return [[(row.tokens[p], p) for p in range(oldest(q), q + 1)] for q in positions]
        case Pooled():
            last = spec.every - 1
            return [[(row.tokens[p], p) for p in range(last, q + 1, spec.every)] for q in positions]
        case Recurrent():
            return [_fold_plainly(row.tokens[: q + 1]) for q in positions]
        case Encoder():
            return [[] if row.source is None else [row.source] * 2 for _ in positions]
        case _:
            raise AssertionError(spec)


def held(spec: LayerSpec, cache: Any, step: Step) -> Seen:
    """What one row holds, without writing: `step` is its last token's."""
    match spec:
        case Pooled():
            return [
                (int(t), int(p)) for x in cache.row_copies(step.first) for t, p in np.array(x)[0, 0, :, :2]
            ]
        case Recurrent():
            state = dict(
                zip(spec.states, (np.array(x)[0] for x in cache.row_copies(step.first)), strict=True)
            )
            return [int(x) for x in (*state["hash"], *state["conv"][:, 0])]
        case Encoder():
            return _sources(step, cache.view(step))[0][0]
        case _:
            return shown(step, cache.view(step))[0][0]


def shown(step: Step, view: tuple[mx.array, mx.array | None, Any]) -> list[list[Seen]]:
    """The (token, position) pairs that each query of the step may see, in the order of positions."""
    keys, values, mask = view
    entries = np.array(keys.astype(mx.float32))
    if values is not None:
        assert values.shape[:3] == keys.shape[:3]
        assert np.array_equal(np.array(values.astype(mx.float32))[..., 0], entries[..., 0])
    for head in range(HEADS):
        assert np.array_equal(entries[:, head, :, :2], entries[:, 0, :, :2])
    allowed = _allowed(mask, len(step.counts), step.width, keys.shape[2])
    return [
        [
            sorted(
                ((int(t), int(p)) for t, p in entries[b, 0, allowed[b, i], :2]), key=lambda entry: entry[1]
            )
            for i in range(count)
        ]
        for b, count in enumerate(step.counts)
    ]


def rotate(keys: mx.array, shift: int) -> mx.array:
    """What rotary embeddings do to positions, done to the number that stands for one."""
    return keys + mx.array([0, shift] + [0] * (keys.shape[-1] - 2), dtype=keys.dtype)


def fold(states: dict[str, mx.array], tokens: mx.array, *, counts: mx.array | None) -> Any:
    """A recurrent layer: a rolling hash, and the last CONV tokens. Outputs [B, L, 1 + CONV]."""
    width = tokens.shape[1]
    real = mx.full((tokens.shape[0],), width) if counts is None else counts
    value, outputs = states["hash"], []
    window = mx.concatenate([states["conv"][..., 0], tokens.astype(mx.float32)], axis=1)
    for i in range(width):
        value = mx.where((i < real)[:, None], (value * 31 + tokens[:, i : i + 1] + 1) % MODULUS, value)
        outputs.append(mx.concatenate([value, window[:, i + 1 : i + 1 + CONV]], axis=1))
    last = mx.take_along_axis(window, real[:, None] + mx.arange(CONV), axis=1)
    return mx.stack(outputs, axis=1), {"conv": last[..., None], "hash": value}


def _fold_plainly(tokens: Sequence[int]) -> Seen:
    value = 0
    for token in tokens:
        value = (value * 31 + token + 1) % MODULUS
    return [value, *([0] * CONV + list(tokens))[-CONV:]]


def _keys_values(spec: Any, step: Step, tokens: np.ndarray) -> tuple[mx.array, mx.array | None]:
    keys = np.zeros((len(tokens), spec.kv_heads, step.width, spec.head_dim), dtype=np.float32)
    keys[..., 0] = tokens[:, None]
    keys[..., 1] = (np.array(step.starts)[:, None] + np.arange(step.width))[:, None]
    values = keys[..., : spec.value_dim] if spec.value_dim else keys
    return mx.array(keys), None if spec.value_dim == 0 else mx.array(values)


def _ended(spec: Pooled, step: Step, tokens: np.ndarray) -> mx.array:
    """Of each group that the step ends: its last token and where that stands."""
    groups = [range(start // spec.every, (start + step.width) // spec.every) for start in step.starts]
    made = np.zeros((len(tokens), 1, max(map(len, groups)), spec.size), dtype=np.float32)
    for b, (start, ended) in enumerate(zip(step.starts, groups, strict=True)):
        for i, group in enumerate(ended):
            last = (group + 1) * spec.every - 1
            made[b, 0, i, :2] = tokens[b, last - start], last
    return mx.array(made)


def _pooled(spec: Pooled, step: Step, vectors: mx.array) -> list[list[Seen]]:
    held = np.array(vectors)[:, 0, :, :2]
    return [
        [[(int(t), int(p)) for t, p in row[: (start + i + 1) // spec.every]] for i in range(count)]
        for row, start, count in zip(held, step.starts, step.counts, strict=True)
    ]


def _states(step: Step, outputs: mx.array) -> list[list[Seen]]:
    rows = np.array(outputs)
    return [[[int(x) for x in rows[b, i]] for i in range(count)] for b, count in enumerate(step.counts)]


def brings_source(step: Step) -> bool:
    """A step whose rows all begin brings each row's source: its first token, twice."""
    return not any(step.starts)


def _read_source(cache: Any, step: Step, tokens: np.ndarray) -> Any:
    if not brings_source(step):
        return cache.view(step)
    content = mx.broadcast_to(mx.array(tokens[:, :1] + 1)[:, None, :, None], (len(tokens), HEADS, 2, SIZE))
    return cache.append(step, content, content)


def _sources(step: Step, view: Any) -> list[list[Seen]]:
    keys, values, mask = view
    assert np.array_equal(np.array(keys), np.array(values))
    allowed = _allowed(mask, len(step.counts), 1, keys.shape[2])
    content = np.array(keys)[:, 0, :, 0]
    sources = [[int(x) - 1 for x in content[b, allowed[b, 0]] if x] for b in range(len(step.counts))]
    return [[source] * count for source, count in zip(sources, step.counts, strict=True)]


def _allowed(mask: Any, rows: int, width: int, keys: int) -> np.ndarray:
    if mask is None:
        return np.ones((rows, width, keys), dtype=bool)
    if isinstance(mask, str):
        assert mask == "causal"
        return np.broadcast_to(np.tri(width, keys, keys - width, dtype=bool), (rows, width, keys))
    assert mask.dtype == mx.bool_
    return np.broadcast_to(np.array(mask)[:, 0], (rows, width, keys))
