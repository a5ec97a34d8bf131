"""Attention whose scores have a bias: of so many queries at a time, and as if of all at once."""

from functools import partial
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from runtime.cache.attention import KVCache
from runtime.cache.layout import Full, Rotating
from runtime.cpu import native, query_parts
from runtime.nn.attention.attend import attend
from runtime.nn.attention.block_sparse import BlockSparse
from runtime.nn.operations import ops
from runtime.nn.operations.signatures import Name
from runtime.nn.positions.alibi import Alibi, slopes
from runtime.nn.positions.relative_bias import RelativeBias, by_distance
from runtime.parts.attention import Bias
from runtime.step import Step
from tests.support.parity import Reference
from tests.support.same_bits import Batch

HEADS, SIZE, PAST, WIDTH = 8, 4, 4000, 96
WHOLE = 4 * HEADS * WIDTH * (PAST + WIDTH)
"""Bytes of a bias."""


def biases(step: Step) -> dict[str, Bias]:
    said = mx.random.normal((1, HEADS, WIDTH, 100), key=mx.random.key(7))
    table = mx.random.normal((32, HEADS), key=mx.random.key(8))
    return {
        "distance": partial(by_distance, said, step),
        "buckets": RelativeBias(32, 128, both_ways=False).of_step(table, step, 0),
        "blocks": BlockSparse(tuple(range(HEADS)), size=64, local=4, stride=4).of_step(step),
        "alibi": Alibi(slopes(HEADS)).of_step(step),
    }


def answered(kind: str, dtype: mx.Dtype, window: int | None = None) -> tuple[np.ndarray, int]:
    """What queries behind a long past are answered, and the memory that takes beyond the layer's own."""
    spec = Full(HEADS, SIZE) if window is None else Rotating(HEADS, SIZE, window)
    cache = KVCache(spec, rows=1, dtype=dtype)
    for start, width in ((0, PAST), (PAST, WIDTH)):
        step = Step((start,), (width,))
        cache.reserve(start + width)
        drawn = [mx.random.normal((1, HEADS, width, SIZE), key=mx.random.key(k)) for k in range(3)]
        queries, keys, values = (x.astype(dtype) for x in drawn)
        if not start:
            mx.eval(cache.append(step, keys, values)[:2])
            cache.commit(step, step.counts)
    mx.eval(queries, keys, values, cache.arrays)
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    out = attend(step, cache, queries, keys, values, scale=0.5, bias=biases(step)[kind])
    return np.array(out.astype(mx.float32)), mx.get_peak_memory() - before


@pytest.mark.parametrize("kind", ["distance", "buckets", "blocks", "alibi"])
@pytest.mark.parametrize(
    ("column", "dtype"),
    [("cpu", mx.float32), ("blas", mx.float32), ("gpu", mx.bfloat16), ("plain", mx.float32)],
)
def test_less_is_held_than_a_whole_bias(
    kind: str, column: Name, dtype: mx.Dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(column, kind, dtype, None, monkeypatch)


@pytest.mark.parametrize("column", ["cpu", "blas"])
def test_less_is_held_behind_a_window(column: Name, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose slots have no room for the step's tokens, which lie beside them."""
    check(column, "distance", mx.float32, PAST, monkeypatch)


def check(
    column: Name, kind: str, dtype: mx.Dtype, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ops.using(column):
        monkeypatch.setattr(query_parts, "HELD", WHOLE)
        wanted, _ = answered(kind, dtype, window)
        monkeypatch.setattr(query_parts, "HELD", 4 * HEADS * (PAST + WIDTH))
        got, held = answered(kind, dtype, window)
    steady = ops.COLUMNS[column].steady
    assert (
        np.array_equal(got, wanted)
        if steady
        else np.allclose(got, wanted, atol=2e-2 if dtype != mx.float32 else 1e-5)
    )
    assert held < WHOLE


@pytest.mark.skipif(native.kernels is None, reason=f"no kernels: {native.status.reason}")
@pytest.mark.parametrize("name", ["phi3small", "inkling_text", "inkling2_text", "t5", "umt5", "bloom", "mpt"])
def test_families_answer_the_same_bits(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = Reference(name)
    ids = [int(token) for token in reference.answers["ids"]]
    with ops.using("cpu"):
        model = reference.load(tmp_path)

        def read() -> list[np.ndarray]:
            batch = Batch(model, [ids, ids[3:]])
            batch.feed([7, 12])
            batch.feed([len(ids) - 7, len(ids) - 15])
            return batch.answers()

        wanted = read()
        monkeypatch.setattr(query_parts, "HELD", 1000)
        assert all(map(np.array_equal, read(), wanted))
