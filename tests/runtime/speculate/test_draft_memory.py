"""A draft's memory is shared between conversations, and a long prompt is read bit by bit."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from runtime.cache.budget import Budget
from runtime.cache.build import build_memory
from runtime.cache.prefix import PrefixStore
from runtime.errors import CacheFull
from runtime.loaded import LoadedModel
from runtime.sampling.params import SamplingParams
from runtime.sampling.sampler import Sampler
from runtime.speculate import draft_model
from runtime.speculate import head as head_room
from runtime.speculate.draft_model import ModelDrafter
from runtime.speculate.drafter import Proposal, Remembers, Rows
from runtime.speculate.head import HeadDrafter
from runtime.speculate.ngram import NgramDrafter
from runtime.step import Inputs, Step
from tests.runtime.speculate.test_draft_model import GREEDY, alone, proposed
from tests.runtime.speculate.test_head import drafts_of
from tests.support.heads import HeadReference
from tests.support.invariants import check_tree
from tests.support.parity import Reference

SYSTEM, USER, OTHER = tuple(range(20, 60)), tuple(range(60, 72)), tuple(range(80, 95))


@pytest.fixture(scope="module", params=["llama", "mistral_window", "mamba2", "qwen3_5"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return Reference(request.param).load(tmp_path_factory.mktemp("draft"))


class Counting:
    """A network that counts the tokens it is given."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.read = inner, 0

    def __call__(self, step: Step, caches: Any) -> mx.array:
        self.read += sum(step.counts)
        return self.inner(step, caches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def since(self) -> int:
        read, self.read = self.read, 0
        return read


def counted(drafter: ModelDrafter) -> Counting:
    from dataclasses import replace

    network = Counting(drafter._model.network)  # pyright: ignore[reportPrivateUsage] -- what it reads is the claim
    drafter._model = replace(drafter._model, network=network)  # pyright: ignore[reportPrivateUsage]
    drafter._network = None  # pyright: ignore[reportPrivateUsage] -- as one operation it would not be called
    return network


def turn(drafter: ModelDrafter, ids: Sequence[int], answer: Sequence[int]) -> None:
    """One request: a proposal, an answer, the end."""
    text = list(ids)
    drafter.begin(0, text)
    proposed(drafter, [text], GREEDY, 2)
    drafter.settle([len(text)])
    text += answer
    proposed(drafter, [text], GREEDY, 1)
    drafter.settle([len(text)])
    drafter.end(0, text)
    drafter.clear(0)


def test_the_next_turn_reads_what_is_new(model: LoadedModel) -> None:
    drafter = ModelDrafter(model)
    drafter.share(PrefixStore(drafter.memory.layout, 1 << 30))
    network = counted(drafter)
    turn(drafter, SYSTEM, USER)
    assert network.since() >= len(SYSTEM + USER)
    text = [*SYSTEM, *USER, *OTHER]
    drafter.begin(0, text)
    assert proposed(drafter, [text], GREEDY, 3) == [alone(model, text, GREEDY, 3)]
    assert network.since() <= len(OTHER) + 2


def test_a_branch_is_right_whatever_was_kept(model: LoadedModel) -> None:
    drafter = ModelDrafter(model)
    drafter.share(PrefixStore(drafter.memory.layout, 1 << 30))
    turn(drafter, SYSTEM, USER)
    for branch in ([*SYSTEM, *OTHER], [*SYSTEM[:7], 3, 4], [*SYSTEM, *USER[:5], 9], list(SYSTEM)):
        drafter.begin(0, branch)
        assert proposed(drafter, [branch], GREEDY, 2) == [alone(model, branch, GREEDY, 2)]
        drafter.settle([len(branch)])
        drafter.end(0, branch)
        drafter.clear(0)


def test_what_was_guessed_is_not_kept(model: LoadedModel) -> None:
    drafter = ModelDrafter(model)
    store = PrefixStore(drafter.memory.layout, 1 << 30)
    drafter.share(store)
    text = list(SYSTEM)
    drafter.begin(0, text)
    proposed(drafter, [text], GREEDY, 4)
    drafter.settle([len(text)])
    drafter.end(0, text)
    drafter.clear(0)
    check_tree(store)
    assert all(entry.stop <= len(text) and entry.pins == 0 for entry in store.describe())


def test_a_long_prompt_waits_and_the_others_do_not(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most CHUNK tokens are read before a proposal is there."""
    monkeypatch.setattr(draft_model, "CHUNK", 24)
    drafter = ModelDrafter(model)
    drafter.resize(3)
    network = counted(drafter)
    texts = [[5, 9, 4], [(7 * i) % 150 + 3 for i in range(90)], [6, 6, 8, 30]]
    rows = Rows(texts, Sampler([GREEDY] * 3))
    rounds: list[Proposal] = []
    while not rounds or 0 in rounds[-1].counts:
        network.since()
        proposal = drafter.propose(rows, 2)
        assert proposal is not None
        assert network.since() <= 24 + 3 * draft_model.LAG + 3
        rounds.append(proposal)
        drafter.settle([len(text) - 1 for text in texts])
    assert len(rounds) == 4
    wanted = [alone(model, text, GREEDY, 2) for text in texts]
    for proposal in rounds:
        drafts: Any = proposal.tokens.tolist()
        assert proposal.counts[::2] == (2, 2)
        for draft, right, count in zip(drafts, wanted, proposal.counts, strict=True):
            assert count == 0 or draft == right


def test_its_bytes_count_in_the_budget(model: LoadedModel) -> None:
    budget = Budget()
    drafter = ModelDrafter(model, budget=budget)
    proposed(drafter, [list(SYSTEM)], GREEDY, 1)
    assert 0 < drafter.memory.nbytes == budget.held_bytes
    short = ModelDrafter(model, budget=Budget(1000))
    with pytest.raises(CacheFull):  # a fold takes its room with the place
        proposed(short, [list(SYSTEM)], GREEDY, 1) if short.memory.rows else short.resize(1)


def test_who_remembers(model: LoadedModel) -> None:
    assert isinstance(ModelDrafter(model), Remembers)
    assert not isinstance(NgramDrafter(), Remembers)


class Played:
    """A target with a head drafter, and rows that the target resumes wherever its test says."""

    def __init__(self, target: LoadedModel) -> None:
        self.target = target
        self.drafter = HeadDrafter(target, limit=5)
        self.store = PrefixStore(self.drafter.memory.layout, 1 << 30)
        self.drafter.share(self.store)

    def request(
        self, ids: Sequence[int], *, known: int, chunks: Sequence[int], answer: Sequence[int]
    ) -> None:
        """Its drafts are right after the prompt and after the answer. known: where the target starts;
        chunks: how it reads on.
        """
        memory = build_memory(self.target.described.layout)
        self._read(memory, list(ids[:known]), 0, seen=False)
        self.drafter.begin(0, ids)
        at = known
        for count in [*chunks, len(ids)]:
            at += self._read(memory, list(ids[at : at + count]), at)
        text = [*ids, answer[0]]
        self._drafts(text)
        for token in answer[1:]:
            self._read(memory, [text[-1]], len(text) - 1)
            text.append(token)
        self._drafts(text)
        self._read(memory, [text[-1]], len(text) - 1)
        self.drafter.end(0, text)
        self.drafter.clear(0)
        check_tree(self.store)
        assert all(entry.pins == 0 for entry in self.store.describe())

    def _read(self, memory: Any, part: list[int], start: int, *, seen: bool = True) -> int:
        if part:
            inputs = Inputs(mx.array([part], dtype=mx.int32))
            step = Step(starts=(start,), counts=(len(part),), inputs=inputs)
            memory.prepare(step)
            hidden = self.target.network(step, memory)
            memory.commit(step, step.counts)
            if seen:
                self.drafter.observe(step, hidden, step.counts)
        return len(part)

    def _drafts(self, text: list[int]) -> None:
        proposal = self.drafter.propose(Rows([text], Sampler([SamplingParams(temperature=0)])), 3)
        assert proposal is not None
        assert proposal.tokens.tolist() == [drafts_of(self.target, text, 3)]


@pytest.fixture(params=["glm4_moe", "qwen3_5"])
def played(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    monkeypatch.setattr(head_room, "FLUSH", 9)
    return Played(HeadReference(request.param).load(tmp_path))


def test_a_head_goes_on_where_the_target_does(played: Played) -> None:
    """As if it had read everything: at the end of a row, at the end of a chunk, one token before a branch."""
    first = [*SYSTEM, *USER]
    played.request(first, known=0, chunks=[len(SYSTEM)], answer=OTHER)
    second = [*first, *OTHER, 7, 8, 9]
    played.request(second, known=len([*first, *OTHER]), chunks=[], answer=USER)
    played.request([*SYSTEM, 99, 98, 97], known=len(SYSTEM), chunks=[], answer=USER)
    played.request([*SYSTEM, *USER[:6], 99, 98], known=len(SYSTEM) + 5, chunks=[1], answer=USER)
    assert len(played.store.describe()) >= 4


def test_a_head_that_knows_too_little_drafts_all_the_same(played: Played) -> None:
    ids = [*SYSTEM, *USER]
    drafter = played.drafter
    with pytest.raises(AssertionError):  # its drafts are others, from what it saw
        played.request(ids, known=30, chunks=[], answer=OTHER)
    drafter.end(0, ids)
    assert played.store.describe() == []
