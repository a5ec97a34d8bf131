"""Room for rows is taken from what may be kept, and never made twice."""

from runtime.cache.budget import Budget
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
    assert not MemoryLimits(Budget(), 200, kept.keep).borrow(CacheFull(101, 100))


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
