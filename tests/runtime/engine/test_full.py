"""When layer memory is full, rows wait for each other; whoever gets an answer gets the right one."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.cache.layout import sequence_bytes
from runtime.cache.memory import LayerMemory
from runtime.cpu import native
from runtime.engine.engine import Engine
from runtime.engine.request import Request
from runtime.engine.steps import Steps
from runtime.errors import CacheFull
from runtime.loaded import LoadedModel
from runtime.sampling.params import SamplingParams
from runtime.speculate.draft_model import ModelDrafter
from runtime.speculate.drafter import Drafter
from tests.support.drafting import always_drafting
from tests.support.engines import answer, answers, ids_of, prompt, start
from tests.support.parity import Reference
from tests.support.served import wait_until

WARM = SamplingParams(temperature=0.9, seed=4)


def room(engine: Engine, tokens: int) -> int:
    """Bytes of layer memory for one row of so many tokens."""
    return sequence_bytes(engine.model.described.layout, tokens, 4, slack=48)


def request(number: int, length: int, count: int) -> Request:
    ids = prompt(number, length)
    return Request(ids, count, WARM)


@pytest.fixture(scope="module", params=["llama", "mistral_window", "qwen3_5"])
def plain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = start(tmp_path_factory.mktemp("plain"), request.param)
    engine.kind = request.param  # type: ignore[attr-defined]
    yield engine
    engine.close()


@pytest.mark.parametrize("prefix_bytes", [None, 1 << 30], ids=["forgetful", "prefixes"])
@pytest.mark.parametrize("rows", [1, 2])
def test_rows_that_do_not_fit_together_run_one_after_the_other(
    plain: Engine, tmp_path: Path, rows: int, prefix_bytes: int | None
) -> None:
    """Enough for `rows` whole rows, while four want to run, and each grows until it is in the way."""
    engine = start(tmp_path, plain.kind, cache_bytes=rows * room(plain, 80), prefix_bytes=prefix_bytes)
    asked = [request(n, 20 + 9 * n, 30) for n in range(4)]
    wanted = [answer(plain, one) for one in asked]
    assert answers(engine, asked) == wanted
    engine.close()


@pytest.mark.parametrize("plain", ["llama"], indirect=True)  # windows and folds do not grow
def test_only_a_row_that_has_all_memory_for_itself_fails(plain: Engine, tmp_path: Path) -> None:
    engine = start(tmp_path, cache_bytes=room(plain, 100))
    small, large = request(1, 30, 40), request(2, 150, 4)
    running = engine.submit(small)
    with pytest.raises(CacheFull):
        answer(engine, large)
    assert ids_of(running) == answer(plain, small)
    assert answer(engine, small) == answer(plain, small)
    engine.close()


@pytest.mark.parametrize("plain", ["llama"], indirect=True)  # windows and folds do not grow
def test_without_any_limit_a_row_is_refused_before_the_machine_has_nothing_left(
    plain: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux would end the process. What is kept of earlier rows makes way for one that needs it."""
    spare, kept = 1 << 20, room(plain, 60)
    most = spare + kept + 2 * room(plain, 70)  # a layer is copied where it grows

    def available() -> int:
        return most - engine.activity.layer_bytes - engine.activity.prefix_bytes

    monkeypatch.setattr("runtime.device.available_bytes", available)
    engine = start(tmp_path, spare_bytes=spare, prefix_bytes=kept)
    small, large, other = request(1, 60, 30), request(2, 100, 140), request(3, 60, 30)
    assert answers(engine, [small, other]) == [answer(plain, small), answer(plain, other)]
    with pytest.raises(CacheFull) as refusal:
        answer(engine, large)
    assert refusal.value.wanted_bytes < most - spare
    assert answer(engine, small) == answer(plain, small)
    engine.close()


@pytest.mark.parametrize("plain", ["llama"], indirect=True)  # windows and folds do not grow
def test_a_prompt_that_never_fits_is_refused_before_any_of_it_is_read(
    plain: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(tmp_path, cache_bytes=room(plain, 100), prefix_bytes=room(plain, 60))
    small, read = request(1, 60, 30), list[int]()
    wanted = answer(plain, small)
    running = engine.submit(small)
    run = Steps.run
    monkeypatch.setattr(Steps, "run", lambda self, prefill: (read.append(prefill), run(self, prefill))[1])
    with pytest.raises(CacheFull) as refusal:
        answer(engine, request(2, 170, 4))
    assert refusal.value.wanted_bytes == room(plain, 170)
    assert ids_of(running) == wanted
    assert sum(read) <= 60
    assert answer(engine, request(3, 150, 4))
    engine.close()


@pytest.mark.parametrize("plain", ["llama"], indirect=True)  # others claim anew what every row begins with
def test_what_is_held_serves_rows_also_under_a_limit_below_it(plain: Engine, tmp_path: Path) -> None:
    engine = start(tmp_path)
    small = request(1, 60, 30)
    assert answer(engine, small) == answer(plain, small)
    engine.limit_layers(3)
    assert answer(engine, small) == answer(plain, small)
    engine.close()


@pytest.mark.parametrize("by_pages", [True, False])
@pytest.mark.parametrize("plain", ["llama"], indirect=True)  # windows and folds do not grow
def test_what_is_kept_of_earlier_rows_makes_room_for_one_that_needs_it_and_gets_it_back(
    plain: Engine, by_pages: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not by_pages:  # as on a GPU: a row's buffer is as long as the longest that it had
        monkeypatch.setattr(native, "by_pages", lambda: False)
    own, kept = room(plain, 100), room(plain, 300)
    engine = start(tmp_path, cache_bytes=own, prefix_bytes=kept)
    small, large = request(1, 30, 40), request(2, 150, 40)
    assert answer(engine, small) == answer(plain, small)
    assert answer(engine, large) == answer(plain, large)
    wait_until(lambda: engine.activity.prefix_limit_bytes == kept)
    assert answer(engine, small) == answer(plain, small)
    engine.limit_layers(own // 2)
    engine.limit_prefixes(0)
    with pytest.raises(CacheFull):
        answer(engine, large)
    engine.close()


@pytest.mark.parametrize("plain", ["llama"], indirect=True)  # windows and folds do not grow
def test_who_waits_for_memory_keeps_its_turn_and_can_be_cancelled(plain: Engine, tmp_path: Path) -> None:
    engine = start(tmp_path, cache_bytes=room(plain, 130))
    asked = [request(n, 60, 60) for n in range(4)]
    ended: list[int] = []
    streams = [engine.submit(one) for one in asked]
    next(iter_of := iter(streams[0]))

    def follow(number: int) -> None:
        list(streams[number])
        ended.append(number)

    streams[2].close()
    threads = [threading.Thread(target=follow, args=(n,)) for n in (1, 3)]
    for thread in threads:
        thread.start()
    list(iter_of)
    for thread in threads:
        thread.join()
    assert [stream.finish.reason for stream in streams if stream.finish] == [
        "length",
        "length",
        "cancelled",
        "length",
    ]
    assert ended == [1, 3]
    engine.close()


@pytest.mark.parametrize("plain", ["llama"], indirect=True)  # windows and folds do not grow
def test_a_waiting_row_does_not_keep_the_engine_busy(
    plain: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(tmp_path, cache_bytes=room(plain, 130))
    tries: list[int] = []
    original = engine._loop._places.open  # pyright: ignore[reportPrivateUsage] -- how often it is tried is the claim
    monkeypatch.setattr(engine._loop._places, "open", lambda row: (tries.append(1), original(row)))  # pyright: ignore
    streams = [engine.submit(request(n, 60, 60)) for n in range(3)]
    for stream in streams:
        list(stream)
    assert len(tries) <= 8  # each row when it comes, and when another has ended or stepped aside
    engine.close()


def test_a_draft_gives_way_and_comes_back(
    plain: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row fails or waits for the sake of a guess."""
    always_drafting(monkeypatch, range(1, 7))  # behind a depth of 0 nobody is asked for a while
    made: list[ModelDrafter] = []

    def drafters(model: LoadedModel, memory: LayerMemory) -> dict[str, Drafter]:
        made.append(ModelDrafter(Reference(plain.kind).load(tmp_path / "draft"), budget=memory.budget))
        return {"draft": made[0]}

    engine = start(tmp_path, plain.kind, drafters, cache_bytes=int(1.4 * room(plain, 160)), max_rows=1)
    for length, count in ((20, 20), (90, 60), (20, 20)):
        one = request(length, length, count)
        stream = engine.submit(one)
        assert ids_of(stream) == answer(plain, one)
        assert stream.finish is not None
        if length == 20:
            assert stream.finish.usage.drafted_tokens > 0
        for _ in range(2):  # drafts come back at a turn with nothing to do, and one is between two calls
            engine.call(lambda _model: None)
    engine.close()
    assert made[0].memory.budget.held_bytes <= int(1.4 * room(plain, 160))


@pytest.mark.parametrize("kind", ["mamba2", "qwen3_5"])
@pytest.mark.parametrize("more", [0, 1 << 20], ids=["never", "later"])
def test_a_draft_that_has_no_room_at_the_start_rests(
    plain: Engine, tmp_path: Path, kind: str, more: int
) -> None:
    """A fold takes the room of a row with its place, before there is a token."""
    made: list[ModelDrafter] = []

    def drafters(model: LoadedModel, memory: LayerMemory) -> dict[str, Drafter]:
        budget, limit = memory.budget, memory.budget.limit_bytes
        budget.limit_bytes = budget.held_bytes
        made.append(ModelDrafter(Reference(kind).load(tmp_path / "draft"), budget=budget))
        assert (made[0].memory.rows, made[0].memory.nbytes) == (0, 0)
        budget.limit_bytes = limit
        return {"draft": made[0]}

    limit = room(plain, 100) + more
    engine = start(tmp_path, plain.kind, drafters, cache_bytes=limit, max_rows=1)
    one = request(3, 20, 60)
    assert answer(engine, one) == answer(plain, one)
    for _ in range(2):
        engine.call(lambda _model: None)
    assert bool(made[0].memory.rows) or not more
    engine.close()


def test_many_rows_behind_a_long_one_take_what_they_need(tmp_path: Path) -> None:
    engine = start(tmp_path, context_length=1200, budget_tokens=512, max_rows=8)
    short = [request(n, 20, 20) for n in range(8)]

    def run() -> int:
        streams = [engine.submit(one) for one in short]
        most = 0
        for stream in streams:
            for _ in stream:
                most = max(most, engine.activity.layer_bytes)
        return most

    before = run()
    answer(engine, request(9, 1100, 4))
    long = engine.activity.layer_bytes
    assert long <= room(engine, 1100 + 512)  # its own, and none for the rows that were there before
    assert run() <= before
    wait_until(lambda: engine.activity.layer_bytes <= room(engine, 256))  # the engine rests
    engine.close()


def test_a_long_prompt_beside_short_answers_is_read_at_once(tmp_path: Path) -> None:
    """The budget has room for what all of them write, and not for eight rows as long as the longest."""
    if not native.by_pages():
        pytest.skip("here every row takes as much as the longest")
    engine = start(tmp_path, context_length=1200, budget_tokens=512, max_rows=8)
    wanted = [answer(engine, one) for one in (request(9, 1000, 4), request(1, 20, 150))]
    limit = room(engine, 1024) + 7 * room(engine, 256)
    engine.close()
    engine = start(tmp_path, context_length=1200, budget_tokens=512, max_rows=8, cache_bytes=limit)
    short = [engine.submit(request(n, 20, 150)) for n in range(1, 8)]
    assert answer(engine, request(9, 1000, 4)) == wanted[0]
    assert not any(stream.finish for stream in short)
    assert ids_of(short[0]) == wanted[1]
    for stream in short:
        list(stream)
    engine.close()
