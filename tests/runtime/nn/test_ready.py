"""What is done to a network once its weights are in place: types of tables, twins in foreign classes."""

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten

from runtime.nn import operations, ops
from runtime.nn.module import Module
from runtime.nn.ready import make_ready


class Foreign(nn.Module):
    """A class that calls its children by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.norm = nn.RMSNorm(6, eps=1e-5)
        self.norm.weight = mx.random.normal((6,), key=mx.random.key(0))
        self.plain, self.biased = nn.Linear(6, 6, bias=False), nn.Linear(6, 5)
        self.parts = [nn.Linear(6, 5)]
        self.again = self.plain

    def __call__(self, x: mx.array) -> mx.array:
        return self.biased(self.norm(self.plain(x))) + self.parts[0](x)


class Ours(Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside = Foreign()
        self.own = nn.Linear(6, 6)


def names(network: nn.Module) -> list[str]:
    return [name for name, _ in tree_flatten(network.parameters())]  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]


@pytest.mark.parametrize("name", operations.NAMES)
@pytest.mark.parametrize("shape", [(1, 1, 6), (1, 4, 6), (3, 2, 6), (4, 6), (1, 2, 3, 6)], ids=str)
def test_a_foreign_class_computes_the_same(shape: tuple[int, ...], name: operations.Name) -> None:
    network, x, ids = Foreign(), mx.random.normal(shape, key=mx.random.key(1)), mx.array([[3, 10, 0]])
    before, head, rows = network(x), network.embed.as_linear(x), network.embed(ids)
    make_ready(network)
    with ops.using(name):
        assert np.allclose(network(x), before, atol=1e-5)
        assert np.allclose(network.embed.as_linear(x), head, atol=1e-5)
        assert mx.array_equal(network.embed(ids), rows)


def test_its_layers_compute_by_the_table() -> None:
    network, x = Foreign(), mx.ones((1, 1, 6))
    make_ready(network)
    with ops.using("plain"):
        plain = network(x)
    assert np.allclose(plain, network(x), atol=1e-5)
    assert type(network.plain) is not nn.Linear
    assert network.plain is network.again


def test_names_and_arrays_stay() -> None:
    network = Foreign()
    before, weight = names(network), network.parts[0].weight
    make_ready(network)
    assert names(network) == before
    assert network.parts[0].weight is weight


def test_a_child_replaced_later_computes() -> None:
    network, x = Foreign(), mx.ones((1, 1, 6))
    make_ready(network)
    before = network(x)
    network.plain = nn.Linear(6, 6, bias=False)
    assert not mx.array_equal(network(x), before)


def test_our_own_classes_keep_theirs() -> None:
    network = Ours()
    make_ready(network)
    assert type(network.own) is nn.Linear
    assert type(network.inside.plain) is not nn.Linear


@pytest.mark.parametrize("inside", [False, True], ids=["in ours", "in a foreign class"])
@pytest.mark.parametrize("mode", ["mxfp4", "mxfp8", "nvfp4"])
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16], ids=str)
def test_a_microscaled_table_answers_in_the_type_of_activations(
    mode: str, dtype: mx.Dtype, inside: bool
) -> None:
    network: Any = nn.Module() if inside else Module()
    network.table, ids = nn.Embedding(8, 64).to_quantized(None, None, mode), mx.array([[5, 0, 7]])
    before = network.table(ids)
    make_ready(network, dtype)
    got = network.table(ids) if inside else ops.table.embed(network.table, ids)
    assert got.dtype == dtype
    assert mx.array_equal(got.astype(mx.float32), before.astype(mx.float32))
