"""Attention modules whose projections are apart, fused or normed compute what their definitions say."""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from runtime.cache.layout import Full
from runtime.nn.attention.attend import merge_heads, split_heads
from runtime.nn.attention.fused_attention import FusedAttention
from runtime.nn.attention.self_attention import Attention, HeadNormAttention, SelfAttention
from runtime.nn.norm import RMSNorm
from runtime.nn.operations import plain
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec
from runtime.step import Step
from tests.support.oneshot import OneShot


@dataclass(frozen=True)
class Shape:
    hidden_size: int = 8
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 6


SHAPE = Shape()
ROPE = Rope(RopeSpec(6, (1.0, 10.0, 100.0)))
X = mx.random.normal((2, 5, 8), key=mx.random.key(0))
STEP = Step(starts=(0, 0), counts=(5, 5))


def run(module: Attention) -> mx.array:
    return module(X, STEP, OneShot(Full(SHAPE.kv_heads, SHAPE.head_dim)))


def test_equals_the_definition() -> None:
    module = SelfAttention(SHAPE, ROPE, scale=0.3, softcap=2.0)
    queries = ROPE(split_heads(module.q_proj(X), 4), STEP)
    keys, values = ROPE(split_heads(module.k_proj(X), 2), STEP), split_heads(module.v_proj(X), 2)
    seen = plain.attend(None, queries, keys, values, "causal", scale=0.3, softcap=2.0)
    assert np.allclose(run(module), module.o_proj(merge_heads(seen)), atol=1e-5)


def test_fused_equals_apart() -> None:
    apart, fused = (
        SelfAttention(SHAPE, ROPE, qkv_bias=True, output_bias=True),
        FusedAttention(SHAPE, ROPE, bias=True),
    )
    parts = [apart.q_proj, apart.k_proj, apart.v_proj]
    fused.qkv_proj.weight = mx.concatenate([part.weight for part in parts])
    fused.qkv_proj.bias = mx.concatenate([part.bias for part in parts])
    fused.o_proj = apart.o_proj
    assert np.allclose(run(fused), run(apart), atol=1e-6)


def test_without_positions_the_order_of_the_past_does_not_matter() -> None:
    module = SelfAttention(SHAPE, None)
    last = run(module)[:, -1]
    order = mx.array([2, 0, 3, 1, 4])
    shuffled = module(X[:, order], STEP, OneShot(Full(2, 6)))[:, -1]
    assert np.allclose(shuffled, last, atol=1e-5)


def test_head_norms_take_the_length_out_of_queries_and_keys() -> None:
    module = HeadNormAttention(SHAPE, ROPE, lambda _heads: RMSNorm(6, eps=1e-12))
    before = run(module)
    module.q_proj.weight = module.q_proj.weight * 5
    module.k_proj.weight = module.k_proj.weight * 5
    assert np.allclose(run(module), before, atol=1e-5)
