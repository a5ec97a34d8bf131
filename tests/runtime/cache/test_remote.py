"""Memory that another machine has stands, of all that is asked of it here, where the real one stands."""

import random
from typing import Any

import mlx.core as mx
import pytest

from runtime.cache.build import build_memory
from runtime.cache.layout import Chunked, Encoder, Full, LayerSpec, Pooled, Recurrent, Rotating, State
from runtime.cache.memory import LayerMemory
from runtime.cache.pages import page_arrays, page_bytes, split_page
from runtime.cache.protocol import by_layout
from runtime.errors import NotSupported
from runtime.step import Step

LAYOUT: list[LayerSpec] = [
    Full(2, 32),
    Rotating(1, 32, window=24, value_dim=0),
    Chunked(1, 64, chunk=20),
    Recurrent({"state": State((3, 4))}),
    Pooled(32, 3),
    Encoder(2, 16, of_prompt=True),
]
SOURCE = 5
"""Tokens of what an encoder has read for every row that begins."""


def memories(kept_format: str | None) -> list[LayerMemory]:
    """The real one, and one whose layers are all elsewhere."""
    return [
        build_memory(LAYOUT, slack=4, grain=8, kept_format=kept_format, elsewhere=there)
        for there in (range(0), range(6))
    ]


def stand(memory: LayerMemory) -> list[Any]:
    return [
        (cache.lengths, cache.rows, cache.nbytes, cache.room, [cache.can_resume(0, at) for at in range(60)])
        for cache in memory.caches
    ]


def compute(memory: LayerMemory, step: Step) -> None:
    """What a network does with the real one."""
    shape = (len(step.starts), step.width)
    for spec, cache in zip(LAYOUT, by_layout(memory), strict=True):
        if isinstance(spec, Recurrent):
            x = mx.ones((*shape, 3, 4))
            cache.scan(step, lambda s, x, counts: (x, {"state": s["state"] + x[:, 0]}), x)  # pyright: ignore
        elif isinstance(spec, Pooled):
            groups = [range(start // 3, (start + step.width) // 3) for start in step.starts]
            cache.pool(step, mx.ones((shape[0], 1, max(map(len, groups)), 32)))
        elif isinstance(spec, Encoder):
            if not any(step.starts):
                cache.append(step, *[mx.ones((shape[0], 2, SOURCE, 16))] * 2)
        elif not isinstance(spec, Full | Rotating | Chunked):
            raise AssertionError(spec)
        else:
            keys = mx.ones((shape[0], spec.kv_heads, shape[1], spec.head_dim))
            cache.append(step, keys, None if spec.value_dim == 0 else keys)


@pytest.mark.parametrize("seed", range(6))
def test_both_stand_alike_whatever_is_done(seed: int) -> None:
    draw = random.Random(seed)
    both = memories("q8" if seed % 2 else None)
    for memory in both:
        memory.resize(3)
    pages: list[list[Any]] = []
    for _ in range(40):
        lengths = both[0].caches[0].lengths
        row, other = draw.sample(range(3), 2)
        match draw.choice(["step"] * 6 + ["move", "clear", "page", "restore", "resize"]):
            case "step":
                first = draw.randrange(3)
                starts = lengths[first : first + draw.randint(1, 3)]
                counts = tuple(draw.choice([1, 1, 3, 30]) for _ in starts)
                if max(starts) > 150:
                    continue
                kept = [draw.choice([n, n, n // 2]) for n in counts]
                refusals = [_taken(memory, Step(starts, counts, first), kept) for memory in both]
                assert refusals[0] == refusals[1]
            case "move":
                for memory in both:
                    memory.move(row, other)
            case "clear":
                for memory in both:
                    memory.clear(row)
            case "page" if lengths[row]:
                pages.append([memory.snapshot(row, 0) for memory in both])
                mx.eval([page_arrays(page) for page in pages[-1]])
            case "restore" if pages:
                taken = draw.choice(pages)
                for memory, page in zip(both, taken, strict=True):
                    memory.restore(row, [page], page[0].stop)
            case "resize":
                for memory in both:
                    memory.resize(3)
            case _:
                pass
        assert stand(both[0]) == stand(both[1])
    for real, absent in pages:
        assert [_range(one) for one in real] == [_range(one) for one in absent]
        assert page_bytes(real) == page_bytes(absent)
        if real[0].stop > 1:
            for mine, theirs in zip(split_page(real, 1), split_page(absent, 1), strict=True):
                assert [_range(one) for one in mine] == [_range(one) for one in theirs]
    assert both[1].caches[0].nbytes > 0
    assert all(cache.arrays == [] for cache in both[1].caches)


def _taken(memory: LayerMemory, step: Step, kept: list[int]) -> bool:
    """A step of which so many tokens are kept, or none where that cannot be; whether it could."""
    memory.prepare(step)
    memory.follow(step)
    if not any(step.starts):
        memory.follow_source(step, SOURCE)
    if not memory.elsewhere:
        compute(memory, step)
    try:
        memory.commit(step, kept)
    except NotSupported:
        memory.commit(step, [0] * len(kept))
        return False
    return True


def _range(snapshot: Any) -> Any:
    return snapshot and (snapshot.start, snapshot.stop, getattr(snapshot, "held_from", None), snapshot.nbytes)


def test_what_a_context_forgets() -> None:
    both = [build_memory([Full(1, 32)], elsewhere=there) for there in (range(0), range(1))]
    for memory in both:
        step = Step((0,), (20,))
        memory.prepare(step)
        memory.follow(step)
        if memory.caches[0].arrays:
            by_layout(memory)[0].append(step, mx.ones((1, 1, 20, 32)), mx.ones((1, 1, 20, 32)))
        memory.commit(step, (20,))
        memory.remove(0, 4, 12, [lambda keys, _by: keys])
    assert both[0].caches[0].lengths == both[1].caches[0].lengths == (12,)
