"""Attention both ways equals its definition, however long a text is and however it is cut into blocks."""

import mlx.core as mx
import numpy as np
import pytest

from runtime.cpu import native
from runtime.nn.attention import bidirectional
from runtime.nn.attention.bidirectional import attend_both_ways
from runtime.nn.operations import ops
from runtime.nn.operations.plain import attend as plain
from runtime.nn.positions.relative_bias import RelativeBias

HEADS, SIZE = 4, 8


def arrays(groups: int, length: int, rows: int = 2) -> tuple[mx.array, mx.array, mx.array]:
    shapes = [(rows, HEADS, length, SIZE), *[(rows, groups, length, SIZE)] * 2]
    return tuple(mx.random.normal(shape, key=mx.random.key(i)) for i, shape in enumerate(shapes))  # pyright: ignore[reportReturnType]


def merged(x: mx.array) -> np.ndarray:
    return np.array(x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1))


@pytest.mark.parametrize("scores", [1, 500, 1 << 24], ids=["query by query", "in blocks", "at once"])
@pytest.mark.parametrize("length", [1, 7, 50])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_every_token_sees_every_other(
    scores: int, length: int, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bidirectional, "SCORES", scores)
    queries, keys, values = arrays(groups, length)
    wanted = plain(None, queries, keys, values, None, scale=0.4)
    got = attend_both_ways(queries, keys, values, scale=0.4)
    assert np.allclose(got, merged(wanted), atol=1e-5)


@pytest.mark.parametrize("scores", [1, 500, 1 << 24])
@pytest.mark.parametrize("block", [1, 16, 128])
@pytest.mark.parametrize("window", [1, 5, 49, 80])
def test_a_window_reaches_as_far_ahead_as_back(
    scores: int, block: int, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bidirectional, "SCORES", scores)
    monkeypatch.setattr(bidirectional, "LEAST_BLOCK", block)
    queries, keys, values = arrays(2, 50)
    apart = np.abs(np.arange(50)[:, None] - np.arange(50)[None])
    mask = mx.array(apart <= window)[None, None]
    wanted = plain(None, queries, keys, values, mask, scale=0.4, softcap=3.0)
    got = attend_both_ways(queries, keys, values, scale=0.4, softcap=3.0, window=window)
    assert np.allclose(got, merged(wanted), atol=1e-5)


@pytest.mark.skipif(native.kernels is None, reason=f"no kernels: {native.status.reason}")
@pytest.mark.parametrize("window", [None, 250])
def test_a_text_has_the_same_bits_however_many_lie_beside_it(
    window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Far more than the scores of one block."""
    monkeypatch.setattr(bidirectional, "SCORES", HEADS * 750 * 250)
    rows = arrays(2, 900, rows=3)
    with ops.using("cpu"):
        together = attend_both_ways(*rows, scale=0.4, window=window, counts=(900, 700, 900))
        alone = attend_both_ways(*(x[2:] for x in rows), scale=0.4, window=window)
    assert np.array_equal(np.array(together[2:]), np.array(alone))


@pytest.mark.parametrize("scores", [1, 500, 1 << 24])
def test_biases_are_added_where_they_belong(scores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bidirectional, "SCORES", scores)
    queries, keys, values = arrays(HEADS, 50)
    places = mx.arange(50, dtype=mx.int32)
    table = mx.random.normal((8, HEADS), key=mx.random.key(9))
    positions = RelativeBias(8, 20, both_ways=True)
    whole = positions.between(table, places[None], places)

    def between(asking: range, seen: range) -> mx.array:
        return whole[:, :, asking.start : asking.stop, seen.start : seen.stop]

    wanted = plain(None, queries, keys, values, whole, scale=1.0)
    got = attend_both_ways(queries, keys, values, scale=1.0, between=between)
    assert np.allclose(got, merged(wanted), atol=1e-5)
