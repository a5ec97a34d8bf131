"""Rows that judge drafts by rejection, beside rows that do not, with everything else at work."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.engine.engine import Engine
from runtime.engine.request import Request
from runtime.loaded import LoadedModel
from runtime.sampling.params import SamplingParams
from runtime.speculate.draft_model import ModelDrafter
from runtime.speculate.drafter import Drafter
from tests.support.drafting import Scripted, always_drafting, noise
from tests.support.engines import answers, finished, prompt, run, start
from tests.support.parity import Reference

COUPLED = SamplingParams(temperature=1.0, top_k=30, repeat_penalty=1.3, seed=5)
REJECTING = replace(COUPLED, draft_acceptance="rejection")
GREEDY = SamplingParams(temperature=0, draft_acceptance="rejection")


@pytest.fixture(autouse=True)
def _drafting(monkeypatch: pytest.MonkeyPatch) -> None:
    always_drafting(monkeypatch)


def begin(folder: Path, kind: str | None) -> Engine:
    def make(model: LoadedModel, memory: object) -> dict[str, Drafter]:
        if kind == "noise":
            return {"noise": Scripted(noise)}
        return {"model": ModelDrafter(Reference(kind).load(folder / "draft"))} if kind else {}

    return start(folder / "target", drafters=make)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = begin(tmp_path_factory.mktemp("plain"), None)
    yield engine
    engine.close()


def asked(*samplings: SamplingParams) -> list[Request]:
    return [
        Request(prompt(n, 6 + 5 * n), 30, sampling, top_logprobs=1) for n, sampling in enumerate(samplings)
    ]


@pytest.mark.parametrize("kind", ["noise", "qwen2"])
def test_neighbours_and_greedy_rows_do_not_notice(plain: Engine, tmp_path: Path, kind: str) -> None:
    requests = asked(COUPLED, REJECTING, GREEDY, replace(COUPLED, seed=9), REJECTING)
    wanted = answers(plain, requests)
    engine = begin(tmp_path, kind)
    got, finishes = run(engine, requests)
    engine.close()
    assert [got[row] for row in (0, 2, 3)] == [wanted[row] for row in (0, 2, 3)]
    assert [len(ids) for ids in got] == [30] * 5
    assert all(finish.usage.drafted_tokens > 0 for finish in finishes)


def test_without_drafts_both_ways_draw_the_same(plain: Engine) -> None:
    assert answers(plain, asked(REJECTING)) == answers(plain, asked(COUPLED))


def test_drafts_of_the_target_itself_always_stand(tmp_path: Path) -> None:
    engine = begin(tmp_path, "llama")
    ids, finish = finished(engine, asked(REJECTING)[0])
    engine.close()
    assert len(ids) == 30
    assert finish.usage.accepted_tokens > 0.9 * finish.usage.drafted_tokens > 0


def test_a_run_depends_on_its_seed_and_on_the_depths_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[list[list[int]]] = []
    for turn in range(2):
        always_drafting(monkeypatch)
        engine = begin(tmp_path / str(turn), "qwen2")
        texts.append(answers(engine, asked(REJECTING)))
        engine.close()
    assert texts[0] == texts[1]


def test_log_probabilities_belong_to_the_tokens(tmp_path: Path) -> None:
    engine = begin(tmp_path, "noise")
    deltas = list(engine.submit(asked(REJECTING)[0]))
    engine.close()
    assert all(delta.logprobs[0].id == delta.ids[0] for delta in deltas)
    assert all(delta.logprobs[0].logprob < 0 for delta in deltas)
