"""Pages and what of them suffices."""

import mlx.core as mx
import pytest

from runtime.cache.layout import Chunked, Encoder, Full, Recurrent, Rotating, Shared, State, Stateless
from runtime.cache.snapshot import Checkpoint, Reach, Span, covered_from, detached, resumable

FULL, WINDOW, CHUNK = Full(1, 2), Rotating(1, 2, window=4), Chunked(1, 2, chunk=4)


def span(start: int, stop: int, held_from: int | None = None) -> Span:
    """A page whose entry for position p is p."""
    first = start if held_from is None else held_from
    keys = mx.arange(first, stop, dtype=mx.float32).reshape(1, 1, -1, 1)
    return Span(start, stop, (keys, keys + 0.5))


def entries(page: Span) -> list[float]:
    keys, values = page.arrays
    assert mx.array_equal(values, keys + 0.5)
    return [float(x) for x in keys.reshape(-1).tolist()]  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]


@pytest.mark.parametrize("at", [3, 5, 8])
@pytest.mark.parametrize("held_from", [2, 5, 7])
def test_a_split_page_has_all_that_it_had(at: int, held_from: int) -> None:
    left, right = span(2, 9, held_from).split(at)
    assert (left.start, left.stop, right.start, right.stop) == (2, at, at, 9)
    assert entries(left) + entries(right) == list(range(held_from, 9))


def test_a_page_counts_its_bytes() -> None:
    assert span(0, 6).nbytes == 2 * 6 * 4


def test_a_checkpoint_is_true_at_its_end_only() -> None:
    left, right = Checkpoint(0, 9, (mx.array([1.0]),)).split(4)
    assert left is None
    assert (right.start, right.stop) == (4, 9)


@pytest.mark.parametrize(
    ("pages", "stop", "lowest"),
    [
        ([], 5, 5),
        ([span(0, 3), span(3, 5)], 5, 0),
        ([span(0, 3), span(3, 5)], 4, 0),
        ([span(0, 3), span(4, 6)], 6, 4),
        ([span(0, 3), span(3, 6, held_from=5)], 6, 5),
        ([span(0, 3), span(3, 6, held_from=5)], 3, 0),
        ([span(0, 3), None, span(5, 8)], 8, 5),
        ([span(0, 3)], 5, 5),
        ([span(0, 6), span(4, 8)], 8, 0),
    ],
)
def test_pages_cover_down_to_the_first_hole(pages: list[Span | None], stop: int, lowest: int) -> None:
    assert covered_from(pages, stop) == lowest


@pytest.mark.parametrize(
    ("spec", "pages", "stop", "answer"),
    [
        (FULL, [span(0, 9)], 9, True),
        (FULL, [span(0, 9)], 5, True),
        (FULL, [span(1, 9)], 9, False),
        (WINDOW, [span(5, 9)], 9, True),
        (WINDOW, [span(6, 9)], 9, False),
        (WINDOW, [span(0, 9, held_from=4)], 8, True),
        (WINDOW, [span(0, 9, held_from=5)], 8, False),
        (CHUNK, [span(4, 8)], 8, True),
        (CHUNK, [span(8, 11)], 11, True),
        (CHUNK, [span(8, 11)], 8, False),
        (Recurrent({"s": State((1,))}), [Checkpoint(0, 9, ())], 9, True),
        (Recurrent({"s": State((1,))}), [Checkpoint(0, 9, ())], 8, False),
        (Recurrent({"s": State((1,))}), [Checkpoint(0, 4, ()), Checkpoint(4, 9, ())], 4, True),
        (Encoder(1, 2), [None], 3, False),
        (Shared(0), [None], 3, True),
        (Stateless(), [], 3, True),
        (FULL, [], 0, True),
    ],
)
def test_resumable_asks_for_what_the_last_token_saw(
    spec: Full, pages: list[Span | None], stop: int, answer: bool
) -> None:
    assert resumable(spec, pages, stop) is answer


@pytest.mark.parametrize("reach", [Reach(), Reach(window=5), Reach(chunk=5)])
def test_what_a_query_cannot_see_no_later_one_can(reach: Reach) -> None:
    oldest = [reach.oldest(position) for position in range(40)]
    assert oldest == sorted(oldest)


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.uint32])
def test_a_detached_array_leaves_its_source_writable_in_place(dtype: mx.Dtype) -> None:
    source = mx.arange(4096 * 8).reshape(1, 1, 4096, 8).astype(dtype)
    mx.eval(source)
    copy = detached(source[:, :, :4096])
    mx.eval(copy)
    mx.eval(source)
    before = mx.get_active_memory()
    source[:, :, 5:6] = mx.zeros((1, 1, 1, 8), dtype)
    mx.eval(source)
    assert mx.get_active_memory() <= before + 1024
    assert mx.array_equal(copy[:, :, 4:7], mx.arange(32, 56).reshape(1, 1, 3, 8).astype(dtype))
