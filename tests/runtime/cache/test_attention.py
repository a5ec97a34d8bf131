"""What only attention memory promises: masks, bounds, growth, formats, writes in place, re-rotation."""

from typing import Any

import mlx.core as mx
import pytest

from runtime.cache.attention import KVCache
from runtime.cache.budget import Budget
from runtime.cache.layout import Chunked, Full, Rotating
from runtime.errors import CacheFull, NotSupported
from runtime.step import Step

H, D = 2, 32
FULL, WINDOW, CHUNK = Full(H, D), Rotating(H, D, window=32), Chunked(H, D, chunk=32)


def noise(rows: int, width: int, seed: int = 0, size: int = D) -> mx.array:
    return mx.random.normal((rows, H, width, size), key=mx.random.key(seed))


def read(cache: KVCache, width: int, *, rows: int = 1, seed: int = 0) -> Any:
    """Append and commit `width` tokens to the first rows; return the view."""
    step = Step(cache.lengths[:rows], (width,) * rows)
    x = noise(rows, width, seed)
    view = cache.append(step, x, x)
    cache.commit(step, step.counts)
    return view


@pytest.mark.parametrize("spec", [FULL, WINDOW, CHUNK])
@pytest.mark.parametrize("rows", [1, 3])
def test_one_token_of_level_rows_needs_no_mask(spec: Any, rows: int) -> None:
    cache = KVCache(spec, rows=rows)
    read(cache, 100, rows=rows)
    for _ in range(80):
        assert read(cache, 1, rows=rows)[2] is None


def test_a_step_of_level_rows_over_all_the_past_is_causal() -> None:
    cache = KVCache(FULL, rows=2)
    assert read(cache, 7, rows=2)[2] == "causal"
    assert read(cache, 3, rows=2)[2] == "causal"


def test_a_window_that_nothing_has_left_yet_is_causal() -> None:
    cache = KVCache(WINDOW)
    read(cache, 20)
    assert read(cache, 12)[2] == "causal"
    assert isinstance(read(cache, 2)[2], mx.array)


def test_layers_that_agree_share_one_mask() -> None:
    caches = [KVCache(WINDOW), KVCache(WINDOW)]
    for cache in caches:
        read(cache, 40)
    step = Step((40,), (3,))
    first, second = (cache.append(step, noise(1, 3), noise(1, 3))[2] for cache in caches)
    assert first is second


@pytest.mark.parametrize("spec", [WINDOW, CHUNK])
def test_a_bounded_reach_bounds_memory(spec: Any) -> None:
    cache = KVCache(spec, slack=8)
    for width in (200, 1, 7, 1, 90, 3, *[1] * 100):
        read(cache, width)
    assert cache.nbytes <= (32 + 3 * 8) * 2 * H * D * 4


@pytest.mark.parametrize("spec", [WINDOW, CHUNK])
@pytest.mark.parametrize("width", [1, 5, 77])
def test_the_last_slack_tokens_can_be_taken_back_any_time(spec: Any, width: int) -> None:
    cache = KVCache(spec, slack=6)
    while cache.lengths[0] < 150:
        read(cache, width)
        for back in range(min(7, cache.lengths[0] + 1)):
            assert cache.can_resume(0, cache.lengths[0] - back)


@pytest.mark.parametrize("spec", [FULL, Rotating(H, D, window=2048)])
def test_decoding_writes_in_place(spec: Any) -> None:
    cache = KVCache(spec)
    cache.reserve(4096)
    read(cache, 3000)
    for _ in range(20):
        mx.eval(cache.arrays)
        mx.reset_peak_memory()
        before = mx.get_active_memory()
        read(cache, 1)
        mx.eval(cache.arrays)
        assert mx.get_peak_memory() - before < cache.nbytes / 2


def test_snapshots_do_not_stop_writes_in_place() -> None:
    cache = KVCache(Full(1, D, value_dim=0), grain=1)
    step = Step((0,), (1024,))
    cache.append(step, mx.ones((1, 1, 1024, D)), None)
    cache.commit(step, (1024,))
    page = cache.snapshot(0, 0)
    cache.reserve(1024)
    mx.eval(page.arrays, cache.arrays)
    before = mx.get_active_memory()
    cache.remove(0, 1000, 1024)
    step = Step((1000,), (1,))
    cache.append(step, mx.zeros((1, 1, 1, D)), None)
    cache.commit(step, (1,))
    mx.eval(cache.arrays)
    assert mx.get_active_memory() < before + cache.nbytes / 2
    assert page.arrays[0].min().item() == 1


def test_growth_is_geometric() -> None:
    cache, sizes = KVCache(FULL, grain=4), set[int]()
    for _ in range(600):
        read(cache, 1)
        sizes.add(cache.nbytes)
    assert len(sizes) < 30


def test_growth_takes_what_it_needs_when_the_budget_is_short() -> None:
    token = 2 * H * D * 4
    cache = KVCache(FULL, grain=64, budget=Budget(limit_bytes=10 * token))
    for _ in range(10):
        read(cache, 1)
    assert cache.nbytes == 10 * token
    with pytest.raises(CacheFull):
        read(cache, 1)


def test_a_short_budget_makes_a_window_move_more_often() -> None:
    token = 2 * H * D * 4
    cache = KVCache(WINDOW, slack=4, grain=8, budget=Budget(limit_bytes=38 * token))
    for _ in range(100):
        read(cache, 1)
    assert cache.lengths == (100,)


def test_values_may_be_part_of_the_keys() -> None:
    cache = KVCache(Full(1, D, value_dim=0))
    step = Step((0,), (3,))
    keys, values, mask = cache.append(step, noise(1, 3)[:, :1], None)
    assert keys.shape == (1, 1, 3, D)
    assert (values, mask) == (None, "causal")


def test_memory_in_another_float_format_reads_as_activations() -> None:
    cache = KVCache(FULL, dtype=mx.float32, kept_format="f16", grain=1)
    keys, _, _ = read(cache, 5)
    assert keys.dtype == mx.float32
    assert mx.array_equal(keys, noise(1, 5).astype(mx.float16).astype(mx.float32))
    assert cache.nbytes == 5 * 2 * H * D * 2


@pytest.mark.parametrize("name", ["q8", "q4"])
@pytest.mark.parametrize("spec", [FULL, WINDOW, CHUNK])
def test_a_quantized_entry_is_that_token_alone_quantized(spec: Any, name: str) -> None:
    """However it came: in one step, in many, in a batch of ragged rows, or from a page."""
    bits = {"q8": 8, "q4": 4}[name]
    x = noise(1, 90)
    plain = mx.dequantize(*mx.quantize(x, 32, bits), group_size=32, bits=bits)
    cache = KVCache(spec, rows=2, slack=8, kept_format=name)
    for start, stop in ((0, 50), (50, 51), (51, 57), (57, 88)):
        step = Step((start,), (stop - start,))
        cache.append(step, x[:, :, start:stop], x[:, :, start:stop])
        cache.commit(step, step.counts)
    cache.restore(1, [cache.snapshot(0, 0)])
    cache.remove(1, 86, 88)
    step = Step((88, 86), (2, 1))
    both = mx.concatenate([x[:, :, 88:90], x[:, :, 86:88]])
    keys, values, mask = cache.append(step, both, both)
    assert values is not None
    assert isinstance(mask, mx.array)
    for row, last in enumerate((89, 86)):
        seen: Any = mask[row, 0, last - step.starts[row]].tolist()
        first, count = seen.index(True), sum(seen)
        kept = plain[0, :, last + 1 - count : last + 1]
        assert mx.array_equal(keys[row, :, first : first + count], kept)
        assert mx.array_equal(values[row, :, first : first + count], kept)


def test_a_quantized_cache_takes_the_bytes_of_its_format() -> None:
    cache = KVCache(Full(1, 64), kept_format="q4", dtype=mx.float16, grain=1)
    step = Step((0,), (10,))
    cache.append(step, noise(1, 10, size=64)[:, :1], noise(1, 10, size=64)[:, :1])
    assert cache.nbytes == 10 * 2 * (32 + 2 + 2) == sum(array.nbytes for array in cache.arrays)


@pytest.mark.parametrize(("name", "size"), [("q8", 20), ("mxfp4", 64), ("nonsense", 64)])
def test_a_format_that_cannot_keep_these_heads_is_refused(name: str, size: int) -> None:
    with pytest.raises(NotSupported):
        KVCache(Full(1, size), kept_format=name)


@pytest.mark.parametrize(("start", "stop"), [(0, 5), (3, 9), (10, 19)])
def test_removing_a_middle_range_rotates_the_keys_after_it(start: int, stop: int) -> None:
    def rope(x: mx.array, offset: int) -> mx.array:
        sign = 1.0 if offset >= 0 else -1.0  # GPUs add an offset to an unsigned number
        return mx.fast.rope(x, D, traditional=False, base=10000.0, scale=sign, offset=abs(offset))

    def rotate(keys: mx.array, shift: int) -> mx.array:
        one_by_one = [rope(keys[:, :, i : i + 1], shift) for i in range(keys.shape[2])]
        return mx.concatenate(one_by_one, axis=2)

    x, values = noise(1, 20), noise(1, 20, seed=1)
    cache = KVCache(FULL)
    step = Step((0,), (20,))
    cache.append(step, rope(x, 0), values)
    cache.commit(step, step.counts)
    cache.remove(0, start, stop, rotate)
    left = [i for i in range(20) if not start <= i < stop]
    keys, kept, _ = cache.view(Step((len(left) - 1,), (1,)))
    assert kept is not None
    assert mx.allclose(keys, rope(x[:, :, left], 0), atol=1e-5)
    assert mx.array_equal(kept, values[:, :, left])


def test_removing_needs_a_way_to_rotate() -> None:
    cache = KVCache(FULL)
    read(cache, 10)
    with pytest.raises(NotSupported):
        cache.remove(0, 2, 5)
    assert cache.lengths == (10,)


def test_a_window_that_would_miss_tokens_cannot_be_cut() -> None:
    cache = KVCache(WINDOW, slack=2)
    read(cache, 200)
    assert not cache.can_remove(0, 190, 195)
    assert cache.can_remove(0, 3, 100)


def test_a_cut_may_take_the_oldest_that_a_window_still_holds() -> None:
    cache = KVCache(WINDOW, slack=2)
    read(cache, 200)
    assert not cache.can_remove(0, 3, 169)
    cache.remove(0, 3, 168, lambda keys, shift: keys + shift)
    keys, values, _ = cache.view(Step((34,), (1,)))
    assert values is not None
    assert mx.array_equal(keys, noise(1, 200)[:, :, 168:] - 165)
    assert mx.array_equal(values, noise(1, 200)[:, :, 168:])


def test_a_read_only_view_shows_what_a_query_at_that_position_sees() -> None:
    cache = KVCache(WINDOW)
    read(cache, 100)
    keys, _, mask = cache.view(Step((99,), (1,)))
    assert mask is None
    assert mx.array_equal(keys, noise(1, 100)[:, :, 68:100])


def test_shrinking_gives_memory_back() -> None:
    cache = KVCache(FULL, rows=2, grain=4)
    read(cache, 3, rows=2)
    cache.move(1, 1, cache.row_copies(1))
    step = Step((3,), (400,), 1)
    cache.append(step, noise(1, 400), noise(1, 400))
    cache.commit(step, step.counts)
    full = cache.nbytes
    cache.resize(1)
    assert cache.nbytes < full / 8
