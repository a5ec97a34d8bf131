"""Checkpoints in 16-bit types, as they are published, compute what transformers computes of the same
numbers.

In float32, as on a processor, nothing may be lost: the bar is that of float32 checkpoints. In the
checkpoint's own type, as on a GPU, every product rounds; what is asked for is that errors are of that size
and that clear choices stay.
"""

from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from runtime.loaded import LoadedModel
from tests.support.half import TYPES, Half
from tests.support.parity import Reference, cut_logits, full_logits

OWN = {"bf16": 0.15, "f16": 0.03}
"""Median distance in standard deviations of a network that computes in that type. Where every layer is a
mixture of experts, near-equal choices flip: 0.11 is the largest in bf16, 0.05 where some are not."""
CLEAR = {"bf16": 0.15, "f16": 0.03}
"""A lead of this many deviations is one that the type can tell, as long as the same experts are asked."""
AGREED = {"bf16": 0.8, "f16": 0.95}
"""Of the tokens with such a lead. Routers of random networks have no clear opinion: some tokens of 48 ask
other experts in bf16."""
ALL_MIXTURES = ("solar_open",)
"""Here a token that asks others in the first layer moves all behind it, and half of the leads are lost."""


@pytest.fixture(
    scope="module", params=[(name, word) for name in Reference.names() for word in TYPES], ids=":".join
)
def half(request: pytest.FixtureRequest) -> Half:
    return Half(*request.param)


@pytest.fixture(scope="module")
def written(half: Half, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return half.write(tmp_path_factory.mktemp(half.name))


@pytest.fixture(scope="module")
def wide(half: Half, written: Path) -> LoadedModel:
    return half.read(written)


def in_steps(model: LoadedModel, ids: np.ndarray) -> np.ndarray:
    """Many tokens from nothing, single ones, and many behind others: each way that a layer has."""
    return cut_logits(model, ids, [29, 1, 1, 17])


WAYS = (full_logits, in_steps)


def test_in_float32(half: Half, wide: LoadedModel) -> None:
    """At once in one type and in steps in the other, and the other way round for the next reference."""
    assert wide.dtype == mx.float32
    place = Reference.names().index(half.name) + list(TYPES).index(half.stored)
    assert half.error(WAYS[place % len(WAYS)](wide, half.ids)) < half.bar


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_in_float32_in_any_way(half: Half, wide: LoadedModel, way: Callable[..., np.ndarray]) -> None:
    assert half.error(way(wide, half.ids)) < half.bar


def test_in_its_own_type(half: Half, written: Path) -> None:
    model = half.read(written, on=None)
    assert model.dtype == TYPES[half.stored]
    logits = full_logits(model, half.ids)
    assert np.median(half.distances(logits)) < OWN[half.stored]
    least = 0.5 if half.name in ALL_MIXTURES else AGREED[half.stored]
    assert half.agreement(logits, CLEAR[half.stored]) >= least
