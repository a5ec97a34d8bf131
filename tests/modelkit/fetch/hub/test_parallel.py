"""Several transfers at a time."""

import pytest

from modelkit.fetch.hub import parallel
from modelkit.fetch.hub.parallel import side_by_side


class Contended(parallel.deque["parallel.Task"]):
    """Where somebody looks, there is still one: another thread takes it before the look has an effect."""

    def __bool__(self) -> bool:
        return True


def test_who_comes_too_late_for_the_last_one_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "deque", Contended)
    done: list[int] = []
    side_by_side([lambda number=number: done.append(number) for number in range(20)], lambda: None)
    assert sorted(done) == list(range(20))
