"""The third time scale: a row marks where it stands, reads on for a while, and goes back."""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
import pytest

from runtime.cache.budget import Budget
from runtime.cache.build import build_memory
from runtime.cache.encoder import EncoderCache
from runtime.cache.layout import Encoder, Full, LayerSpec, Recurrent, Rotating, Shared, Stateless
from runtime.cache.memory import LayerMemory
from runtime.step import Step
from tests.runtime.cache.test_contract import SLACK, TOKENS, Driven, every_kind
from tests.support.oracle import HEADS, RECURRENT, SIZE
from tests.support.oracle import run as read


@every_kind
@pytest.mark.parametrize("before", [0, 1, 5, 23])
@pytest.mark.parametrize("cuts", [[], [1], [1, 2, 3]])
def test_what_was_read_after_a_mark_never_happened(spec: LayerSpec, before: int, cuts: Sequence[int]) -> None:
    driven, memory = _driven(spec)
    if before:
        driven.feed(TOKENS[:before])
    mark = memory.mark(0)
    driven.feed([801, 802, 803, 804][:SLACK], cuts=cuts)
    assert memory.rewind(0, before, [mark]) == before
    driven.assert_holds(0, TOKENS[:before])


@every_kind
def test_a_row_goes_back_to_the_same_mark_again_and_again(spec: LayerSpec) -> None:
    driven, memory = _driven(spec)
    driven.feed(TOKENS[:9])
    past, mark = driven.past[0], memory.mark(0)
    for first in (801, 811, 821):
        driven.feed([first, first + 1], cuts=[1])
        assert memory.rewind(0, 9, [mark]) == 9
        driven.past[0] = past
    driven.assert_holds(0, TOKENS[:9])


@every_kind
def test_of_several_marks_the_latest_that_is_not_beyond_counts(spec: LayerSpec) -> None:
    driven, memory = _driven(spec)
    driven.feed(TOKENS[:7])
    marks = [memory.mark(0)]
    for at in (7, 8, 9):
        driven.feed(TOKENS[at : at + 1])
        marks.append(memory.mark(0))
    assert memory.rewind(0, 9, marks[::-1]) == 9
    driven.assert_holds(0, TOKENS[:9])


@every_kind
def test_a_row_that_is_shorter_stays(spec: LayerSpec) -> None:
    driven, memory = _driven(spec)
    driven.feed(TOKENS[:7])
    assert memory.rewind(0, 12, [memory.mark(0)]) == 7
    driven.assert_holds(0, TOKENS[:7])


@every_kind
def test_without_a_mark_a_row_goes_back_as_far_as_it_can_be_cut_or_begins_anew(spec: LayerSpec) -> None:
    driven, memory = _driven(spec)
    driven.feed(TOKENS[:9])
    there = memory.rewind(0, 7)
    assert there == (0 if isinstance(spec, Recurrent) else 7)
    driven.assert_holds(0, TOKENS[:there])


@every_kind
def test_other_rows_stay_as_they_are(spec: LayerSpec) -> None:
    driven, memory = _driven(spec, rows=2)
    driven.feed(TOKENS[:5], row=1)
    mark = memory.mark(0)
    driven.feed(TOKENS[:3])
    memory.rewind(0, 0, [mark])
    driven.assert_holds(1, TOKENS[:5])


def test_all_layers_go_back_to_the_same_place() -> None:
    """The fold knows a place that the window has left behind: none of them goes there."""
    memory = build_memory([Full(HEADS, SIZE), Rotating(HEADS, SIZE, window=4), RECURRENT], slack=SLACK)
    _read(memory, TOKENS[:9])
    far = memory.mark(0)
    for token in TOKENS[9:29]:
        _read(memory, [token])
    near = memory.mark(0)
    _read(memory, TOKENS[29:])
    assert memory.rewind(0, 29, [far, near]) == 29
    assert memory.rewind(0, 12, [far, near]) == 0
    assert all(cache.lengths == (0,) for cache in memory.caches)


def test_a_source_that_came_later_goes_and_the_earlier_one_is_back() -> None:
    cache = EncoderCache(Encoder(HEADS, SIZE))
    memory = LayerMemory([Encoder(HEADS, SIZE)], [cache], rows=1, budget=Budget())
    for source, start in ((1.0, 0), (2.0, 1)):
        mark = memory.mark(0)
        step, content = Step((start,), (1,)), mx.full((1, HEADS, 3, SIZE), source)
        cache.append(step, content, content)
        memory.commit(step, (1,))
    assert memory.rewind(0, 1, [mark]) == 1
    keys, _, _ = cache.view(Step((1,), (1,)))
    assert np.array_equal(np.array(keys), np.ones((1, HEADS, 3, SIZE)))


def _driven(spec: LayerSpec, *, rows: int = 1) -> tuple[Driven, LayerMemory]:
    """A cache, and the same one as all of a model's memory, with a layer that shares it where one can."""
    driven = Driven(spec, rows=rows)
    layout = [spec, Stateless(), *([] if isinstance(spec, Recurrent | Encoder) else [Shared(0)])]
    own = [driven.cache, *[None] * (len(layout) - 1)]
    return driven, LayerMemory(layout, own, rows=rows, budget=Budget())


def _read(memory: LayerMemory, tokens: Sequence[int]) -> None:
    step = Step((memory.caches[0].lengths[0],), (len(tokens),))
    memory.prepare(step)
    for spec, cache in zip(memory.layout, memory, strict=True):
        read(spec, cache, step, [tokens])
    memory.commit(step, step.counts)
