"""What only encoder memory promises."""

import mlx.core as mx
import pytest

from runtime.cache.encoder import EncoderCache
from runtime.cache.layout import Encoder
from runtime.errors import NotSupported
from runtime.step import Step

SPEC = Encoder(2, 4)


def put(cache: EncoderCache, row: int, size: int, value: float, *, start: int = 0) -> None:
    step = Step((start,), (3,), row)
    content = mx.full((1, 2, size, 4), value)
    cache.append(step, content, content)
    cache.commit(step, (3,))


def test_every_later_step_sees_the_whole_source() -> None:
    cache = EncoderCache(SPEC)
    put(cache, 0, 5, 1.0)
    keys, values, mask = cache.view(Step((3,), (2,)))
    assert keys.shape == (1, 2, 5, 4)
    assert values is not None
    assert mask is None


def test_sources_of_different_size_are_padded_and_masked() -> None:
    cache = EncoderCache(SPEC, rows=3)
    put(cache, 0, 5, 1.0)
    put(cache, 2, 2, 2.0)
    step = Step((3, 0, 3), (1, 1, 1))
    keys, _, mask = cache.view(step)
    assert isinstance(mask, mx.array)
    assert mask[:, 0, 0].tolist() == [[True] * 5, [True] + [False] * 4, [True, True] + [False] * 3]
    assert keys[1, :, 0].tolist() == [[0.0] * 4] * 2
    assert cache.filled(step) == (True, False, True)


def test_attending_to_a_row_without_source_adds_nothing() -> None:
    keys, values, mask = EncoderCache(SPEC).view(Step((0,), (2,)))
    assert values is not None
    out = mx.fast.scaled_dot_product_attention(mx.ones((1, 2, 2, 4)), keys, values, scale=1.0, mask=mask)
    assert not mx.any(out).item()


def test_a_new_source_takes_the_place_of_the_old() -> None:
    cache = EncoderCache(SPEC)
    put(cache, 0, 5, 1.0)
    put(cache, 0, 2, 7.0, start=3)
    keys, _, _ = cache.view(Step((6,), (1,)))
    assert keys.shape[2] == 2


def test_a_row_cannot_go_back_to_before_its_source() -> None:
    cache = EncoderCache(SPEC)
    put(cache, 0, 5, 1.0)
    put(cache, 0, 2, 7.0, start=3)
    assert cache.can_resume(0, 4)
    assert not cache.can_resume(0, 3)
    with pytest.raises(NotSupported):
        cache.remove(0, 2, 4)


def test_cutting_tokens_before_the_source_moves_it_along() -> None:
    cache = EncoderCache(SPEC)
    step = Step((0,), (3,))
    cache.commit(step, (3,))
    put(cache, 0, 2, 7.0, start=3)
    cache.remove(0, 0, 3)
    assert cache.lengths == (3,)
    assert cache.can_resume(0, 1)
