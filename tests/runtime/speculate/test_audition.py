"""Drafters heard beside plain decoding say what they would have drafted, and are in nobody's way."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.cache.build import build_memory
from runtime.loaded import LoadedModel
from runtime.nn.operations import ops
from runtime.sampling.params import SamplingParams
from runtime.sampling.sampler import Sampler
from runtime.speculate import draft_model
from runtime.speculate.audition import BESIDE, TOKENS, AuditionSchedule, runs
from runtime.speculate.clock import Moment
from runtime.speculate.draft_model import ModelDrafter
from runtime.speculate.drafter import Audition, Proposal, Rows
from runtime.speculate.drafting import Drafting
from runtime.step import Step
from tests.support.drafting import Idle
from tests.support.parity import Reference

GREEDY = SamplingParams(temperature=0)
WARM = SamplingParams(temperature=0.9, top_p=0.9, seed=3)


@pytest.fixture(scope="module", params=["llama", "mistral_window", "mamba2"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return Reference(request.param).load(tmp_path_factory.mktemp("draft"))


@pytest.fixture(params=["at once", "step by step"])
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "at once":
        yield
    else:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ops, "by_kernels", lambda _: False)
            yield


def said(heard: Audition) -> list[list[int]]:
    """Of each row, what it would have drawn."""
    tokens: Any = heard.tokens.tolist()
    return [[row[at] for at in columns] for row, columns in zip(tokens, heard.columns, strict=True)]


def drafted(model: LoadedModel, text: list[int], params: SamplingParams, count: int) -> list[int]:
    """What it proposes for each of the last `count` places, asked there by itself."""
    found: list[int] = []
    for stop in range(len(text) - count, len(text)):
        proposal = ModelDrafter(model, limit=5).propose(Rows([text[:stop]], Sampler([params])), 1)
        assert proposal is not None
        tokens: Any = proposal.tokens.tolist()
        found.append(tokens[0][0])
    return found


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("params", [GREEDY, WARM], ids=["greedy", "warm"])
def test_it_says_what_it_would_have_drafted_at_each_place(model: LoadedModel, params: SamplingParams) -> None:
    rng = np.random.default_rng(1)
    texts = [[int(token) for token in rng.integers(3, 150, length)] for length in (14, 9, 20)]
    drafter = ModelDrafter(model, limit=5)
    drafter.resize(3)
    heard = drafter.audition(Rows(texts, Sampler([params] * 3)), 4)
    assert heard is not None
    assert said(heard) == [drafted(model, text, params, 4) for text in texts]


@pytest.mark.usefixtures("_way")
def test_it_proposes_from_there_on_as_if_it_had_not_been_heard(model: LoadedModel) -> None:
    text, rows = [int(token) for token in np.random.default_rng(2).integers(3, 150, 12)], Sampler([GREEDY])
    heard, fresh = ModelDrafter(model, limit=5), ModelDrafter(model, limit=5)
    heard.audition(Rows([text], rows), 4)
    grown = [*text, 7, 8]
    proposals = [one.propose(Rows([grown], rows), 3) for one in (heard, fresh)]
    assert [None if one is None else one.tokens.tolist() for one in proposals] == [
        proposals[0] and proposals[0].tokens.tolist()
    ] * 2
    assert proposals[0] is not None


def test_a_long_text_is_read_piece_by_piece_before_anything_is_said(model: LoadedModel) -> None:
    text = [int(token) for token in np.random.default_rng(3).integers(3, 150, 120)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draft_model, "CHUNK", 40)
        drafter, asked = ModelDrafter(model, limit=5), list[Audition]()
        while not asked or not any(asked[-1].columns):
            heard = drafter.audition(Rows([text], Sampler([GREEDY])), 4)
            assert heard is not None
            asked.append(heard)
    assert 1 < len(asked) < 5
    assert said(asked[-1]) == [drafted(model, text, GREEDY, 4)]


@pytest.mark.parametrize(
    "params", [SamplingParams(repeat_penalty=1.2), SamplingParams(draft_acceptance="rejection")]
)
def test_draws_that_hang_on_more_than_logits_are_not_judged_so(
    params: SamplingParams, tmp_path: Path
) -> None:
    drafter = ModelDrafter(Reference("llama").load(tmp_path), limit=5)
    assert drafter.audition(Rows([list(range(3, 15))], Sampler([params])), 4) is None


@given(right=st.lists(st.booleans(), max_size=12))
def test_from_each_place_on_it_had_so_many_right_in_a_row(right: list[bool]) -> None:
    for at, (count, run) in enumerate(runs(right)):
        assert count == len(right) - at
        assert all(right[at : at + run])
        assert run == count or not right[at + run]


class Heard(Idle):
    """Says always the same, and notes when it was asked for what."""

    limit, token_cost = 4, 0.1

    def __init__(self, token: int) -> None:
        self.token, self.heard, self.asked = token, list[int](), 0

    def audition(self, rows: Rows, count: int) -> Audition | None:
        self.heard.append(len(rows.ids[0]))
        tokens = mx.full((len(rows), count), self.token, mx.int32)
        return Audition(tokens, (range(count),) * len(rows))

    def propose(self, rows: Rows, depth: int) -> Proposal | None:
        self.asked += 1
        return Proposal(mx.full((len(rows), depth), self.token, mx.int32), (depth,) * len(rows))


def answer(drafter: Heard, steps: int, *, extra_s: float = 0.0) -> tuple[Drafting, list[float]]:
    """One row behind a prompt of five tokens, whose answer is all sevens; and what its rounds took."""
    drafting, ids, now_s, took = (
        Drafting({"made": drafter}, build_memory([])),
        [1, 2, 3, 4, 5],
        0.0,
        list[float](),
    )
    drafting.begin(0, ids)
    ids = [*ids, 7]
    for _ in range(steps):
        began = Moment(now_s)
        if not drafting.pauses(1, shared=False):
            drafting.done(began)
            outlook = drafting.outlook([ids], [20], in_flight=False)
            with drafting.round(began, outlook, shared=False) as here:
                guess = here.propose(Rows([ids], Sampler([GREEDY])), [20]) if outlook.asks else None
                drafts = guess.proposal.counts[0] if guess else 0
                kept = 1 + drafts * (drafter.token == 7)
                here.keep(Step((len(ids) - 1,), (1 + drafts,)), mx.zeros((1, 1 + drafts, 1)), [kept])
        else:
            kept = 1
        drafting.meanwhile()
        took.append(1.0 + extra_s * drafting.listens)
        if drafting.listens:
            drafting.listen(1, Rows([ids], Sampler([GREEDY])))
        now_s += took[-1]
        ids = ids + [7] * kept
    return drafting, took


def test_who_is_wrong_is_never_asked() -> None:
    drafter = Heard(6)
    answer(drafter, 120)
    assert drafter.heard[:1] == [5 + TOKENS]
    assert not drafter.asked


def test_who_is_right_is_asked_as_soon_as_it_was_heard() -> None:
    drafter = Heard(7)
    answer(drafter, TOKENS + BESIDE + 4)
    assert drafter.heard == [5 + TOKENS]
    assert drafter.asked > 1


def test_until_there_is_enough_to_judge_by_nobody_asks_at_every_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, want = list[int](), AuditionSchedule.want

    def counted(its: AuditionSchedule, name: str, grade: int, ids: list[list[int]]) -> int:
        asked.append(len(ids[0]))
        return want(its, name, grade, ids)

    monkeypatch.setattr(AuditionSchedule, "want", counted)
    answer(Heard(7), TOKENS + 1)
    assert asked[1] == 5 + TOKENS


def test_nobody_is_heard_where_all_rows_have_ended_since() -> None:
    drafter = Heard(7)
    drafting, _ = answer(drafter, TOKENS - 1)
    drafting.outlook([[1, 2, 3, 4, 5, *[7] * TOKENS]], [20], in_flight=False)
    assert drafting.listens
    drafting.listen(0, Rows([], Sampler([])))
    assert not drafter.heard


def test_a_short_prompt_more_does_not_count_as_an_answer() -> None:
    """Another row's place is filled; nobody is judged by what its user wrote."""
    drafter = Heard(7)
    drafting, _ = answer(drafter, 1)
    drafting.begin(0, [1, 2])
    drafting.move(0, 1)
    drafting.begin(0, list(range(40)))
    for _ in range(20):
        drafting.outlook([list(range(41)), [1, 2, 7]], [20, 20], in_flight=False)
        assert not drafting.listens
