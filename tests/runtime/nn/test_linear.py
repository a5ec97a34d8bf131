"""Networks ask their layers through functions that see the step (every family does: `test_parity`)."""

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from runtime.loaded import LoadedModel
from runtime.nn.linear import embed, linear, tied
from runtime.step import Step
from tests.support.parity import Reference, cut_logits

STEP = Step((0,), (1,))


class Doubled(nn.Module):
    """Something else in a layer's place."""

    def __call__(self, x: mx.array) -> mx.array:
        return x * 2

    def as_linear(self, x: mx.array) -> mx.array:
        return x * 3


class Own(nn.Linear):
    def __call__(self, x: mx.array) -> mx.array:
        return super().__call__(x) * 0


def test_what_is_no_layer_of_mlx_is_called_as_it_is() -> None:
    x = mx.ones((1, 1, 4))
    assert mx.array_equal(linear(Doubled(), x, STEP), x * 2)
    assert mx.array_equal(embed(Doubled(), x, STEP), x * 2)
    assert mx.array_equal(tied(Doubled(), x, STEP), x * 3)
    assert not mx.any(linear(Own(4, 4), x, STEP))


@pytest.fixture
def loaded(tmp_path: Any) -> LoadedModel:
    return Reference("llama").load(tmp_path)


IDS = np.arange(1, 6)


def test_a_child_replaced_after_loading_changes_the_answer(loaded: LoadedModel) -> None:
    before = cut_logits(loaded, IDS, [5])
    layer = loaded.network.model.layers[0]
    other = nn.Linear(layer.mlp.up_proj.weight.shape[1], layer.mlp.up_proj.weight.shape[0], bias=False)
    layer.mlp.up_proj = other
    changed = cut_logits(loaded, IDS, [5])
    assert np.abs(changed - before).max() > 1e-3
    other.weight = other.weight * 2
    assert np.abs(cut_logits(loaded, IDS, [5]) - changed).max() > 1e-3


def test_a_packed_child_in_the_place_of_a_plain_one(loaded: LoadedModel) -> None:
    before = cut_logits(loaded, IDS, [5])
    layer = loaded.network.model.layers[0]
    layer.mlp["up_proj"] = layer.mlp.up_proj.to_quantized(32, 8)
    assert 1e-6 < np.abs(cut_logits(loaded, IDS, [5]) - before).max() < 0.2 * np.abs(before).max()
