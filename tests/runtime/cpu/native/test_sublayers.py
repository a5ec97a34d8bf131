"""Sublayers in one node have the bits of the same steps in nodes of their own, in any company."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from runtime.cpu import native

if native.kernels is None:
    pytest.skip(f"no kernels: {native.status.reason}", allow_module_level=True)

from runtime.cpu.composed import Composed, by_name
from runtime.cpu.native import kernels, products
from runtime.nn.activation import XIELU
from runtime.nn.feed_forward.mlp import ACTIVATIONS, MLP, FusedGatedMLP, GatedMLP
from runtime.nn.norm import LayerNorm, RMSNorm
from runtime.nn.operations import ops
from runtime.nn.operations.plain import ACTIVATIONS as OTHERS
from runtime.nn.residual.sublayer import added
from runtime.parts.feed_forward import FeedForwardParts
from runtime.step import Step
from tests.runtime.cpu.native.rows import bits, normal, same_bits_in_any_company

CPU = ops.COLUMNS["cpu"]
PARTS = Composed(by_name(CPU, OTHERS))
D, F = 128, 192


def packed(rows: int, columns: int, *, bias: bool = False, seed: int = 0) -> Any:
    module = nn.Linear(columns, rows, bias=bias)
    module.weight = mx.array(normal(rows, columns, seed=seed, spread=0.1))
    if bias:
        module.bias = mx.array(normal(rows, seed=seed + 1))
    return module.to_quantized(64, 4)


def normed(kind: type[RMSNorm] | type[LayerNorm], seed: int) -> Any:
    norm = kind(D)
    norm.weight = mx.array(normal(D, seed=seed))
    return norm


def same(got: mx.array, wanted: mx.array) -> None:
    assert np.array_equal(bits(got), bits(wanted))


def opening(kind: str) -> tuple[list[Any], bool]:
    if kind == "pair":
        return [packed(F, D, bias=True), packed(F, D, seed=3)], False
    return [packed(2 * F if kind == "halves" else F, D)], kind == "halves"


@pytest.mark.parametrize("kind", ["pair", "halves", "act"])
@pytest.mark.parametrize("before", [RMSNorm, LayerNorm, None])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("activation", ["silu", "gelu_tanh", "relu2"])
def test_a_feed_forward_block(kind: str, before: Any, after: bool, activation: str) -> None:
    modules, halves = opening(kind)
    down, x = packed(D, F, bias=kind == "act", seed=5), normal(33, D)
    by = FeedForwardParts(
        None if before is None else normed(before, 1),
        modules,
        halves,
        activation,
        down,
        normed(RMSNorm, 2) if after else None,
    )
    whole = mx.array(x).reshape(3, 11, D)
    same(CPU.feed_forward(whole, by), PARTS.feed_forward(whole, by))
    if activation == "silu":
        same_bits_in_any_company(lambda x: CPU.feed_forward(x, by), x)


@pytest.mark.parametrize("kind", ["pair", "halves", "act"])
def test_what_is_activated_may_be_cut(kind: str) -> None:
    modules, halves = opening(kind)
    x, norms = normal(33, D), (normed(RMSNorm, 1), normed(RMSNorm, 2))
    by = FeedForwardParts(norms[0], modules, halves, "gelu_tanh", packed(D, F, seed=5), norms[1], cut=0.5)
    whole = mx.array(x).reshape(3, 11, D)
    same(CPU.feed_forward(whole, by), PARTS.feed_forward(whole, by))
    same_bits_in_any_company(lambda x: CPU.feed_forward(x, by), x)


def test_xielu_in_place_of_an_activation() -> None:
    bent = XIELU()
    made, x = MLP(D, F, bent), normal(33, D)
    made.up_proj, made.down_proj = packed(F, D), packed(D, F, seed=5)
    bent.alpha_n = mx.array([1.5])
    by = made.parts(normed(RMSNorm, 1), None)
    assert by is not None
    whole = mx.array(x).reshape(3, 11, D)
    same(CPU.feed_forward(whole, by), PARTS.feed_forward(whole, by))
    same_bits_in_any_company(lambda x: CPU.feed_forward(x, by), x)
    before = CPU.feed_forward(whole, by)
    bent.alpha_p = mx.array([0.5])
    assert not mx.array_equal(CPU.feed_forward(whole, by), before), "its numbers are those of its module"


@pytest.mark.parametrize("after", [False, True])
def test_a_closing_product(after: bool) -> None:
    module, behind = packed(D, F, bias=True), normed(RMSNorm, 1) if after else None
    x, to = normal(33, F), normal(33, D, seed=1)
    arrays = mx.array(x), mx.array(to)
    same(CPU.closing(module, *arrays, behind), PARTS.closing(module, *arrays, behind))
    same_bits_in_any_company(lambda x, to: CPU.closing(module, x, to, behind), x, to)


def test_several_products_of_one_x() -> None:
    modules, x = [packed(F, D), packed(D, D, bias=True)], mx.array(normal(2, 5, D))
    for got, module in zip(CPU.projections(modules, x), modules, strict=True):
        same(got, CPU.linear(module, x))


@pytest.mark.parametrize(
    "make",
    [
        lambda: GatedMLP(D, F),
        lambda: FusedGatedMLP(D, F, activation="gelu"),
        lambda: MLP(D, F, ACTIVATIONS["relu2"], bias=True),
    ],
)
def test_modules_add_by_themselves(make: Callable[[], nn.Module]) -> None:
    block, norm, step = make(), normed(RMSNorm, 1), Step((0,), (5,))
    nn.quantize(block, 64, 4)
    x = mx.array(normal(1, 5, D))
    with ops.using("cpu"):
        wanted = x + norm(block(norm(x), step))
        same(added(x, block, step, norm=norm, after=norm), wanted)

        class Doubling(type(block)):
            """Overrides the call alone, so that what it inherits must not be used."""

            def __call__(self, x: mx.array, step: Step) -> mx.array:
                return super().__call__(x, step) * 2

        block.__class__ = Doubling
        same(added(x, block, step), x + block(x, step))


def test_an_array_that_others_hold_is_not_overwritten() -> None:
    down, x = packed(D, F), mx.array(normal(4, D))
    before = bits(x).copy()
    mx.eval(CPU.feed_forward(x, FeedForwardParts(None, [packed(F, D)], False, "silu", down, None)))
    assert np.array_equal(bits(x), before)


def test_wrong_shapes_are_refused() -> None:
    def matrix(rows: int, columns: int) -> Any:
        module = packed(rows, columns)
        return products.matrix_of(kernels, module)

    x, norm = mx.zeros((2, D)), kernels.Norm(False, mx.ones((64,)), None, 1e-5)
    for call in (
        lambda: kernels.projections(x, norm, [matrix(64, D)]),
        lambda: kernels.projections(x, None, [matrix(64, 64)]),
        lambda: kernels.closing(x, matrix(64, D), None, mx.zeros((2, D))),
        lambda: kernels.Feeding([matrix(64, D), matrix(128, D)], False, 0, matrix(D, 64)),
        lambda: kernels.Feeding([matrix(64, D)], True, 0, matrix(D, 64)),
        lambda: kernels.Feeding([matrix(64, D)], False, 0, matrix(64, 64)),
        lambda: kernels.feed_forward(norm, kernels.Feeding([matrix(64, D)], False, 0, matrix(D, 64)), None),
        lambda: kernels.Chain(
            [kernels.feed_forward(None, kernels.Feeding([matrix(64, D)], False, 0, matrix(D, 64)), None)]
        )(x[:, :64]),
        lambda: kernels.Norm(False, None, mx.ones((D,)), 1e-5),
        lambda: kernels.closing(x, matrix(D, D), kernels.Norm(False, None, None, 1e-5, 2.0), x),
        lambda: kernels.projections(x, kernels.Norm(True, mx.ones((2, D)), None, 1e-5), [matrix(64, D)]),
    ):
        with pytest.raises(ValueError, match=r"must|wide|norm|opens"):
            call()
