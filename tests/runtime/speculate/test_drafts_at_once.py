"""Drafts made as one operation are those made step by step, and leave the same memory."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.cpu import native
from runtime.cpu.native import products
from runtime.loaded import LoadedModel
from runtime.nn.operations import ops
from runtime.parts.draws import NextTokens
from runtime.sampling.params import SamplingParams
from runtime.sampling.sampler import Sampler
from runtime.speculate.draft_model import ModelDrafter
from runtime.speculate.drafter import Rows
from tests.support.parity import Reference

pytestmark = pytest.mark.skipif(native.kernels is None, reason=f"no kernels: {native.status.reason}")

FAMILIES = [
    "llama",
    "llama_biases_tied",
    "mistral_window",
    "qwen3",
    "qwen3_moe",
    "gpt_oss",
    "glm4",
    "deepseek_v3",
    "gpt_neox",
    "cohere",
]
WISHES = {
    "greedy": SamplingParams(temperature=0),
    "warm": SamplingParams(temperature=0.9, top_p=0.9, top_k=30, min_p=0.01, seed=3),
    "penalised": SamplingParams(temperature=0.8, repeat_penalty=1.4, frequency_penalty=0.3, repeat_last_n=7),
    "typical": SamplingParams(temperature=1.1, typical_p=0.6, top_p=0.8, seed=5),
    "biased": SamplingParams(
        temperature=0.9,
        repeat_penalty=1.2,
        repeat_last_n=5,
        logit_bias={7: 4.0, 30: -2.5},
        suppressed=(9, 21),
    ),
}
DEPTHS_AND_KEPT = [(4, 2), (5, 5), (1, 1), (2, 1), (6, 0)]


@pytest.fixture(scope="module", params=FAMILIES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return Reference(request.param).load(tmp_path_factory.mktemp("draft"))


@pytest.fixture
def counted() -> Iterator[list[int]]:
    """How many drafts were made at once, round by round."""
    made: list[int] = []
    guess = ops.table.guess

    def counting(*args: Any) -> NextTokens | None:
        found = guess(*args)
        made.append(0 if found is None else found.tokens.shape[1])
        return found

    with ops.using(replace(ops.table, guess=counting)):
        yield made


def proposals(
    model: LoadedModel, params: SamplingParams | list[SamplingParams], *, at_once: bool
) -> list[list[list[int]]]:
    """Of three rows over some rounds, of which more or less is kept."""
    with pytest.MonkeyPatch.context() as patch:
        if not at_once:
            patch.setattr(ModelDrafter, "_at_once", lambda *_: None)
        texts, rng = [[5, 9, 4], [8, 30, 7, 7, 21], [11]], np.random.default_rng(1)
        drafter, found = ModelDrafter(model, limit=6), []
        sampler = Sampler(params if isinstance(params, list) else [params] * 3)
        drafter.resize(3)
        for depth, keep in DEPTHS_AND_KEPT:
            proposal = drafter.propose(Rows(texts, sampler), depth)
            assert proposal is not None
            drafts: Any = proposal.tokens.tolist()
            found.append(drafts)
            kept = [max(keep - row, 0) for row in range(3)]
            drafter.settle([len(text) + count for text, count in zip(texts, kept, strict=True)])
            for text, draft, count in zip(texts, drafts, kept, strict=True):
                text += [*draft[:count], int(rng.integers(3, 100))]
        return found


def test_rows_of_several_kinds_are_drafted_together(counted: list[int], tmp_path: Path) -> None:
    model = Reference("llama").load(tmp_path)
    kinds = [WISHES["biased"], WISHES["greedy"], WISHES["typical"]]
    expected = proposals(model, kinds, at_once=False)
    assert proposals(model, kinds, at_once=True) == expected
    assert counted == [depth for depth, _ in DEPTHS_AND_KEPT]


@pytest.mark.parametrize("wish", WISHES)
def test_they_are_those_made_step_by_step(model: LoadedModel, wish: str, counted: list[int]) -> None:
    expected = proposals(model, WISHES[wish], at_once=False)
    assert counted == []
    assert proposals(model, WISHES[wish], at_once=True) == expected
    assert counted == [depth for depth, _ in DEPTHS_AND_KEPT]


def test_the_only_row_reads_its_prompt_and_drafts_in_one(tmp_path: Path, counted: list[int]) -> None:
    model = Reference("llama").load(tmp_path)
    text = [int(token) for token in np.random.default_rng(2).integers(3, 100, 40)]

    def proposed(*, at_once: bool) -> list[list[int]]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ModelDrafter, "_step", _refused if at_once else ModelDrafter._step)  # pyright: ignore[reportPrivateUsage]
            if not at_once:
                patch.setattr(ModelDrafter, "_at_once", lambda *_: None)
            proposal = ModelDrafter(model, limit=6).propose(Rows([text], Sampler([WISHES["warm"]])), 4)
        assert proposal is not None
        assert proposal.reading, "the time of this round is not that of a round"
        return list(proposal.tokens.tolist())

    assert proposed(at_once=True) == proposed(at_once=False)
    assert counted == [4]


def _refused(*_: Any) -> None:
    raise AssertionError("nothing is read by itself")


def test_who_rejects_goes_step_by_step(counted: list[int], tmp_path: Path) -> None:
    params = SamplingParams(draft_acceptance="rejection")
    model = Reference("llama").load(tmp_path)
    proposals(model, params, at_once=True)
    assert counted == []


@pytest.mark.parametrize("name", ["mamba2", "qwen3_5", "gemma3n"])
def test_other_networks_go_step_by_step(name: str, counted: list[int], tmp_path: Path) -> None:
    model = Reference(name).load(tmp_path)
    once = proposals(model, WISHES["greedy"], at_once=True)
    assert not any(counted)
    assert once == proposals(model, WISHES["greedy"], at_once=False)


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    model = Reference("llama").load(tmp_path)
    drafter = ModelDrafter(model, limit=6)
    seen: list[tuple[Any, ...]] = []
    node = native.kernels.guess
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native.kernels, "guess", lambda *args: seen.append(args) or node(*args))
        drafter.propose(Rows([[5, 9, 4]], Sampler([WISHES["greedy"]])), 3)
    (given,) = seen
    names = ["chain", "ends", "ids", "starts", "counts", "first", "drawn", "memories", "tables", "ids_drawn"]
    names += ["by", "positions", "looks"]
    right = dict(zip(names, given, strict=False))
    wrong = [
        ({"ids": right["ids"].astype(mx.float32)}, "int32"),
        ({"drawn": -1}, "so many"),
        ({"drawn": 100_000}, "slots"),
        ({"starts": [0, 0]}, "each row"),
        ({"counts": [4]}, "a token or more"),
        ({"counts": [0]}, "a token or more"),
        ({"starts": [-1]}, "a row starts"),
        ({"first": 5}, "lanes"),
        ({"memories": right["memories"][:1]}, "for each memory"),
        ({"tables": [None] * len(right["tables"])}, "turn, or none"),
        ({"tables": [mx.zeros((1, 9, 16))] * len(right["tables"])}, "table of turns"),
        ({"ids_drawn": 1 << 20}, "head's ids"),
        ({"looks": True}, "one pass"),
    ]
    for change, says in wrong:
        with pytest.raises(ValueError, match=says):
            node(*{**right, **change}.values())
    draws = native.kernels.Draws([1, 2], [1.0, 1.0], [0, 0], [1.0, 1.0], [0.0, 0.0], [1.0, 1.0])
    with pytest.raises(ValueError, match="for each row"):
        node(*{**right, "by": draws}.values())


def test_a_rehearsal_leaves_no_views_to_be_made(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no memory of its own behind it."""
    drafter = ModelDrafter(model, limit=6)
    drafter.rehearse()
    assert drafter.memory.nbytes == 0
    monkeypatch.setattr(products, "_matrix", lambda *_: pytest.fail("a view was made"))
    assert drafter.propose(Rows([[5, 9, 4]], Sampler([WISHES["greedy"]])), 4) is not None
