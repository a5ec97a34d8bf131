"""Biases of positions: buckets of distances, and attention that adds them on every path."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.cache.attention import KVCache
from runtime.cache.layout import Full, Rotating
from runtime.cpu import query_parts
from runtime.cpu.grouped_attention import folded_attention
from runtime.nn.attention.attend import attend, biased, merge_heads
from runtime.nn.operations.plain import attend as plain
from runtime.nn.operations.plain import causal_mask
from runtime.nn.positions.relative_bias import RelativeBias, by_distance
from runtime.step import Step

HEADS, SIZE, BUCKETS, FAR = 4, 8, 8, 20


def table() -> mx.array:
    """Row b is b + head / 10, so that a bias tells its bucket."""
    return mx.arange(BUCKETS, dtype=mx.float32)[:, None] + mx.arange(HEADS, dtype=mx.float32) / 10


def buckets(positions: RelativeBias, query: int, keys: int) -> list[int]:
    row = positions.between(table(), mx.array([[query]]), mx.arange(keys, dtype=mx.int32))
    return [int(x) for x in row[0, 0, 0].tolist()]  # pyright: ignore[reportGeneralTypeIssues, reportArgumentType, reportUnknownVariableType]


def test_what_stands_before_has_a_bucket_by_its_distance() -> None:
    """By transformers' T5Attention._relative_position_bucket(bidirectional=False, 8, 20)."""
    positions = RelativeBias(BUCKETS, FAR, both_ways=False)
    assert buckets(positions, 24, 25) == [7] * 11 + [6] * 5 + [5] * 3 + [4] * 2 + [3, 2, 1, 0]


def test_what_stands_behind_has_buckets_of_its_own() -> None:
    """By transformers' T5Attention._relative_position_bucket(bidirectional=True, 8, 20)."""
    positions = RelativeBias(BUCKETS, FAR, both_ways=True)
    assert buckets(positions, 8, 17) == [3, 3, 2, 2, 2, 2, 2, 1, 0, 5, 6, 6, 6, 6, 6, 7, 7]


def test_distances_beyond_the_last_share_a_bucket() -> None:
    positions = RelativeBias(32, 128, both_ways=False)
    weight = mx.arange(32, dtype=mx.float32)[:, None]
    far = positions.between(weight, mx.array([[100_000]]), mx.arange(1000, dtype=mx.int32))
    assert set(np.array(far).ravel().tolist()) == {31.0}


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
def test_mask_and_bias_become_one(dtype: mx.Dtype) -> None:
    bias = mx.random.normal((1, HEADS, 5, 9)).astype(dtype)
    both = biased(causal_mask(5, 9), bias, dtype)
    hidden = ~np.array(causal_mask(5, 9))
    assert both.dtype == dtype
    seen = np.array(both.astype(mx.float32))
    assert np.array_equal(seen[0, :, ~hidden], np.array(bias.astype(mx.float32))[0, :, ~hidden])
    assert (seen[0, :, hidden] < -60000).all()


@pytest.mark.parametrize(("width", "seen"), [(1, 1), (1, 40), (5, 40), (200, 300)])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_folded_heads_take_a_bias_for_each(groups: int, width: int, seen: int) -> None:
    shapes = [(2, HEADS, width, SIZE), *[(2, groups, seen, SIZE)] * 2]
    queries, keys, values = (mx.random.normal(s, key=mx.random.key(i)) for i, s in enumerate(shapes))
    random = mx.random.normal((1, HEADS, width, seen), key=mx.random.key(5))
    bias = biased(causal_mask(width, seen), random, mx.float32)
    wanted = plain(None, queries, keys, values, bias, scale=0.3)
    step = Step((seen - width,) * 2, (width,) * 2)
    got = folded_attention(step, queries, keys, values, bias, scale=0.3)
    assert np.allclose(got.reshape(wanted.shape), wanted, atol=1e-5)


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
def test_rows_that_stand_apart_get_their_own_distances(dtype: mx.Dtype) -> None:
    """Two rows of 11 and 4 tokens, read at once and token by token, against the definition of each."""
    cache = KVCache(Full(HEADS, SIZE), rows=2, dtype=dtype)
    positions = RelativeBias(BUCKETS, FAR, both_ways=False)
    lengths, more = (11, 4), 3
    shape = (2, HEADS, max(lengths) + more, SIZE)
    queries, keys, values = (mx.random.normal(shape, key=mx.random.key(i)).astype(dtype) for i in range(3))
    got: list[list[np.ndarray]] = [[], []]
    starts, counts = (0, 0), lengths
    for turn in range(1 + more):
        step = Step(starts, counts)

        def cut(x: mx.array, step: Step = step) -> mx.array:
            rows = [
                mx.pad(
                    x[b : b + 1, :, start : start + count], [(0, 0), (0, 0), (0, step.width - count), (0, 0)]
                )
                for b, (start, count) in enumerate(zip(step.starts, step.counts, strict=True))
            ]
            return mx.concatenate(rows)

        bias = positions.of_step(table(), step, 0)
        out = attend(step, cache, cut(queries), cut(keys), cut(values), scale=1.0, bias=bias)
        for b, count in enumerate(counts):
            got[b].append(np.array(out[b, :count].astype(mx.float32)))
        cache.commit(step, counts)
        starts, counts = tuple(n + turn for n in lengths), (1, 1)
    for b, length in enumerate(lengths):
        stop = length + more
        places = mx.arange(stop, dtype=mx.int32)
        mask = biased(causal_mask(stop, stop), positions.between(table(), places[None], places), dtype)
        own = [x[b : b + 1, :, :stop] for x in (queries, keys, values)]
        wanted = np.array(merge_heads(plain(None, *own, mask, scale=1.0))[0].astype(mx.float32))
        assert np.allclose(np.concatenate(got[b]), wanted, atol=1e-5 if dtype == mx.float32 else 0.1)


EXTENT, LENGTH = 7, 60
RAGGED = ((40, 5), (3, 20), (1, 1), (16, 16), (18,))


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
@pytest.mark.parametrize("window", [None, 9])
@pytest.mark.parametrize("cuts", [((LENGTH,) * 2,), ((1, 1),) * LENGTH, RAGGED])
@pytest.mark.parametrize("held", [query_parts.HELD, 3 * 2 * HEADS * LENGTH])
def test_each_query_has_its_own_bias_by_distance(
    dtype: mx.Dtype,
    window: int | None,
    cuts: tuple[tuple[int, ...], ...],
    held: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Through memory of the whole past and of a window, which wide steps overflow; cuts of one: of row 1.
    With the bias of all queries at once, and of a few at a time.
    """
    monkeypatch.setattr(query_parts, "HELD", held)
    spec = Full(HEADS, SIZE) if window is None else Rotating(HEADS, SIZE, window)
    cache = KVCache(spec, rows=2, dtype=dtype, slack=4, grain=8)
    shapes = [*[(2, HEADS, LENGTH, SIZE)] * 3, (2, HEADS, LENGTH, EXTENT)]
    given = [mx.random.normal(shape, key=mx.random.key(i)).astype(dtype) for i, shape in enumerate(shapes)]
    wanted = defined(given, window)
    starts = [0, 0]
    for counts in cuts:
        first = 2 - len(counts)
        step = Step(tuple(starts[first:]), counts, first=first)
        queries, keys, values, said = [padded(x, step) for x in given]
        out = attend(step, cache, queries, keys, values, scale=0.3, bias=partial(by_distance, said, step))
        for row, count, got in zip(step.rows, counts, np.array(out.astype(mx.float32)), strict=True):
            own = wanted[row, starts[row] : starts[row] + count]
            assert np.allclose(got[:count], own, atol=2e-6 if dtype == mx.float32 else 0.05)
            starts[row] += count
        cache.commit(step, counts)
    assert starts == [LENGTH, LENGTH]


def padded(x: mx.array, step: Step) -> mx.array:
    """What the step takes of each row's tokens."""
    rows = [
        mx.pad(x[row : row + 1, :, start : start + count], [(0, 0), (0, 0), (0, step.width - count), (0, 0)])
        for row, start, count in zip(step.rows, step.starts, step.counts, strict=True)
    ]
    return mx.concatenate(rows)


def defined(given: Sequence[mx.array], window: int | None) -> Any:
    """[B, T, H * D], in float32: a bias for each pair of tokens, from 0 to EXTENT - 1 apart."""
    queries, keys, values, said = (x.astype(mx.float32) for x in given)
    apart = np.arange(LENGTH)[:, None] - np.arange(LENGTH)
    bias = np.zeros((2, HEADS, LENGTH, LENGTH), np.float32)
    for distance in range(EXTENT):
        bias[:, :, apart == distance] = np.array(said)[:, :, distance:, distance]
    bias[:, :, (apart < 0) | (apart >= (window or LENGTH))] = -np.inf
    return np.array(merge_heads(plain(None, queries, keys, values, mx.array(bias), scale=0.3)))
