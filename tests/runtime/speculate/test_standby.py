"""Drafters that stand by: what they may keep, and how they give way."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import pytest

from runtime.cache.budget import Budget
from runtime.cache.build import build_memory
from runtime.cache.layout import Full, LayerSpec, sequence_bytes
from runtime.cache.memory import LayerMemory
from runtime.cache.prefix import PrefixStore
from runtime.errors import CacheFull
from runtime.speculate.drafter import Drafter
from runtime.speculate.standby import Standby
from runtime.step import Step

LAYER = Full(1, 8)


class Fake:
    """Remembers three layers; notes what it is told, and runs out of memory when asked to."""

    limit, ahead = 3, 1

    def __init__(self) -> None:
        layout: list[LayerSpec] = [LAYER] * 3
        self.memory: LayerMemory = build_memory(layout, budget=Budget())
        self.store: PrefixStore | None = None
        self.told: list[Any] = []
        self.full = False

    def share(self, store: PrefixStore) -> None:
        self.store = store

    def resize(self, rows: int) -> None:
        self.told.append(rows)
        self.memory.resize(rows)

    def settle(self, lengths: Sequence[int]) -> None:
        self.told.append("settle")
        if self.full:
            raise CacheFull(2, 1)

    def write(self, tokens: int) -> None:
        step = Step((0,), (tokens,))
        for cache in self.memory.caches:
            keys: Any = mx.zeros((1, 1, tokens, 8))
            cache.append(step, keys, keys)  # pyright: ignore
        self.memory.commit(step, step.counts)


@pytest.fixture
def fake() -> Fake:
    return Fake()


def standby(*drafters: object) -> Standby:
    named: Any = {f"d{i}": drafter for i, drafter in enumerate(drafters)}
    return Standby(named)


def settle(drafter: Drafter) -> None:
    drafter.settle([1])


def test_what_is_kept_is_shared_out_by_what_a_sequence_takes(fake: Fake) -> None:
    left = standby(fake).share(8000, sequence_bytes([LAYER] * 5, 64), 64)
    assert fake.store is not None
    assert (left, fake.store.limit_bytes) == (5000, 3000)


def test_parts_change_with_what_there_is(fake: Fake) -> None:
    group = standby(fake)
    group.share(8000, sequence_bytes([LAYER] * 5, 64), 64)
    store = fake.store
    fake.write(3)
    assert store is not None
    store.insert([(5, 6), (6, 7), (7, 8)], 0, fake.memory.snapshot(0, 0))
    assert group.kept_bytes == store.nbytes > 0
    assert group.share(80, sequence_bytes([LAYER] * 5, 64), 64) == 50
    assert (fake.store, store.limit_bytes, group.kept_bytes) == (store, 30, 0)


def test_pairs_are_listed_as_the_ids_they_begin_with(fake: Fake) -> None:
    group = standby(fake)
    group.share(1 << 20, sequence_bytes([LAYER], 64), 64)
    fake.write(3)
    assert fake.store is not None
    fake.store.insert([(5, 6), (6, 7), (7, 8)], 0, fake.memory.snapshot(0, 0))
    (entry,) = group.describe()
    assert (entry.keys, entry.space) == ((5, 6, 7), "d0")
    group.forget()
    assert group.describe() == []


def test_one_without_room_rests_until_nothing_runs(fake: Fake) -> None:
    other = Fake()
    group = standby(fake, other)
    fake.write(2)
    fake.full = True
    group.each(settle)
    assert list(group.awake) == ["d1"]
    assert fake.memory.nbytes == 0
    fake.full = False
    group.each(settle)
    assert (fake.told, other.told) == (["settle", 0], ["settle", "settle"])
    group.wake(4)
    assert list(group.awake) == ["d0", "d1"]
    assert (fake.told[-1], fake.memory.rows, other.told[-1]) == (4, 4, "settle")


def test_only_those_with_memory_give_way(fake: Fake) -> None:
    group = standby(fake, Fake())
    assert not group.rest()
    fake.write(2)
    assert group.rest()
    assert list(group.awake) == ["d1"]
    assert not group.rest()
