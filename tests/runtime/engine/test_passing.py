"""A short prompt passes a long one that is being read, and nobody's tokens depend on it."""
# pyright: reportPrivateUsage=false

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.engine.engine import Engine
from runtime.engine.pace import Pace
from runtime.engine.places import Places
from runtime.engine.request import Request
from runtime.engine.row import Row
from runtime.engine.stream import Stream
from runtime.sampling.params import SamplingParams
from tests.support.engines import answer, ids_of, start
from tests.support.invariants import check


def request(length: int, count: int = 3) -> Request:
    ids = tuple((length + i * i) % 150 + 3 for i in range(length))
    return Request(ids, count, SamplingParams(temperature=0))


LONG, MIDDLING, SHORT = request(200), request(40), request(6)


@pytest.fixture
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    kept = getattr(request, "param", None)
    running = start(tmp_path, budget_tokens=4, max_rows=3, prefix_bytes=kept)
    yield running
    running.close()


@pytest.fixture
def passing(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    """Those that have passed another, in order."""
    opens, rows = Places.open, list[Row]()

    def opened(self: Places, row: Row) -> None:
        opens(self, row)
        check(engine._loop)
        if self.passed is not None:
            rows.append(row)

    monkeypatch.setattr(Places, "open", opened)
    return rows


def ask(engine: Engine, *requests: Request) -> list[Stream]:
    """They come at once, in this order."""
    return engine.call(lambda _: [engine.submit(one) for one in requests])


def test_a_short_prompt_passes_a_long_one(engine: Engine, passing: list[Row]) -> None:
    alone = [answer(engine, one) for one in (LONG, SHORT)]
    assert not passing
    assert [ids_of(stream) for stream in ask(engine, LONG, SHORT)] == alone
    assert [row.request for row in passing] == [SHORT]


def test_what_is_not_much_shorter_waits(engine: Engine, passing: list[Row]) -> None:
    assert all(map(ids_of, ask(engine, MIDDLING, request(29), SHORT)))
    assert [row.request for row in passing] == [SHORT]


def test_however_many_are_short_the_long_one_gets_half(engine: Engine, passing: list[Row]) -> None:
    assert all(map(ids_of, ask(engine, LONG, *[request(6, 1)] * 60)))
    assert 25 * 6 <= sum(len(row.request.ids) for row in passing) <= 200


def test_a_step_that_reads_alone_takes_what_time_allows(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And beside rows that write what these allow."""
    run, steps = engine._loop._steps.run, list[tuple[int, int]]()

    def watched(prefill: int) -> None:
        steps.append((len(engine._loop._decoding), prefill))
        run(prefill)

    engine._loop._steps.run = watched
    monkeypatch.setattr(Pace, "alone", property(lambda _: 3))
    monkeypatch.setattr(Pace, "beside", property(lambda _: 2))
    assert all(map(ids_of, ask(engine, request(8, 9), MIDDLING)))
    assert steps[:3] == [(0, 3), (0, 3), (0, 2)]
    assert {prefill for writing, prefill in steps if writing} == {2, 0}


@pytest.mark.parametrize("engine", [1 << 20], indirect=True)
@pytest.mark.parametrize("forgotten", [False, True])
def test_what_is_kept_of_a_prompt_does_not_make_it_long(
    engine: Engine, passing: list[Row], forgotten: bool
) -> None:
    """Unless it was forgotten meanwhile."""
    more = replace(MIDDLING, ids=(*MIDDLING.ids, 5))
    alone = answer(engine, more)
    run = engine._loop._steps.run

    def forgets(prefill: int) -> None:
        if forgotten:
            engine._loop.clear_prefixes()
        run(prefill)

    engine._loop._steps.run = forgets
    long, short = ask(engine, LONG, more)
    assert ids_of(short) == alone
    assert ids_of(long)
    assert [row.request for row in passing] == [more] * (not forgotten)


@pytest.mark.parametrize("leaves", [0, 1])
def test_either_may_leave(engine: Engine, passing: list[Row], leaves: int) -> None:
    """The one that is passed, and the one that passes it, while that is read."""
    pair = LONG, MIDDLING
    stays = answer(engine, pair[1 - leaves])
    streams = ask(engine, *pair)
    work = engine._loop._steps.run

    def run(prefill: int) -> None:
        if passing:
            streams[leaves].cancel()
        work(prefill)

    engine._loop._steps.run = run
    assert ids_of(streams[1 - leaves]) == stays
    assert streams[leaves].close().reason == "cancelled"
    engine.call(lambda _: check(engine._loop))
