"""How much a piece of long work reads, with a clock that each token moves on."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from modelkit.loaded import long_work
from modelkit.loaded.long_work import LongWork
from runtime.engine.pace import ALONE_S, GAP_S, Pace

TOKEN_S = 0.001


class Engine:
    """Calls at once."""

    def __init__(self, *, steady: bool) -> None:
        self.rows = Pace(steady=steady)
        self.activity = SimpleNamespace(running=0, waiting=0)

    def pace(self) -> Pace:
        return self.rows.apart()

    def call(self, function: Callable[[Any], Any]) -> Any:
        return function(None)


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> Callable[[Engine], Callable[[], int]]:
    """Makes a function that reads ten pieces, and gives the size of the last."""
    clock = SimpleNamespace(now_s=0.0, monotonic=lambda: clock.now_s)
    monkeypatch.setattr(long_work, "time", clock)

    def made(engine: Engine) -> Callable[[], int]:
        work: Any = LongWork(engine)  # pyright: ignore[reportArgumentType]
        sizes = list[int]()

        def reading(tokens: int) -> int:
            clock.now_s += tokens * TOKEN_S
            sizes.append(tokens)
            return tokens

        def ten() -> int:
            for _ in range(10):
                work.read(reading, 2048)
            return sizes[-1]

        return ten

    return made


def test_a_piece_holds_answers_up_for_a_moment(pieces: Callable[[Engine], Callable[[], int]]) -> None:
    engine = Engine(steady=True)
    read = pieces(engine)
    assert 0.7 * ALONE_S <= read() * TOKEN_S <= ALONE_S
    engine.activity.running = 1
    assert 0.7 * GAP_S <= read() * TOKEN_S <= GAP_S
    engine.activity = SimpleNamespace(running=0, waiting=1)
    assert read() * TOKEN_S <= GAP_S
    engine.activity.waiting = 0
    assert read() * TOKEN_S > GAP_S


def test_beside_slow_steps_it_may_take_as_long(pieces: Callable[[Engine], Callable[[], int]]) -> None:
    engine = Engine(steady=True)
    read = pieces(engine)
    engine.activity.running = 1
    for _ in range(9):
        engine.rows.wrote(1.0)
    assert 0.7 <= read() * TOKEN_S <= 1.0


def test_where_bits_depend_on_cuts_texts_are_cut_as_ever(
    pieces: Callable[[Engine], Callable[[], int]],
) -> None:
    engine = Engine(steady=False)
    engine.activity.running = 1
    assert pieces(engine)() == 2048
