"""The engine on a tiny llama: what a request gets does not depend on who else is there."""

import threading
from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import pytest

from runtime.engine.engine import Engine, Options
from runtime.engine.request import Delta, Request
from runtime.engine.thread import ThreadEnded
from runtime.errors import BadTokenIds
from runtime.loaded import LoadedModel
from runtime.sampling.params import SamplingParams
from tests.support.engines import GREEDY, answer, answers, ids_of, prompt, start
from tests.support.parity import Reference
from tests.support.standing import standing

WARM = SamplingParams(temperature=0.9, top_k=20, repeat_penalty=1.2, seed=11)


@pytest.fixture(scope="module", params=["llama", "mistral_window"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    running = start(tmp_path_factory.mktemp("model"), request.param)
    yield running
    running.close()


def request(seed: int, *, length: int = 20, count: int = 24, sampling: SamplingParams = GREEDY) -> Request:
    ids = prompt(seed, length)
    return Request(ids, count, sampling)


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "warm"])
def test_a_batch_gives_what_single_runs_give(engine: Engine, sampling: SamplingParams) -> None:
    requests = [request(n, length=5 + 13 * n, count=10 + 5 * n, sampling=sampling) for n in range(7)]
    alone = [answer(engine, one) for one in requests]
    assert answers(engine, requests) == alone


def test_the_size_of_steps_changes_nothing(tmp_path: Path) -> None:
    one = request(3, length=50)
    got = []
    for budget in (1, 7, 64):
        engine = start(tmp_path, budget_tokens=budget)
        got.append(answer(engine, one))
        engine.close()
    assert got[0] == got[1] == got[2]


def test_a_stop_id_ends_the_text_and_is_not_part_of_it(engine: Engine) -> None:
    whole = answer(engine, request(1))
    place = next(i for i, token in enumerate(whole) if token not in whole[:i] and i > 2)
    stream = engine.submit(Request(request(1).ids, 24, GREEDY, frozenset({whole[place]})))
    assert ids_of(stream) == whole[:place]
    assert stream.finish is not None
    assert (stream.finish.reason, stream.finish.stop_id) == ("stop", whole[place])


def test_usage_counts(engine: Engine) -> None:
    stream = engine.submit(request(2, length=40, count=9))
    list(stream)
    assert stream.finish is not None
    usage = stream.finish.usage
    assert (stream.finish.reason, usage.prompt_tokens, usage.generated_tokens) == ("length", 40, 9)
    assert usage.wait_s >= 0
    assert usage.prefill_s > 0
    assert usage.decode_s > 0


def test_no_tokens_wanted(engine: Engine) -> None:
    stream = engine.submit(request(2, count=0))
    assert list(stream) == []
    assert stream.finish is not None
    assert stream.finish.reason == "length"


def test_logprobs_are_of_the_raw_distribution(engine: Engine) -> None:
    plain = answer(engine, request(4))
    stream = engine.submit(Request(request(4).ids, 24, GREEDY, top_logprobs=3))
    deltas: list[Delta] = list(stream)
    assert [delta.ids[0] for delta in deltas] == plain
    for delta in deltas:
        best = delta.logprobs[0]
        assert best.id == delta.ids[0] == best.top[0][0]
        assert best.logprob == pytest.approx(best.top[0][1], abs=1e-5)
        assert best.logprob >= best.top[1][1] >= best.top[2][1]


def test_who_is_told_more_changes_nobodys_equally_likely_tokens(tmp_path: Path) -> None:
    def equal() -> LoadedModel:
        model = Reference("llama").load(tmp_path)
        model.network.lm_head.weight = mx.zeros_like(model.network.lm_head.weight)
        return model

    engine = Engine(equal, Options(context_length=256))
    asked = [Request(request(n).ids, 8, GREEDY, top_logprobs=count) for n, count in ((1, 3), (2, 20))]
    alone = [list(engine.submit(one)) for one in asked]
    streams = [engine.submit(one) for one in asked]
    told = [[one.logprobs for one in stream] for stream in streams]
    engine.close()
    assert told == [[one.logprobs for one in deltas] for deltas in alone]


def test_leaving_a_stream_cancels_it(engine: Engine) -> None:
    with standing(engine), engine.submit(request(5, count=200)) as stream:
        next(iter(stream))
    assert stream.finish is not None
    assert stream.finish.reason == "cancelled"
    assert stream.finish.usage.generated_tokens < 200


def test_cancelling_does_not_disturb_the_others(engine: Engine) -> None:
    alone = answer(engine, request(6, count=60))
    streams = [engine.submit(request(n, count=200)) for n in (1, 6, 2)]
    wanted = engine.submit(request(6, count=60))
    got: list[int] = []
    for delta in wanted:
        got.extend(delta.ids)
        if len(got) == 5:
            streams[0].close()
        if len(got) == 20:
            streams[2].close()
    streams[1].close()
    assert got == alone


def test_requests_from_several_threads(engine: Engine) -> None:
    alone = [answer(engine, request(n)) for n in range(6)]
    got: dict[int, list[int]] = {}
    threads = [
        threading.Thread(target=lambda n=n: got.__setitem__(n, answer(engine, request(n)))) for n in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [got[n] for n in range(6)] == alone


@pytest.mark.parametrize("ids", [(160,), (-1,), (3, 99_999_999), (2**63,)])
def test_ids_outside_the_vocabulary_are_refused(engine: Engine, ids: tuple[int, ...]) -> None:
    with pytest.raises(BadTokenIds):
        engine.submit(Request(ids, 1, GREEDY))
    assert len(answer(engine, request(1, count=3))) == 3


def test_a_bias_outside_the_vocabulary_is_refused(engine: Engine) -> None:
    with pytest.raises(BadTokenIds):
        engine.submit(Request((5,), 1, SamplingParams(logit_bias={99_999_999: 1.0})))


def test_more_than_the_context_is_refused(engine: Engine) -> None:
    with pytest.raises(ValueError, match="context of 256"):
        engine.submit(request(1, length=250, count=7))


def test_a_failing_step_fails_its_requests_and_no_later_one(tmp_path: Path) -> None:
    engine = start(tmp_path)
    network = engine.model.network
    broken = threading.Event()
    original = type(network).logits

    def logits(self: object, hidden: object, step: object) -> object:
        if broken.is_set():
            raise RuntimeError("the device is gone")
        return original(self, hidden)

    type(network).logits = logits
    try:
        broken.set()
        with pytest.raises(RuntimeError, match="device is gone"):
            answer(engine, request(1))
        broken.clear()
        assert len(answer(engine, request(1))) == 24
    finally:
        type(network).logits = original
        engine.close()


def test_loading_that_fails_raises_here(tmp_path: Path) -> None:
    def load() -> LoadedModel:
        raise OSError("no such file")

    with pytest.raises(OSError, match="no such file"):
        Engine(load, Options(context_length=16))


def test_closing_ends_what_runs(tmp_path: Path) -> None:
    engine = start(tmp_path)
    with standing(engine):
        stream = engine.submit(request(1, count=230))
        engine.close()
    list(stream)
    assert stream.finish is not None
    assert stream.finish.reason == "cancelled"
    assert stream.finish.usage.generated_tokens < 230


def test_closing_twice_and_leaving_a_stream_afterwards(tmp_path: Path) -> None:
    engine = start(tmp_path)
    with standing(engine), engine.submit(request(1, count=230)) as stream:
        next(iter(stream))
        engine.close()
        engine.close()
    assert stream.close().reason == "cancelled"


def test_a_closed_engine_refuses_at_once(tmp_path: Path) -> None:
    engine = start(tmp_path)
    engine.close()
    for attempt in (lambda: engine.submit(request(1)), engine.list_prefixes, lambda: engine.call(id)):
        with pytest.raises(ThreadEnded, match="closed"):
            attempt()


def test_a_row_that_cannot_begin_gets_the_error_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(tmp_path)
    wanted = answer(engine, request(2))
    broken = [OSError("no such disk")]

    def begin(*_: object) -> None:
        if broken:
            raise broken.pop()

    monkeypatch.setattr(engine._loop._prefixes, "begin", begin)
    first, second = engine.submit(request(1)), engine.submit(request(2))
    with pytest.raises(OSError, match="no such disk"):
        list(first)
    assert ids_of(second) == wanted
    engine.close()


def test_when_the_thread_cannot_go_on_every_stream_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error while the last one is being cleared away: nothing is in order any more."""
    engine = start(tmp_path, max_rows=1)

    def fails(*_: object) -> None:
        raise MemoryError("beyond repair")

    monkeypatch.setattr(engine._loop._places, "reset", fails)
    monkeypatch.setattr(engine._loop, "_step", fails)
    running, waiting = (engine.submit(request(n, count=100)) for n in (1, 2))
    for stream in (running, waiting):
        with pytest.raises(MemoryError, match="beyond repair"):
            list(stream)
    with pytest.raises(ThreadEnded, match="beyond repair"):
        engine.submit(request(1))
    engine.close()
