"""A model whose logits are NaN or infinite ends its answers with an error that says so."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from runtime.engine import drawing
from runtime.engine.engine import Engine, Options
from runtime.engine.request import Request
from runtime.engine.stream import Stream
from runtime.errors import NotNumbers
from runtime.loaded import LoadedModel
from runtime.nn.operations import ops
from runtime.sampling.constraint import ConstraintFault
from runtime.sampling.params import SamplingParams
from runtime.speculate.ngram import NgramDrafter
from runtime.step import Step
from tests.support.drafting import Scripted, always_drafting, noise
from tests.support.engines import ids_of
from tests.support.parity import Reference

LLAMA = Reference("llama")
SAMPLINGS = [SamplingParams(temperature=0), SamplingParams(temperature=1.0, top_k=20, seed=1)]


def broken(folder: Path, value: float) -> LoadedModel:
    """One number of the last layer is none."""
    model = LLAMA.load(folder)
    weight = model.network.model.layers[-1].mlp.down_proj.weight
    weight[0, 0] = value
    return model


def late(folder: Path, after: int) -> LoadedModel:
    """Its first `after` logits are numbers."""
    model = LLAMA.load(folder)
    return replace(model, network=Late(model.network, after))


class Late:
    """A network that answers so many times."""

    def __init__(self, network: Any, after: int) -> None:
        self.model, self._network, self._left = network.model, network, after

    def __call__(self, *given: Any) -> mx.array:
        return self._network(*given)

    def logits(self, hidden: mx.array, step: Step) -> mx.array:
        self._left -= 1
        return self._network.logits(hidden) * (1 if self._left >= 0 else mx.nan)


@pytest.mark.parametrize("value", [mx.nan, mx.inf], ids=str)
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["likeliest", "drawn"])
def test_the_first_token_is_an_error(value: float, sampling: SamplingParams, tmp_path: Path) -> None:
    engine = Engine(lambda: broken(tmp_path, value), Options(context_length=128, prefix_bytes=1 << 24))
    for _ in range(2):
        with pytest.raises(NotNumbers, match="NaN or infinite"):
            list(engine.submit(Request((5, 6, 7), 20, sampling)))
    assert not engine.list_prefixes()
    engine.close()


def test_later_ones_are_found_soon(tmp_path: Path) -> None:
    engine = Engine(lambda: late(tmp_path, 5), Options(context_length=128))
    got: list[int] = []
    with pytest.raises(NotNumbers):
        got.extend(delta.ids[0] for delta in engine.submit(Request((5, 6, 7), 100, SAMPLINGS[0])))
    assert len(got) <= drawing.LOOK
    engine.close()


def test_no_log_probability_is_none(tmp_path: Path) -> None:
    engine = Engine(lambda: late(tmp_path, 5), Options(context_length=128))
    got: list[float] = []
    with pytest.raises(NotNumbers, match="after 8 tokens"):
        got.extend(
            d.logprobs[0].logprob for d in engine.submit(Request((5, 6, 7), 9, SAMPLINGS[0], top_logprobs=1))
        )
    assert len(got) == 5
    engine.close()


def test_drafts_that_are_verified_are_looked_at_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    always_drafting(monkeypatch, range(1, 5))
    engine = Engine(
        lambda: late(tmp_path, 1),
        Options(context_length=128),
        lambda _model, _memory: {"it": Scripted(noise)},
    )
    with pytest.raises(NotNumbers):
        list(engine.submit(Request((5, 6, 7), 100, SAMPLINGS[0])))
    engine.close()


@dataclass
class Eighth:
    """One id of eight may come."""

    taken: int = 0
    ended = False

    def matcher(self) -> "Eighth":
        return Eighth()

    def mask(self) -> bytes:
        return b"\x10" * 20

    def advance(self, token: int) -> None:
        if token % 8 != 4:
            raise ConstraintFault(f"{token} is not allowed")
        self.taken += 1

    def back(self, count: int) -> None:
        self.taken -= count

    def forced(self, limit: int) -> list[int]:
        return []


def test_a_grammar_is_not_blamed(tmp_path: Path) -> None:
    engine = Engine(lambda: late(tmp_path, 5), Options(context_length=128))
    with pytest.raises(NotNumbers, match="after 8 tokens"):
        list(engine.submit(Request((5, 6, 7), 100, SAMPLINGS[0], constraint=Eighth())))
    engine.close()


def without_a_word(folder: Path, reference: Reference = LLAMA) -> LoadedModel:
    """Id 9 is no numbers."""
    model = reference.load(folder)
    model.network.model.embed_tokens.weight[9] = mx.nan
    return model


@pytest.mark.parametrize("depths", [range(1), range(1, 5)], ids=["plain", "drafting"])
@pytest.mark.parametrize("prefix_bytes", [None, 1 << 24], ids=["forgetful", "keeping"])
def test_only_the_row_that_reads_it_ends(
    prefix_bytes: int | None, depths: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tokens were on their way into the next step."""
    always_drafting(monkeypatch, depths)
    assert_only_it_ends(tmp_path, ((5, 6, 7), (8, 9), (11, 10)), prefix_bytes)


@pytest.mark.parametrize("prefix_bytes", [None, 1 << 24], ids=["forgetful", "keeping"])
def test_others_are_given_what_stands_in_front_of_it(prefix_bytes: int | None, tmp_path: Path) -> None:
    """Read in one step with it."""
    assert_only_it_ends(tmp_path, ((5, 6, 7), (5, 6, 7, 8, 9), (5, 6, 7, 8, 10)), prefix_bytes)


@pytest.mark.parametrize("name", ["deepseek_v3", "mistral_large4"])
@pytest.mark.parametrize("column", [None, "blas"])
def test_so_it_is_where_masks_say_who_sees_it(name: str, column: Any, tmp_path: Path) -> None:
    """Latents, with positions and without."""
    ops.use(column)
    try:
        others = (8, 9), (11, 10, 12, 13, 14, 15, 16, 17)
        prompts = ((5, 6, 7), (5, 6, 7, 8, 9), (5, 6, 7, 8, 10), *others)
        assert_only_it_ends(tmp_path, prompts, 1 << 24, Reference(name))
    finally:
        ops.use(None)


def test_nor_does_it_reach_whom_groups_stand_for(tmp_path: Path) -> None:
    """DeepSeek V4 attends over vectors of groups of tokens, and over a window of what are keys and values."""
    reference = Reference("deepseek_v4")
    others = (5, 6, 7), (8, 9), (11, 10, 12, 13, 14, 15, 16, 17)
    prompts = (*others[:1], (5, 6, 7, 8, 9), (5, 6, 7, 8, 10), *others[1:])
    assert_only_it_ends(tmp_path, prompts, 1 << 24, reference, drafts=False, tokens=12)


def assert_only_it_ends(
    folder: Path,
    prompts: tuple[tuple[int, ...], ...],
    prefix_bytes: int | None,
    reference: Reference = LLAMA,
    *,
    drafts: bool = True,
    tokens: int = 30,
) -> None:
    """Asked together, and each alone."""
    options = Options(context_length=128, max_rows=4, budget_tokens=4, prefix_bytes=prefix_bytes)
    drafters = (lambda *_: {"it": NgramDrafter(shortest=1)}) if drafts else (lambda *_: {})
    engine = Engine(lambda: without_a_word(folder, reference), options, drafters)
    asked = [
        Request(ids, tokens, replace(sampling, suppressed=(9,))) for sampling in SAMPLINGS for ids in prompts
    ]

    def said(stream: Stream) -> list[int] | str:
        try:
            return ids_of(stream)
        except NotNumbers:
            return "no numbers"

    alone = [said(engine.submit(one)) for one in asked]
    engine.clear_prefixes()
    assert [said(stream) for stream in [engine.submit(one) for one in asked]] == alone
    assert [one == "no numbers" for one in alone] == [9 in one.ids for one in asked]
    engine.close()


def test_others_go_on(tmp_path: Path) -> None:
    """Whatever one answer ran into, the engine serves the next."""
    engine = Engine(lambda: late(tmp_path, 40), Options(context_length=128))
    assert len(list(engine.submit(Request((5, 6, 7), 10, SAMPLINGS[0])))) == 10
    with pytest.raises(NotNumbers):
        list(engine.submit(Request((5, 6, 7), 100, SAMPLINGS[0])))
    engine.close()
