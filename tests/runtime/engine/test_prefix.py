"""Prefixes in the engine: the tokens are those of a fresh run, and what is computed again is bounded."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime.cache.memory import LayerMemory
from runtime.cache.page_folder import PrefixFolder
from runtime.cache.restore import Restoring
from runtime.engine.engine import Engine
from runtime.engine.loop import Loop
from runtime.engine.pace import Pace
from runtime.engine.request import Finish, Request
from runtime.engine.stream import Stream
from runtime.loaded import LoadedModel
from runtime.sampling.params import SamplingParams
from runtime.speculate.draft_model import ModelDrafter
from runtime.speculate.drafter import Drafter
from runtime.speculate.ngram import NgramDrafter
from tests.support.drafting import always_drafting
from tests.support.engines import GREEDY, answers, finished, ids_of, run, start
from tests.support.invariants import check_tree
from tests.support.parity import Reference

WARM = SamplingParams(temperature=0.8, top_k=25, repeat_penalty=1.1, seed=3)
ROOMY = 1 << 30
# Full, rotating, a fold, folds beside full attention, and layers that share beside both kinds of attention.
KINDS = ["llama", "mistral_window", "mamba2", "qwen3_5", "gemma4_text"]
SYSTEM = tuple(range(20, 50))
END, ASK = (7,), (5, 6)


def begin(folder: Path, entry: str, prefix_bytes: int | None = ROOMY, **more: Any) -> Engine:
    return start(folder, entry, prefix_bytes=prefix_bytes, max_rows=3, mark_spacing=1, **more)


def ask(engine: Engine, request: Request) -> tuple[list[int], Finish]:
    answered = finished(engine, request)
    check(engine)
    return answered


def check(engine: Engine) -> None:
    store = engine._loop._prefixes.store
    if store is not None:
        engine.call(lambda _model: check_tree(store))


@dataclass
class Chat:
    """A conversation in ids: what is said is followed by END, an answer is asked for by ASK."""

    said: tuple[int, ...] = SYSTEM + END
    marks: tuple[int, ...] = (len(SYSTEM + END),)

    def user(self, *ids: int) -> "Chat":
        said = self.said + ids + END
        return Chat(said, (*self.marks, len(said)))

    def request(self, count: int = 12, sampling: SamplingParams = GREEDY) -> Request:
        return Request((*self.said, *ASK), count, sampling, marks=self.marks)

    def answered(self, ids: Sequence[int]) -> "Chat":
        said = (*self.said, *ASK, *ids, *END)
        return Chat(said, (*self.marks, len(said)))


@dataclass
class Pair:
    """The engine under test, and one that never remembers anything."""

    kind: str
    stored: Engine
    plain: Engine

    def ask(self, chat: Chat, count: int = 12) -> tuple[list[int], int]:
        """The answer, checked against the plain engine, and how many prompt tokens were computed for it."""
        request = chat.request(count)
        tokens, finish = ask(self.stored, request)
        assert tokens == ask(self.plain, request)[0]
        assert finish.usage.prompt_tokens == len(request.ids)
        return tokens, finish.usage.prompt_tokens - finish.usage.cached_tokens


@pytest.fixture(scope="module", params=KINDS)
def engines(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("models")
    pair = Pair(request.param, begin(folder, request.param), begin(folder, request.param, None))
    yield pair
    pair.stored.close()
    pair.plain.close()


@pytest.fixture
def pair(engines: Pair) -> Pair:
    engines.stored.clear_prefixes()
    return engines


USER, OTHER = tuple(range(60, 72)), tuple(range(80, 90))
TURN = len(USER) + len(END) + len(ASK)


def test_the_second_turn_computes_what_is_new(pair: Pair) -> None:
    chat = Chat().user(*USER)
    answer, computed = pair.ask(chat)
    assert computed == len(SYSTEM) + len(END) + TURN
    _, computed = pair.ask(chat.answered(answer).user(*OTHER))
    # The last token of the answer was never fed back, so it counts as new.
    assert computed == 1 + len(END) + len(OTHER) + len(END) + len(ASK)


def test_stripped_thinking_costs_the_answer_and_no_more(pair: Pair) -> None:
    chat = Chat().user(*USER)
    thoughts, _ = pair.ask(chat, 30)
    stripped = chat.answered(thoughts[20:])
    _, computed = pair.ask(stripped.user(*OTHER))
    new = len(ASK) + len(thoughts[20:]) + len(END) + len(OTHER) + len(END) + len(ASK)
    assert computed <= new


def test_an_edited_message_costs_the_message(pair: Pair) -> None:
    pair.ask(Chat().user(*USER))
    _, computed = pair.ask(Chat().user(*OTHER))
    assert computed == len(OTHER) + len(END) + len(ASK)


def test_a_message_edited_in_its_middle_costs_at_most_the_message(pair: Pair) -> None:
    edited = (*USER[:6], 99, *USER[7:])
    pair.ask(Chat().user(*USER))
    _, computed = pair.ask(Chat().user(*edited))
    assert computed == TURN - 6 if pair.kind == "llama" else computed <= TURN
    # The branch was marked, so that the next change at the same place is cheaper.
    _, computed = pair.ask(Chat().user(*USER[:6], 98, *USER[7:]))
    assert computed == TURN - 6


def test_an_answer_wanted_again_costs_almost_nothing(pair: Pair) -> None:
    chat = Chat().user(*USER)
    first, _ = pair.ask(chat)
    again, computed = pair.ask(chat)
    assert again == first
    assert computed == 1 if pair.kind == "llama" else computed <= len(ASK)


def test_a_prompt_without_marks_is_paged_near_its_end(pair: Pair) -> None:
    request = Request(tuple(range(3, 90)), 4, GREEDY)
    ask(pair.stored, request)
    _, finish = ask(pair.stored, request)
    assert finish.usage.cached_tokens == 86


def test_many_conversations_read_the_system_part_once(pair: Pair) -> None:
    requests = [Chat().user(100 + n, *USER).request() for n in range(8)]
    wanted = [ask(pair.plain, request)[0] for request in requests]
    texts, finishes = run(pair.stored, requests)
    assert texts == wanted
    computed = [finish.usage.prompt_tokens - finish.usage.cached_tokens for finish in finishes]
    assert computed == [len(requests[0].ids)] + [1 + TURN] * 7
    check(pair.stored)


@pytest.mark.parametrize("limit", [ROOMY, None, 4000], ids=["kept", "nothing kept", "too little kept"])
@pytest.mark.parametrize("kind", ["llama", "qwen3_5"])
def test_several_answers_read_their_prompt_once(tmp_path: Path, kind: str, limit: int | None) -> None:
    prompt = tuple(range(3, 90))
    requests = [Request(prompt, 6, replace(WARM, seed=seed)) for seed in range(3)]
    with closing(begin(tmp_path, kind, None)) as plain, closing(begin(tmp_path, kind, limit)) as engine:
        alone = [ask(plain, request)[0] for request in requests]
        texts, finishes = run(engine, requests)
        assert texts == alone
        read = [one.usage.prompt_tokens - one.usage.cached_tokens for one in finishes]
    if kind == "llama" or limit == ROOMY:  # a fold that nobody keeps is not known a token earlier
        assert read == [len(prompt), 1, 1]


@pytest.mark.parametrize("limit", [ROOMY, None, 4000], ids=["kept", "nothing kept", "too little kept"])
def test_a_prompt_goes_on_from_one_that_was_just_read(tmp_path: Path, limit: int | None) -> None:
    requests = [Request(tuple(range(3, stop)), 6, GREEDY) for stop in (40, 60)]
    with closing(begin(tmp_path, "llama", None)) as plain, closing(begin(tmp_path, "llama", limit)) as engine:
        alone = [ask(plain, request)[0] for request in requests]
        assert answers(engine, requests) == alone


def test_a_stop_token_is_part_of_what_is_kept(pair: Pair) -> None:
    chat = Chat().user(*USER)
    free, _ = ask(pair.plain, chat.request(20, WARM))
    place = next(i for i, token in enumerate(free) if token not in free[:i] and i >= 3)
    request = Request(chat.request().ids, 20, WARM, frozenset({free[place]}), marks=chat.marks)
    answer, finish = ask(pair.stored, request)
    assert finish.stop_id == free[place]
    following = Request((*request.ids, *answer, free[place], 9, 8), 6, GREEDY)
    tokens, finish = ask(pair.stored, following)
    assert tokens == ask(pair.plain, following)[0]
    assert len(following.ids) - finish.usage.cached_tokens == 2


def cancel_at(engine: Engine, stream: Stream, least: int) -> None:
    """Once the row being prefilled has read `least` tokens, between two steps."""

    def step() -> None:
        while (row := engine._loop._places.prefilling) is None or row.length < least:
            engine._loop.work()
        stream.cancel()

    engine.call(lambda _model: step())


def test_a_cancelled_prefill_keeps_what_it_computed(tmp_path: Path, pair: Pair) -> None:
    slow = begin(tmp_path, pair.kind, budget_tokens=2)
    request = Request(tuple(range(3, 150)), 4, GREEDY)
    stream = slow.submit(request)
    cancel_at(slow, stream, 40)
    stream.close()
    tokens, finish = ask(slow, request)
    assert 40 <= finish.usage.cached_tokens < 147
    assert tokens == ask(pair.plain, request)[0]
    slow.close()


def test_leaving_a_stream_keeps_what_was_generated(pair: Pair) -> None:
    request = Request(SYSTEM, 60, GREEDY)
    got: list[int] = []
    with pair.stored.submit(request) as stream:
        for delta in stream:
            got.extend(delta.ids)
            if len(got) == 10:
                break
    assert ask(pair.plain, request)[0][:10] == got
    following = Request((*SYSTEM, *got, 9), 4, GREEDY)
    tokens, finish = ask(pair.stored, following)
    assert tokens == ask(pair.plain, following)[0]
    if pair.kind == "llama":
        assert finish.usage.cached_tokens == len(following.ids) - 1


def test_without_a_store_nothing_is_cached(pair: Pair) -> None:
    request = Chat().user(*USER).request()
    ask(pair.plain, request)
    assert ask(pair.plain, request)[1].usage.cached_tokens == 0


def test_the_store_can_be_listed_and_cleared(pair: Pair) -> None:
    pair.ask(Chat().user(*USER))
    entries = pair.stored.list_prefixes()
    assert sum(entry.nbytes for entry in entries) > 0
    assert entries[0].keys[:3] == SYSTEM[:3]
    assert all(entry.pins == 0 for entry in entries)
    pair.stored.clear_prefixes()
    assert pair.stored.list_prefixes() == []


@dataclass
class Timeline:
    """Random conversations that branch, stop and are left, several at once; every answer is compared."""

    rng: np.random.Generator
    plain: Engine
    stored: Engine
    history: list[tuple[int, ...]] = field(default_factory=lambda: [()])
    cached: int = 0

    def turn(self) -> None:
        requests = [self.request() for _ in range(int(self.rng.integers(1, 5)))]
        leave = [int(self.rng.integers(1, 8)) if self.rng.random() < 0.3 else None for _ in requests]
        wanted = [ask(self.plain, request)[0] for request in requests]
        streams = [self.stored.submit(request) for request in requests]
        for request, stream, least, whole in zip(requests, streams, leave, wanted, strict=True):
            got: list[int] = []
            with stream:
                for delta in stream:
                    got.extend(delta.ids)
                    if least is not None and len(got) >= least:
                        break
            assert got == whole[: len(got)]
            assert stream.finish is not None
            assert least is not None or got == whole
            self.cached += stream.finish.usage.cached_tokens
            self.history.append((*request.ids, *got))
        check(self.stored)

    def request(self) -> Request:
        past = self.history[int(self.rng.integers(len(self.history)))]
        past = past[: int(self.rng.integers(len(past) + 1))] if self.rng.random() < 0.5 else past
        fresh = tuple(int(token) for token in self.rng.integers(3, 7, self.rng.integers(1, 25)))
        ids = (past + fresh)[:200]
        marks = tuple(sorted(int(mark) for mark in self.rng.integers(0, 220, self.rng.integers(0, 5))))
        sampling = WARM if self.rng.random() < 0.5 else GREEDY
        stops = frozenset({int(self.rng.integers(3, 160))})
        return Request(ids, int(self.rng.integers(1, 25)), sampling, stops, marks=marks)


def conversation_bytes(engine: Engine) -> int:
    """About what one conversation of 30 tokens takes."""
    ask(engine, Request(tuple(range(3, 33)), 1, GREEDY))
    size = sum(entry.nbytes for entry in engine.list_prefixes())
    engine.clear_prefixes()
    return size


def test_random_timelines(pair: Pair) -> None:
    timeline = Timeline(np.random.default_rng(5), pair.plain, pair.stored)
    for _ in range(4):
        timeline.turn()
    assert timeline.cached > 0


def test_random_timelines_with_evictions(pair: Pair, tmp_path: Path) -> None:
    engine = begin(tmp_path, pair.kind, 3 * conversation_bytes(pair.stored))
    timeline = Timeline(np.random.default_rng(6), pair.plain, engine)
    for _ in range(4):
        timeline.turn()
    engine.close()
    assert timeline.cached > 0


def test_random_timelines_with_restarts(pair: Pair, tmp_path: Path) -> None:
    size = conversation_bytes(pair.stored)
    folder = PrefixFolder(tmp_path / "pages", "sha256:aa", 60 * size)
    timeline = Timeline(np.random.default_rng(7), pair.plain, pair.stored)
    for _ in range(3):
        timeline.stored = begin(tmp_path, pair.kind, 5 * size, prefix_folder=folder)
        timeline.turn()
        timeline.stored.close()
    assert timeline.cached > 0


@pytest.mark.parametrize("kind", ["ngram", "itself"])
def test_random_timelines_with_speculation(
    pair: Pair, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    always_drafting(monkeypatch, range(5))

    def drafters(_model: LoadedModel, _memory: LayerMemory) -> dict[str, Drafter]:
        if kind == "ngram":
            return {"ngram": NgramDrafter(shortest=1)}
        return {"model": ModelDrafter(Reference(pair.kind).load(tmp_path / "draft"))}

    engine = begin(tmp_path, pair.kind, drafters=drafters)
    timeline = Timeline(np.random.default_rng(8), pair.plain, engine)
    for _ in range(3):
        timeline.turn()
    assert timeline.cached > 0
    engine.close()


@pytest.mark.parametrize("kind", KINDS)
def test_others_write_while_a_row_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A layer at a time, and at another place whenever one of them ends."""
    request, work = Request((*SYSTEM, *ASK), 9, GREEDY), Loop.work
    others = [Request((3, 4), 20 + count, GREEDY) for count in range(5)]
    again, moved, written = list[Stream](), list[int](), list[int]()

    def watched(loop: Loop) -> bool:
        rows = list(loop._places.decoding)
        if len(again) < 3 and any(row.generated == 15 + 2 * len(again) for row in rows[:1]):
            again.append(engine.submit(request))
        before = sum(row.length for row in rows)
        busy = work(loop)
        if loop._places.restoring:
            moved.append(len(rows) - len(loop._places.decoding))
            written.append(sum(row.length for row in rows) - before)
        return busy

    monkeypatch.setattr(Loop, "work", watched)
    monkeypatch.setattr(Pace, "gap_s", 0.0)
    with closing(start(tmp_path, kind, prefix_bytes=ROOMY, max_rows=8, mark_spacing=1)) as engine:
        wanted, alone = ask(engine, request)[0], ask(engine, others[-1])[0]
        again.clear()
        streams = engine.call(lambda _model: [engine.submit(other) for other in others])
        assert [ids_of(stream) for stream in streams] == [alone[: other.max_tokens] for other in others]
        assert [ids_of(stream) for stream in again] == [wanted] * 3
        assert all(stream.finish and stream.finish.usage.cached_tokens for stream in again)
    assert any(moved)
    assert any(written)


def test_where_nobody_writes_a_row_is_put_back_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layer by layer it takes longer."""
    request, by_layers = Request((*SYSTEM, *ASK), 2, GREEDY), list[int]()
    monkeypatch.setattr(Restoring, "go_on", lambda _self, row: by_layers.append(row))
    with closing(start(tmp_path, "llama", prefix_bytes=ROOMY, mark_spacing=1)) as engine:
        wanted, again = ask(engine, request)[0], engine.submit(request)
        assert ids_of(again) == wanted
        assert again.finish
        assert again.finish.usage.cached_tokens
    assert not by_layers


@pytest.mark.parametrize("prefix_bytes", [1, ROOMY])
def test_a_row_may_leave_while_it_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix_bytes: int
) -> None:
    """Where nothing more can be kept it begins as a copy of another, and its place holds none of that yet."""
    request, work = Request((*SYSTEM, *ASK), 20, GREEDY), Loop.work
    left = list[Stream]()

    def watched(loop: Loop) -> bool:
        if not left and any(row.generated == 5 for row in loop._places.decoding):
            left.append(engine.submit(replace(request, max_tokens=3)))
        busy = work(loop)
        if loop._places.restoring:
            left[0].cancel()
        return busy

    monkeypatch.setattr(Loop, "work", watched)
    monkeypatch.setattr(Pace, "gap_s", 0.0)
    with closing(start(tmp_path, "llama", prefix_bytes=prefix_bytes, max_rows=4)) as engine:
        stream = engine.submit(request)
        wanted = ids_of(stream)
        assert ids_of(left[0]) == []
        left.append(stream)  # so that nobody asks again
        assert ask(engine, request)[0] == wanted
