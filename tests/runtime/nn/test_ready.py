"""Modules that are made ready compute what they did before, and say the same of themselves."""

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten

from runtime.nn import ready
from runtime.nn.ready import LeanEmbedding, LeanLinear, LeanRMSNorm, make_ready


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.norm = nn.RMSNorm(6, eps=1e-5)
        self.norm.weight = mx.random.normal((6,), key=mx.random.key(0))
        self.plain, self.biased = nn.Linear(6, 6, bias=False), nn.Linear(6, 5)
        self.parts = [nn.Linear(6, 5)]

    def __call__(self, x: mx.array) -> mx.array:
        return self.biased(self.norm(self.plain(x))) + self.parts[0](x)


def names(network: nn.Module) -> list[str]:
    return [name for name, _ in tree_flatten(network.parameters())]  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]


@pytest.mark.parametrize("shape", [(1, 1, 6), (1, 4, 6), (3, 2, 6), (4, 6), (1, 2, 3, 6)], ids=str)
def test_computes_the_same(shape: tuple[int, ...]) -> None:
    network, x = Network(), mx.random.normal(shape, key=mx.random.key(1))
    before, head = network(x), network.embed.as_linear(x)
    make_ready(network)
    assert isinstance(network.plain, LeanLinear)
    assert np.allclose(network(x), before, atol=1e-5)
    assert np.allclose(network.embed.as_linear(x), head, atol=1e-5)


def test_looks_up_the_same() -> None:
    network, ids = Network(), mx.array([[3, 10, 0]])
    before = network.embed(ids)
    make_ready(network)
    assert mx.array_equal(network.embed(ids), before)


def test_parameters_keep_their_names() -> None:
    network = Network()
    before = names(network)
    make_ready(network)
    network(mx.zeros((1, 1, 6)))
    assert names(network) == before


def test_a_norm_is_that_of_mlx_to_the_last_bit() -> None:
    network, x = Network(), mx.random.normal((1, 3, 6), key=mx.random.key(2))
    before = network.norm(x)
    make_ready(network)
    assert isinstance(network.norm, LeanRMSNorm)
    assert mx.array_equal(network.norm(x), before)


@pytest.mark.parametrize("name", ["plain", "biased", "norm", "embed"])
def test_a_weight_replaced_later_is_noticed(name: str) -> None:
    network, x = Network(), mx.random.normal((1, 1, 6), key=mx.random.key(3))
    make_ready(network)
    module: Any = getattr(network, name)
    call = module.as_linear if isinstance(module, LeanEmbedding) else module
    before = call(x)
    for part in ("weight", "bias"):
        if part in module:
            module[part] = module[part] * 2
    assert np.allclose(call(x), before * 2, atol=1e-5)


def test_narrow_floats_stay_narrow() -> None:
    network = Network()
    network.set_dtype(mx.bfloat16)
    make_ready(network)
    assert network(mx.zeros((1, 1, 6), dtype=mx.bfloat16)).dtype == mx.bfloat16


def test_children_are_plain_attributes() -> None:
    network = Network()
    make_ready(network)
    assert vars(network)["parts"] is network["parts"]
    assert "weight" not in vars(network.plain)


def test_where_kernels_are_fused_modules_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready, "on_processor", lambda: False)
    network = Network()
    make_ready(network)
    assert type(network.plain) is nn.Linear
    assert type(network.norm) is nn.RMSNorm


@pytest.mark.parametrize("mode", ["mxfp4", "mxfp8", "nvfp4"])
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16], ids=str)
def test_a_microscaled_table_answers_in_the_type_of_activations(mode: str, dtype: mx.Dtype) -> None:
    table, ids = nn.Embedding(8, 64).to_quantized(None, None, mode), mx.array([[5, 0, 7]])
    before = table(ids)
    make_ready(table, dtype)
    got = table(ids)
    assert got.dtype == dtype
    assert mx.array_equal(got.astype(mx.float32), before.astype(mx.float32))
