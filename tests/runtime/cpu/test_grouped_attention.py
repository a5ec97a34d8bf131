"""Attention with folded heads equals its definition, whatever is masked."""

import mlx.core as mx
import numpy as np
import pytest

from runtime.cache.protocol import Mask
from runtime.cpu import activation, grouped_attention, query_parts
from runtime.cpu.grouped_attention import folded_attention, folds
from runtime.nn.operations import ops, plain
from runtime.step import Step

HEADS, SIZE = 6, 16


def arrays(rows: int, groups: int, width: int, seen: int) -> tuple[mx.array, mx.array, mx.array]:
    shapes = [(rows, HEADS, width, SIZE), (rows, groups, seen, SIZE), (rows, groups, seen, SIZE)]
    return tuple(mx.random.normal(shape, key=mx.random.key(i)) for i, shape in enumerate(shapes))  # pyright: ignore[reportReturnType]


def check(rows: int, groups: int, width: int, seen: int, mask: Mask, softcap: float | None = None) -> None:
    queries, keys, values = arrays(rows, groups, width, seen)
    step = Step((seen - width,) * rows, (width,) * rows)
    wanted = plain.attend(None, queries, keys, values, mask, scale=0.3, softcap=softcap)
    got = folded_attention(step, queries, keys, values, mask, scale=0.3, softcap=softcap)
    assert np.allclose(got.reshape(wanted.shape), wanted, atol=1e-5)


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize(("width", "seen"), [(1, 1), (1, 40), (5, 5), (5, 40), (16, 300)])
def test_equals_the_definition(groups: int, width: int, seen: int) -> None:
    check(2, groups, width, seen, "causal" if width > 1 else None)


@pytest.mark.parametrize(("width", "seen"), [(300, 300), (257, 400)], ids=["from the start", "later on"])
def test_in_blocks(width: int, seen: int) -> None:
    check(1, 2, width, seen, "causal")


@pytest.mark.parametrize("width", [1, 5, 200])
def test_rows_that_see_different_keys(width: int) -> None:
    seen = mx.random.uniform(shape=(3, 1, width, 210), key=mx.random.key(9)) < 0.5
    seen[:, :, :, 0] = True
    check(3, 2, width, 210, seen)


def test_scores_are_capped_before_they_are_masked() -> None:
    check(1, 2, 5, 40, "causal", softcap=2.0)


def test_a_query_that_sees_nothing_gives_a_number() -> None:
    queries, keys, values = arrays(1, 2, 3, 8)
    nothing = mx.zeros((1, 1, 3, 8), dtype=mx.bool_)
    out = folded_attention(Step((5,), (3,)), queries, keys, values, nothing, scale=1.0)
    assert np.isfinite(np.array(out)).all()


def test_long_softmax_equals_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activation, "LONG", 1)
    check(2, 2, 5, 40, "causal")


def test_layers_share_a_causal_mask() -> None:
    step = Step((3,), (5,))
    queries, keys, values = arrays(1, 2, 5, 8)
    for _ in range(3):
        folded_attention(step, queries, keys, values, "causal", scale=1.0)
    assert len(step._memo) == 1  # pyright: ignore[reportPrivateUsage]


def test_one_token_far_on_is_left_to_vector_products() -> None:
    near, far = 64, grouped_attention.SMALL_PRODUCT // SIZE
    assert folds(*arrays(1, 2, 1, near)[:2])
    assert not folds(*arrays(1, 2, 1, far)[:2])
    assert folds(*arrays(1, 2, 2, far)[:2])


@pytest.mark.parametrize("sinks", [None, mx.zeros((HEADS,))], ids=["folded", "not folded"])
@pytest.mark.parametrize("causal", [True, False])
def test_scores_are_made_for_some_queries_at_a_time(
    sinks: mx.array | None, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    width, seen = 200, 4000
    queries, keys, values = arrays(1, 2, width, seen)
    visible = mx.arange(seen) <= (mx.arange(width) + seen - width)[:, None]
    mask: Mask = "causal" if causal else visible[None, None]
    wanted = plain.attend(None, queries, keys, values, mask, scale=0.3, sinks=sinks)
    monkeypatch.setattr(query_parts, "HELD", 3 * HEADS * seen)
    mx.eval(queries, keys, values, mask if isinstance(mask, mx.array) else [], wanted)
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    with ops.using("blas"):
        step = Step((seen - width,), (width,))
        got = ops.table.attend(step, queries, keys, values, mask, scale=0.3, sinks=sinks)
    assert np.allclose(got, wanted, atol=1e-5)
    assert mx.get_peak_memory() - before < 4 * HEADS * width * seen
