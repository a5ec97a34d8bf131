"""Speculation never shows: whatever is proposed, by whom and how far, tokens are those of plain decoding."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from runtime.cache.build import LayerMemory
from runtime.engine.engine import Engine, Options
from runtime.engine.request import Request, Usage
from runtime.loaded import LoadedModel
from runtime.sampling.params import SamplingParams
from runtime.speculate.depth import DepthController
from runtime.speculate.draft_model import ModelDrafter
from runtime.speculate.drafter import Drafter, Proposal, Rows
from runtime.speculate.ngram import NgramDrafter
from runtime.step import Step
from tests.support.parity import Reference

GREEDY = SamplingParams(temperature=0)
WARM = SamplingParams(temperature=1.0, top_k=30, repeat_penalty=1.3, presence_penalty=0.2, seed=5)


class Scripted:
    """Proposes what a function of the ids says; knows nothing and keeps nothing."""

    limit = 7

    def __init__(self, guess: Callable[[list[int], int], list[int]]) -> None:
        self.guess = guess

    def begin(self, row: int, ids: Sequence[int]) -> None: ...
    def end(self, row: int, ids: Sequence[int]) -> None: ...
    def observe(self, step: Step, tokens: mx.array, hidden: mx.array, kept: Sequence[int]) -> None: ...
    def settle(self, lengths: Sequence[int]) -> None: ...
    def move(self, src: int, dst: int) -> None: ...
    def clear(self, row: int) -> None: ...
    def resize(self, rows: int) -> None: ...

    def propose(self, rows: Rows, depth: int) -> Proposal | None:
        guesses = [self.guess(list(ids), depth) for ids in rows.ids]
        padded = [list(guess) + [0] * (depth - len(guess)) for guess in guesses]
        return Proposal(mx.array(padded, dtype=mx.int32), tuple(len(guess) for guess in guesses))


def noise(ids: list[int], depth: int) -> list[int]:
    rng = np.random.default_rng(sum(ids))
    return [int(token) for token in rng.integers(3, 150, rng.integers(0, depth + 1))]


@pytest.fixture(autouse=True)
def _always_drafting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Depths 0 to 6 in turn, whatever pays."""
    turn = iter(range(10**9))
    monkeypatch.setattr(DepthController, "choose", lambda self: next(turn) % 7)
    monkeypatch.setattr(DepthController, "next_depth", lambda self: 1)


def start(folder: Path, entry: str, drafters: dict[str, Drafter] | str | None = None) -> Engine:
    def make(model: LoadedModel, memory: LayerMemory) -> dict[str, Drafter]:
        if isinstance(drafters, str):
            return {"model": ModelDrafter(Reference(drafters).load(folder / "draft"))}
        return drafters or {}

    options = Options(context_length=256, budget_tokens=16, max_rows=4)
    return Engine(lambda: Reference(entry).load(folder / "target"), options, make)


def request(number: int, sampling: SamplingParams, count: int = 40) -> Request:
    ids = tuple((number * 7 + i * i + 3) % 150 + 3 for i in range(6 + 9 * number))
    return Request(ids, count, sampling, frozenset({number * 11 + 4}), top_logprobs=2 if number % 2 else None)


def run(engine: Engine, requests: list[Request], together: bool) -> tuple[list[list[int]], list[Usage]]:
    if together:
        streams = [engine.submit(one) for one in requests]
        out = [[token for delta in stream for token in delta.ids] for stream in streams]
    else:
        streams, out = [], []
        for one in requests:
            streams.append(engine.submit(one))
            out.append([token for delta in streams[-1] for token in delta.ids])
    return out, [stream.finish.usage for stream in streams if stream.finish]


@pytest.fixture(scope="module", params=["llama", "mistral_window", "mamba2"])
def plain(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Engine]]:
    if request.param not in Reference.names():
        pytest.skip("no such reference yet")
    engine = start(tmp_path_factory.mktemp("plain"), request.param)
    yield request.param, engine
    engine.close()


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "warm"])
@pytest.mark.parametrize("together", [False, True], ids=["alone", "together"])
@pytest.mark.parametrize("kind", ["noise", "ngram", "itself", "other"])
def test_the_tokens_are_those_of_plain_decoding(
    plain: tuple[str, Engine], tmp_path: Path, kind: str, together: bool, sampling: SamplingParams
) -> None:
    entry, engine = plain
    requests = [request(number, sampling) for number in range(5)]
    wanted, _ = run(engine, requests, together=False)
    drafters: dict[str, dict[str, Drafter] | str] = {
        "noise": {"noise": Scripted(noise)},
        "ngram": {"ngram": NgramDrafter(shortest=1)},
        "itself": entry,
        "other": "qwen2",
    }
    speculating = start(tmp_path, entry, drafters[kind])
    got, usages = run(speculating, requests, together)
    speculating.close()
    assert got == wanted
    drafted, accepted = sum(u.drafted_tokens for u in usages), sum(u.accepted_tokens for u in usages)
    assert drafted > 0 or kind == "ngram"
    if kind == "itself":
        assert accepted > 0.9 * drafted


def test_a_draft_limit_of_zero_is_plain_decoding(tmp_path: Path) -> None:
    engine = start(tmp_path, "llama", {"noise": Scripted(noise)})
    stream = engine.submit(Request((5, 6, 7), 20, GREEDY, draft_tokens=0))
    list(stream)
    engine.close()
    assert stream.finish is not None
    assert stream.finish.usage.drafted_tokens == 0


def test_logprobs_are_those_of_plain_decoding(plain: tuple[str, Engine], tmp_path: Path) -> None:
    entry, engine = plain
    one = Request((9, 8, 7, 6), 30, WARM, top_logprobs=2)
    wanted = [detail for delta in engine.submit(one) for detail in delta.logprobs]
    speculating = start(tmp_path, entry, entry)
    got = [detail for delta in speculating.submit(one) for detail in delta.logprobs]
    speculating.close()
    assert [detail.id for detail in got] == [detail.id for detail in wanted]
    for ours, theirs in zip(got, wanted, strict=True):
        assert ours.logprob == pytest.approx(theirs.logprob, abs=1e-4)
        assert [top[0] for top in ours.top] == [top[0] for top in theirs.top]
