"""Room for rows is taken from what may be kept, and never made twice."""

import pytest

from runtime.cache.budget import Budget
from runtime.engine.free_memory import FreeMemory
from runtime.engine.memory_limits import MemoryLimits
from runtime.errors import CacheFull


class Kept:
    """What is kept of earlier sequences, of which rows stand on `needed` bytes."""

    def __init__(self, size: int, needed: int = 0) -> None:
        self.size, self.needed, self.limit = size, needed, size

    def keep(self, limit: int) -> int:
        self.limit = limit
        self.size = max(min(self.size, limit), self.needed)
        return self.size


def test_what_is_missing_is_taken_and_the_sum_stays() -> None:
    budget, kept = Budget(100), Kept(200)
    limits = MemoryLimits(budget, 200, kept.keep)
    assert limits.borrow(CacheFull(150, 100))
    assert (budget.limit_bytes, limits.kept_limit, kept.size) == (150, 150, 150)


def test_what_is_not_there_is_not_taken_and_nothing_is_forgotten() -> None:
    budget, kept = Budget(100), Kept(200)
    limits = MemoryLimits(budget, 200, kept.keep)
    assert not limits.borrow(CacheFull(301, 100))
    assert (budget.limit_bytes, limits.kept_limit, kept.size) == (100, 200, 200)
    assert not MemoryLimits(budget, None, kept.keep).borrow(CacheFull(101, 100))


def test_what_rows_stand_on_is_not_counted_twice() -> None:
    budget, kept = Budget(100), Kept(200, needed=180)
    limits = MemoryLimits(budget, 200, kept.keep)
    assert not limits.borrow(CacheFull(150, 100))
    assert (budget.limit_bytes, limits.kept_limit, kept.limit) == (120, 180, 180)
    kept.needed = 180
    assert not limits.borrow(CacheFull(150, 100))
    assert kept.limit == 180, "as much may be kept as before, once nobody stands on it, too"


def test_it_goes_back_once_layer_memory_holds_it_no_more() -> None:
    budget, kept = Budget(100), Kept(200)
    limits = MemoryLimits(budget, 200, kept.keep)
    limits.borrow(CacheFull(150, 100))
    budget.claim(140)
    limits.give_back()
    assert (budget.limit_bytes, limits.kept_limit) == (140, 160)
    budget.claim(-140)
    limits.give_back()
    assert (budget.limit_bytes, limits.kept_limit) == (100, 200)


def test_limits_that_are_told_meanwhile_hold_besides() -> None:
    budget, kept = Budget(100), Kept(200)
    limits = MemoryLimits(budget, 200, kept.keep)
    limits.borrow(CacheFull(150, 100))
    limits.limit_layers(110)
    assert budget.limit_bytes == 160
    assert limits.limit_kept(120) == 120
    assert limits.kept_limit == 70
    limits.give_back()
    assert (budget.limit_bytes, limits.kept_limit) == (110, 120)


def test_where_nothing_but_the_machine_limits_rows_they_get_what_was_kept() -> None:
    kept = Kept(200)
    budget = Budget(free=lambda: 100 - budget.held_bytes + 200 - kept.size)
    limits = MemoryLimits(budget, 200, kept.keep)
    with pytest.raises(CacheFull) as refusal:
        budget.claim(150)
    assert (refusal.value.wanted_bytes, refusal.value.budget_bytes) == (150, 100)
    assert limits.borrow(refusal.value)
    budget.claim(150)
    assert (budget.limit_bytes, limits.kept_limit, kept.size) == (None, 150, 150)
    budget.claim(-150)
    limits.give_back()
    assert (budget.limit_bytes, limits.kept_limit) == (None, 200)


def test_the_tighter_of_limit_and_machine_holds() -> None:
    assert Budget(limit_bytes=50, free=lambda: 80).room_bytes == 50
    assert Budget(limit_bytes=50, free=lambda: 30).room_bytes == 30
    assert Budget(limit_bytes=50, free=lambda: 30, held_bytes=60).room_bytes == -10
    assert Budget().room_bytes is None


def test_what_is_taken_between_two_looks_is_subtracted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, available = [0.0], [1000]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    free = FreeMemory(lambda: available[0], spare_bytes=100)
    assert free.left(taken_bytes=50, unwritten_bytes=20) == 1000 - 20 - 100
    available[0] = 10  # nobody looks yet
    assert free.left(150, 0) == 1000 - 20 - 100 - 100
    assert free.left(30, 0) == 1000 - 100, "trimmed: what was not written is nobody's"
    clock[0] = 2.0
    assert free.left(150, 0) == 10 - 100


def test_whoever_takes_much_looks_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 0.0)
    available = [1000]
    free = FreeMemory(lambda: available[0], spare_bytes=0)
    assert free.left(0, 0) == 1000
    available[0] = 300
    assert free.left(600, 0) == 300


def test_what_is_free_may_be_unknown() -> None:
    assert FreeMemory(lambda: 0, spare_bytes=100).left(1 << 40, 0) > 1 << 60
