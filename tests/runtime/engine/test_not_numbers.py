"""A model whose logits are NaN or infinite ends its answers with an error that says so."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from runtime.engine import drawing
from runtime.engine.engine import Engine, Options
from runtime.engine.request import Request
from runtime.errors import NotNumbers
from runtime.loaded import LoadedModel
from runtime.sampling.params import SamplingParams
from runtime.step import Step
from tests.support.drafting import Scripted, always_drafting, noise
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


def test_others_go_on(tmp_path: Path) -> None:
    """Whatever one answer ran into, the engine serves the next."""
    engine = Engine(lambda: late(tmp_path, 40), Options(context_length=128))
    assert len(list(engine.submit(Request((5, 6, 7), 10, SAMPLINGS[0])))) == 10
    with pytest.raises(NotNumbers):
        list(engine.submit(Request((5, 6, 7), 100, SAMPLINGS[0])))
    engine.close()
