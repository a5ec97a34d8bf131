"""Children and parameters are attributes and items at once, whoever replaces them and by which way."""

import copy
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

from runtime.nn.module import Module


class Network(Module):
    def __init__(self) -> None:
        super().__init__()
        self.first: Any = nn.Linear(4, 4)
        self.parts: Any = [nn.Linear(4, 4), nn.Linear(4, 4)]
        self.scale = mx.ones((4,))
        self._size = 4

    def __call__(self, x: mx.array) -> mx.array:
        for part in (self.first, *self.parts):
            x = part(x)
        return x * self.scale


class Nested(Network):
    def __init__(self) -> None:
        super().__init__()
        self.inner: Any = {"a": Network(), "b": [[nn.Linear(4, 4)], {"c": Network()}], "d": mx.ones((1,))}
        self._hidden: Any = nn.Linear(4, 4)
        self.passed: Any = (nn.Linear(4, 4),)  # whose items MLX does not look at


X = mx.arange(4, dtype=mx.float32)[None]


def test_they_are_plain_attributes() -> None:
    network = Network()
    assert {"first", "parts", "scale", "_size"} <= vars(network).keys()
    assert {"first", "parts", "scale"} == set(network)


def test_names_are_those_of_mlx() -> None:
    names = [name for name, _ in tree_flatten(Network().parameters())]  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
    assert names == [
        *("first.weight", "first.bias", "parts.0.weight", "parts.0.bias"),
        *("parts.1.weight", "parts.1.bias", "scale"),
    ]


def test_modules_are_those_of_mlx_and_in_its_order() -> None:
    network, theirs = Nested(), list[tuple[str, nn.Module]]()
    nn.Module.apply_to_modules(network, lambda path, module: theirs.append((path, module)))
    ours = network.named_modules()
    assert [(path, id(module)) for path, module in ours] == [(path, id(module)) for path, module in theirs]
    named = dict(ours)
    assert named.keys() > {"", "first", "parts.1", "inner.b.1.c.parts.0", "inner.b.0.0", "_hidden"}
    assert not any(path.startswith("passed") for path in named)


def by_attribute(network: Any, child: nn.Module) -> None:
    network.first = child


def by_item(network: Any, child: nn.Module) -> None:
    network["first"] = child


def by_update(network: Any, child: nn.Module) -> None:
    network.update_modules({"first": child})


@pytest.mark.parametrize("replace", [by_attribute, by_item, by_update])
def test_a_child_replaced_later_is_the_one_that_computes(replace: Any) -> None:
    network, zero = Network(), nn.Linear(4, 4)
    zero.weight, zero.bias = mx.zeros((4, 4)), mx.zeros((4,))
    network.parts = []
    assert mx.any(network(X))
    replace(network, zero)
    assert not mx.any(network(X))
    assert network.first is network["first"] is zero


def test_a_child_in_a_list_too() -> None:
    network, x = Network(), X
    before = network(x)
    network["parts"][1] = nn.Linear(4, 4)
    assert not mx.array_equal(network(x), before)


def test_a_parameter_replaced_by_any_way() -> None:
    network = Network()
    network.update({"scale": mx.zeros((4,))})
    assert not mx.any(network(X))
    network["scale"] = mx.ones((4,))
    assert mx.any(network(X))
    network.apply(lambda array: array * 0)
    assert not mx.any(network(X))


def test_what_is_removed_is_gone() -> None:
    network = Network()
    network.pop("scale")
    del network.first
    del network["parts"]
    for name in ("scale", "first", "parts"):
        assert name not in network
        with pytest.raises(AttributeError):
            getattr(network, name)
    network.first = 3  # no child any more
    assert network.first == 3
    network.first = mx.ones((1,))
    assert network["first"] is network.first


def test_copies_stand_on_their_own() -> None:
    network = Network()
    for other in (copy.copy(network), copy.deepcopy(network)):
        other.scale = mx.zeros((4,))
        assert not mx.any(other(X))
        assert mx.any(network(X))
