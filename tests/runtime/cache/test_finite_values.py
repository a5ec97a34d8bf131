"""A token whose numbers are none reaches nobody who does not see it."""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.cache.attention import KVCache
from runtime.cache.finite_values import finite_values_of, latents_with_finite_values
from runtime.cache.layout import Chunked, Full, Rotating
from runtime.nn.operations import ops
from runtime.parts.attention import Scoring
from runtime.step import Step

H, G, D = 4, 2, 32
SPECS = [Full(G, D), Rotating(G, D, window=8), Chunked(G, D, chunk=8), Full(G, D, value_dim=64)]
COLUMNS = ["plain", "gpu", "blas"]


def heads(rows: int, width: int, count: int = H, size: int = D, seed: int = 0) -> mx.array:
    return mx.random.normal((rows, count, width, size), key=mx.random.key(seed))


def attended(
    cache: KVCache, spec: Any, starts: tuple[int, ...], counts: tuple[int, ...], bad: int | None, **more: Any
) -> Any:
    """Of one step. bad: the token of row 0 whose value is NaN."""
    step = Step(starts, counts)
    rows, width = len(counts), step.width
    size = spec.head_dim if spec.value_dim is None else spec.value_dim
    values = heads(rows, width, G, size, seed=1)
    if bad is not None:
        values[0, :, bad] = more.pop("value", mx.nan)
    more.pop("value", None)
    out = ops.table.remember(
        step,
        cache,
        heads(rows, width),
        heads(rows, width, G, seed=2),
        values,
        Scoring(D, 0.2, **more),
    )
    cache.commit(step, step.counts)
    return np.array(out)


@pytest.fixture(params=COLUMNS)
def column(request: pytest.FixtureRequest) -> Any:
    ops.use(request.param)
    yield
    ops.use(None)


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("value", [mx.nan, mx.inf], ids=str)
@pytest.mark.usefixtures("column")
def test_queries_before_it_do_not_see_it(spec: Any, value: float) -> None:
    """In one step with it, and with another row."""
    bad, clean = KVCache(spec, rows=2), KVCache(spec, rows=2)
    told = [attended(bad, spec, (0, 0), (6, 4), 3, value=value), attended(clean, spec, (0, 0), (6, 4), None)]
    assert np.array_equal(told[0][0, :3], told[1][0, :3])
    assert np.array_equal(told[0][1], told[1][1])
    assert np.isnan(told[0][0, 3:]).any(axis=-1).all(), "those that see it are told so"


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("kept_format", [None, "q8"])
@pytest.mark.usefixtures("column")
def test_who_comes_into_its_row_does_not_meet_it(spec: Any, kept_format: str | None) -> None:
    """Its slots lie among those that the longer row beside it looks at."""
    told: list[Any] = []
    for bad in (5, None):
        cache = KVCache(spec, rows=2, kept_format=kept_format)
        attended(cache, spec, (0, 0), (7, 7), bad)
        cache.clear(0)
        told.append(attended(cache, spec, (0, 7), (1, 1), None))
    assert np.array_equal(*told)
    assert np.isfinite(told[0]).all()


@pytest.mark.parametrize("column", [*COLUMNS, "cpu"], indirect=True)
@pytest.mark.usefixtures("column")
def test_a_mask_that_a_layer_makes_itself_hides_it() -> None:
    """As of Qwen4, whose indexer chooses blocks."""
    told: list[Any] = []
    for value in (mx.nan, 0.0):
        cache, step = KVCache(SPECS[0]), Step((0,), (8,))
        values = heads(1, 8, G, seed=1)
        values[0, :, 5] = value
        seen, kept, _ = cache.append(step, heads(1, 8, G, seed=2), values)
        assert kept is not None
        chosen = mx.broadcast_to(mx.arange(8) != 5, (1, 1, 8, 8))
        told.append(np.array(ops.table.attend(None, heads(1, 8), seen, kept, chosen, scale=0.2)))
    assert np.array_equal(*told)


@pytest.mark.parametrize("column", ["plain", "blas"], indirect=True)
@pytest.mark.usefixtures("column")
def test_biases_hide_it_as_masks_do() -> None:
    def bias(places: mx.array, asking: range) -> mx.array:
        return mx.broadcast_to(-mx.abs(places)[:, None, None] * 0.1, (1, H, len(asking), places.shape[1]))

    spec, told = SPECS[0], list[Any]()
    for bad in (5, None):
        cache = KVCache(spec, rows=2)
        first = attended(cache, spec, (0, 0), (7, 7), bad, bias=bias)
        cache.clear(0)
        told.append([first[0, :5], attended(cache, spec, (0, 7), (1, 1), None, bias=bias)])
    for one, other in zip(*told, strict=True):
        assert np.array_equal(one, other)


def test_latents_are_cleaned_where_their_values_lie() -> None:
    latents = heads(1, 3, 1, 24)
    bad = latents + 0
    bad[0, 0, 1, 4] = mx.inf
    cleaned = np.array(latents_with_finite_values(bad, 16))
    assert np.array_equal(cleaned[0, 0, [0, 2]], np.array(latents)[0, 0, [0, 2]])
    assert np.isfinite(cleaned[0, 0, 1, :16]).all()
    assert np.isnan(cleaned[0, 0, 1, 16:]).all()


def test_latents_that_are_nothing_else_are_cleaned_where_they_are_read() -> None:
    latents = heads(1, 3, 1, 16)
    latents[0, 0, 1] = mx.nan
    kept = latents_with_finite_values(latents, 16)
    assert np.isnan(np.array(kept)[0, 0, 1]).all()
    assert np.array_equal(np.array(finite_values_of(kept, 16))[0, 0, 1], np.zeros(16))
