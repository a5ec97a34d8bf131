"""Speculation never shows: whatever is proposed, by whom and how far, tokens are those of plain decoding."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.cache.memory import LayerMemory
from runtime.engine.engine import Engine
from runtime.engine.request import Request
from runtime.loaded import LoadedModel
from runtime.sampling.params import SamplingParams
from runtime.speculate.draft_model import ModelDrafter
from runtime.speculate.drafter import Drafter
from runtime.speculate.ngram import NgramDrafter
from tests.support.drafting import Scripted, always_drafting, noise
from tests.support.engines import GREEDY, answer, prompt, run, start
from tests.support.parity import Reference

WARM = SamplingParams(temperature=1.0, top_k=30, repeat_penalty=1.3, presence_penalty=0.2, seed=5)

SHAPED = SamplingParams(
    temperature=0.8,
    top_n_sigma=3.0,
    dynatemp_range=0.5,
    xtc_probability=0.5,
    xtc_threshold=0.02,
    dry_multiplier=5.0,
    dry_allowed_length=1,
)


@pytest.fixture(autouse=True)
def _always_drafting(monkeypatch: pytest.MonkeyPatch) -> None:
    always_drafting(monkeypatch)


def begin(folder: Path, entry: str, drafters: dict[str, Drafter] | str | None = None) -> Engine:
    def make(model: LoadedModel, memory: LayerMemory) -> dict[str, Drafter]:
        if isinstance(drafters, str):
            return {"model": ModelDrafter(Reference(drafters).load(folder / "draft"))}
        return drafters or {}

    return start(folder / "target", entry, make)


def request(number: int, sampling: SamplingParams, count: int = 40) -> Request:
    ids = prompt(number, 6 + 9 * number)
    return Request(ids, count, sampling, frozenset({number * 11 + 4}), top_logprobs=2 if number % 2 else None)


@pytest.fixture(scope="module", params=["llama", "mistral_window", "mamba2"])
def plain(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Engine]]:
    engine = begin(tmp_path_factory.mktemp("plain"), request.param)
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
    wanted = [answer(engine, one) for one in requests]
    drafters: dict[str, dict[str, Drafter] | str] = {
        "noise": {"noise": Scripted(noise)},
        "ngram": {"ngram": NgramDrafter(shortest=1)},
        "itself": entry,
        "other": "qwen2",
    }
    speculating = begin(tmp_path, entry, drafters[kind])
    got, finishes = run(speculating, requests, together=together)
    usages = [finish.usage for finish in finishes]
    speculating.close()
    assert got == wanted
    drafted, accepted = sum(u.drafted_tokens for u in usages), sum(u.accepted_tokens for u in usages)
    assert drafted > 0 or kind == "ngram"
    for one in (draft for usage in usages for draft in usage.drafts):
        assert sum(length * times for length, times in enumerate(one.lengths)) == one.accepted_tokens
        assert one.lengths[-1] > 0
    assert all(sum(sum(one.lengths) for one in u.drafts) <= u.rounds for u in usages)
    if kind == "itself":
        # What is drafted beyond the end of an answer is lost, and how often that is depends on the machine.
        assert accepted > 0.8 * drafted


def test_what_a_place_decides_by_chance_or_by_the_past_is_the_same_in_a_draft(
    plain: tuple[str, Engine], tmp_path: Path
) -> None:
    """XTC's coin, DRY's repetitions, where a text may end: who thinks as the target does finds the same."""
    entry, engine = plain
    rows = [
        replace(SHAPED, seed=seed, ends=(number,), ends_from=40) for seed, number in enumerate((4, 15, 26))
    ]
    requests = [request(number, sampling) for number, sampling in enumerate(rows)]
    wanted = [answer(engine, one) for one in requests]
    speculating = begin(tmp_path, entry, entry)
    got, finishes = run(speculating, requests)
    speculating.close()
    assert got == wanted
    usages = [finish.usage for finish in finishes]
    assert sum(u.accepted_tokens for u in usages) > 0.8 * sum(u.drafted_tokens for u in usages) > 0


def test_a_draft_limit_of_zero_is_plain_decoding(tmp_path: Path) -> None:
    engine = begin(tmp_path, "llama", {"noise": Scripted(noise)})
    stream = engine.submit(Request((5, 6, 7), 20, GREEDY, draft_tokens=0))
    list(stream)
    engine.close()
    assert stream.finish is not None
    assert stream.finish.usage.drafted_tokens == 0


def test_logprobs_are_those_of_plain_decoding(plain: tuple[str, Engine], tmp_path: Path) -> None:
    entry, engine = plain
    one = Request((9, 8, 7, 6), 30, WARM, top_logprobs=2)
    wanted = [detail for delta in engine.submit(one) for detail in delta.logprobs]
    speculating = begin(tmp_path, entry, entry)
    got = [detail for delta in speculating.submit(one) for detail in delta.logprobs]
    speculating.close()
    assert [detail.id for detail in got] == [detail.id for detail in wanted]
    for ours, theirs in zip(got, wanted, strict=True):
        assert ours.logprob == pytest.approx(theirs.logprob, abs=1e-4)
        assert [top[0] for top in ours.top] == [top[0] for top in theirs.top]
