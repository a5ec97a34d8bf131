"""Making a network leaves MLX's random numbers alone, and nothing behind."""

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest

from runtime.models import describe
from runtime.nn.weights.build_network import build_network
from tests.support.parity import Reference


def key() -> list[int]:
    state: Any = mx.random.state
    return state[0].tolist()


@pytest.mark.parametrize("seed", [0, 7, (1 << 64) - 1])
def test_the_random_key_is_what_it_was(seed: int) -> None:
    mx.random.seed(seed)
    before = key()
    made = build_network(lambda size: nn.Linear(size, size), 8)
    assert made.weight.shape == (8, 8)
    assert key() == before


def test_it_is_so_after_a_failure() -> None:
    def fails(config: Any) -> None:
        nn.Linear(8, 8)
        raise ValueError(config)

    mx.random.seed(7)
    with pytest.raises(ValueError, match="why"):
        build_network(fails, "why")
    assert key() == [0, 7]


def test_a_described_model_makes_its_network_so() -> None:
    mx.random.seed(7)
    describe(Reference("llama").record["config"]).network()
    assert key() == [0, 7]
