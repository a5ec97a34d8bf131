"""Memory that lasts one step agrees with memory that lasts."""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.cache.build import build_memory
from runtime.cache.layout import Chunked, Encoder, Full, LayerSpec, Rotating, Shared
from runtime.step import Step
from tests.support.oneshot import build_one_shot
from tests.support.oracle import HEADS, RECURRENT, SIZE, Row, expected, run

KINDS: list[LayerSpec] = [
    Full(HEADS, SIZE),
    Full(HEADS, SIZE, value_dim=0),
    Rotating(HEADS, SIZE, window=4),
    Chunked(HEADS, SIZE, chunk=4),
    RECURRENT,
    Encoder(HEADS, SIZE),
]


@pytest.mark.parametrize("spec", KINDS)
@pytest.mark.parametrize("counts", [(1,), (11,), (5, 11, 2)])
def test_one_step_shows_what_it_must(spec: LayerSpec, counts: tuple[int, ...]) -> None:
    cache: Any = build_one_shot([spec])[0]
    rows = [list(range(3, 3 + n)) for n in counts]
    found = run(spec, cache, Step((0,) * len(counts), counts), rows)
    assert found == [expected(spec, Row(row, row[0]), 0, len(row)) for row in rows]


def test_sharing_layers_see_their_donors_step() -> None:
    caches: Any = build_one_shot([Full(HEADS, SIZE), Shared(0)])
    step = Step((0,), (3,))
    view = caches[0].append(step, mx.ones((1, HEADS, 3, SIZE)), mx.ones((1, HEADS, 3, SIZE)))
    assert caches[1].view(step) is view


def test_gradients_pass_through() -> None:
    cache: Any = build_one_shot([Rotating(1, 4, window=2)])[0]

    def loss(x: mx.array) -> mx.array:
        keys, values, mask = cache.append(Step((0,), (5,)), x, x)
        return mx.fast.scaled_dot_product_attention(x, keys, values, scale=0.5, mask=mask).sum()

    x = mx.random.normal((1, 1, 5, 4), key=mx.random.key(0))
    assert np.isfinite(np.array(mx.grad(loss)(x))).all()
    assert mx.any(mx.grad(loss)(x) != 0).item()


def test_real_memory_attends_alike() -> None:
    layout = [Rotating(2, 8, window=5)]
    x = mx.random.normal((1, 2, 23, 8), key=mx.random.key(1))
    once: Any = build_one_shot(layout)[0]
    keys, values, mask = once.append(Step((0,), (23,)), x, x)
    whole = mx.fast.scaled_dot_product_attention(x, keys, values, scale=0.3, mask=mask)
    memory = build_memory(layout, slack=2, grain=4)
    cache: Any = memory[0]
    at = 0
    for width in (7, 1, 1, 2, 9, 1, 2):
        step, part = Step((at,), (width,)), x[:, :, at : at + width]
        keys, values, mask = cache.append(step, part, part)
        out = mx.fast.scaled_dot_product_attention(part, keys, values, scale=0.3, mask=mask)
        assert mx.allclose(out, whole[:, :, at : at + width], atol=1e-5)
        memory.commit(step, step.counts)
        at += width
