"""Blocks that store the same matrices in another way compute the same."""

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from runtime.nn.feed_forward.mlp import MLP, FusedGatedMLP, GatedMLP
from runtime.step import Step

STEP = Step((0, 0), (3, 3))
X = mx.random.normal((2, 3, 8), key=mx.random.key(0))


def test_fused_gate_and_up_equal_them_apart() -> None:
    apart, fused = GatedMLP(8, 12), FusedGatedMLP(8, 12)
    fused.gate_up_proj.weight = mx.concatenate([apart.gate_proj.weight, apart.up_proj.weight])
    fused.down_proj.weight = apart.down_proj.weight
    assert np.allclose(fused(X, STEP), apart(X, STEP), atol=1e-6)


def test_without_a_gate() -> None:
    block = MLP(8, 12, nn.relu2, bias=True)
    up = X @ block.up_proj.weight.T + block.up_proj.bias
    wanted = mx.square(mx.maximum(up, 0)) @ block.down_proj.weight.T + block.down_proj.bias
    assert np.allclose(block(X, STEP), wanted, atol=1e-6)
