"""A step as one operation, with drafts or without, gives the tokens that hidden states and logits give."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from runtime.cpu import native
from runtime.engine.drawing import Drawn
from runtime.engine.engine import Engine
from runtime.engine.options import Options
from runtime.engine.request import Request
from runtime.engine.steps import Steps
from runtime.sampling.params import SamplingParams
from runtime.speculate.depth import Decision, Offer
from runtime.speculate.drafter import Drafter, Proposal, Rows
from runtime.speculate.learner import Learner
from runtime.step import Step
from tests.support.parity import Reference

pytestmark = pytest.mark.skipif(native.kernels is None, reason=f"no kernels: {native.status.reason}")

GREEDY = SamplingParams(temperature=0)
WARM = SamplingParams(temperature=0.9, top_p=0.9, seed=7)
BOTH = {"greedy": GREEDY, "warm": WARM}
PROMPTS = [(5, 9, 4), (8, 30, 7, 7, 21), (11,)]
COUNT = 70
PENALISED = replace(WARM, repeat_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.2, repeat_last_n=12)
LOOKING_FAR = SamplingParams(temperature=0, repeat_penalty=1.1, frequency_penalty=0.3, repeat_last_n=-1)
TYPICAL = replace(WARM, temperature=1.2, typical_p=0.7)
BIASED = replace(PENALISED, typical_p=0.9, top_k=40, logit_bias={5: 1.5, 30: -2.0}, suppressed=(7, 8))
FAMILIES = ["llama", "llama_biases_tied", "mistral_window", "qwen3_moe", "gpt_oss", "olmo2", "deepseek_v3"]
CASES = [
    *(pytest.param(name, how, id=f"{name}-{kind}") for name in FAMILIES for kind, how in BOTH.items()),
    pytest.param("llama", PENALISED, id="llama-penalised"),
    pytest.param("llama", TYPICAL, id="llama-typical"),
    pytest.param("qwen3_moe", BIASED, id="qwen3_moe-biased"),
    pytest.param("qwen3_moe", LOOKING_FAR, id="qwen3_moe-looking_far"),
]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each step, whether it was one operation."""
    seen: list[bool] = []
    whole = Steps._at_once  # pyright: ignore[reportPrivateUsage] -- which way a step goes is the claim

    def noting(*args: Any) -> Drawn | None:
        found = whole(*args)
        seen.append(found is not None)
        return found

    monkeypatch.setattr(Steps, "_at_once", noting)
    return seen


def answers(name: str, folder: Path, requests: list[Request], drafters: Any = None) -> list[list[Any]]:
    options = Options(context_length=128, max_rows=4)
    engine = Engine(lambda: Reference(name).load(folder), options, drafters)
    try:
        streams = [engine.submit(request) for request in requests]
        return [[(token, delta.logprobs) for delta in stream for token in delta.ids] for stream in streams]
    finally:
        engine.close()


def by_hidden_states(name: str, folder: Path, requests: list[Request]) -> list[list[Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Steps, "_at_once", lambda *_: None)
        return answers(name, folder, requests)


@pytest.mark.parametrize(("name", "params"), CASES)
def test_it_gives_the_same_tokens(
    name: str, params: SamplingParams, tmp_path: Path, taken: list[bool]
) -> None:
    requests = [Request(prompt, COUNT - 20 * row, params) for row, prompt in enumerate(PROMPTS)]
    got = answers(name, tmp_path, requests)
    # The first token of an answer and each 32nd are looked at: are they numbers?
    assert sum(taken) > 0.8 * len(taken)
    assert got == by_hidden_states(name, tmp_path, requests)


def test_a_row_that_asks_for_more_gets_it(tmp_path: Path, taken: list[bool]) -> None:
    requests = [Request(PROMPTS[1], 40, GREEDY, top_logprobs=2)]
    got = answers("llama", tmp_path, requests)
    assert not any(taken)
    assert got == by_hidden_states("llama", tmp_path, requests)


def test_rows_of_different_kinds_share_a_step(tmp_path: Path, taken: list[bool]) -> None:
    kinds = [GREEDY, WARM, BIASED]
    requests = [Request(PROMPTS[row], 40 - 5 * row, params) for row, params in enumerate(kinds)]
    got = answers("llama", tmp_path, requests)
    assert sum(taken) > 0.8 * len(taken)
    alone = [by_hidden_states("llama", tmp_path, [request])[0] for request in requests]
    assert got == alone


class Knowing:
    """A drafter that knows the answers, but of some rounds the third draft is wrong."""

    limit, token_cost = 4, 0.01

    def __init__(self, prompts: list[tuple[int, ...]], answers: list[list[Any]]) -> None:
        self.texts = [
            [*prompt, *(token for token, _ in answer)]
            for prompt, answer in zip(prompts, answers, strict=True)
        ]

    def propose(self, rows: Rows, depth: int) -> Proposal | None:
        drafts = list[list[int]]()
        for ids in rows.ids:
            (text,) = (one for one in self.texts if one[: len(ids)] == ids)
            drafts.append([*text[len(ids) :], *[3] * depth][:depth])
            if len(ids) % 3 == 0 and depth > 2:
                drafts[-1][2] += 1
        return Proposal(mx.array(drafts, mx.int32), tuple(depth - place % 2 for place in range(len(drafts))))

    def begin(self, row: int, ids: Any, space: str = "") -> None: ...
    def end(self, row: int, ids: Any) -> None: ...
    def settle(self, lengths: Any) -> None: ...
    def move(self, src: int, dst: int) -> None: ...
    def clear(self, row: int) -> None: ...
    def resize(self, rows: int) -> None: ...


@pytest.mark.parametrize(("name", "params"), CASES)
def test_drafts_are_judged_as_by_hidden_states(
    name: str, params: SamplingParams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [Request(prompt, COUNT - 20 * row, params) for row, prompt in enumerate(PROMPTS)]
    plain = by_hidden_states(name, tmp_path, requests)
    judged = list[int]()
    whole = Steps._at_once  # pyright: ignore[reportPrivateUsage]

    def noting(self: Steps, rows: Any, step: Step) -> Any:
        found = whole(self, rows, step)
        judged.append(step.width if found is not None else 0)
        return found

    def always(_learner: Learner, grades: Any, most: int, _behind: Any = ()) -> Decision:
        """Whether drafts pay is a matter of time, and how they are judged is none."""
        return Decision(tuple(Offer(name, min(4, most), 1.0, 0.0, 1.0) for name in grades))

    monkeypatch.setattr(Steps, "_at_once", noting)
    monkeypatch.setattr(Learner, "decide", always)
    drafters: dict[str, Drafter] = {"knowing": Knowing(PROMPTS, plain)}
    assert answers(name, tmp_path, requests, lambda *_: drafters) == plain
    assert max(judged) > 2, "drafts were judged as one operation"
    assert judged.count(0) < 0.5 * len(judged)


class Watching(Knowing):
    """A drafter that wants to see all that the target computes."""

    def __init__(self) -> None:
        super().__init__([], [])
        self.seen = 0

    def observe(self, step: Step, hidden: mx.array, kept: Any) -> None:
        assert hidden.shape[:2] == (len(step.starts), step.width)
        self.seen += sum(kept)

    def propose(self, rows: Rows, depth: int) -> Proposal | None:
        return None


def test_a_drafter_that_watches_sees_every_step(tmp_path: Path, taken: list[bool]) -> None:
    watching = Watching()
    drafters: dict[str, Drafter] = {"watching": watching}
    (got,) = answers("llama", tmp_path, [Request(PROMPTS[1], 30, GREEDY)], lambda *_: drafters)
    assert not any(taken)
    assert watching.seen == len(PROMPTS[1]) + len(got) - 1
