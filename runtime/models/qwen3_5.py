"""Qwen3-Next, Qwen3.5 and its MoE: three gated delta nets to one gated attention layer.

Attention has normed heads, rotates a quarter of each, and multiplies its output by sigmoid of a gate that
q_proj brings along. The members differ in how the delta net's input projection is stored (Qwen3-Next
interleaves it by key head; put in order here) and in which layers are mixtures of experts (with a gated
shared expert). All norms but the delta net's are stored as weight - 1. A draft head (`mtp.`) predicts the
token after the next.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Full, LayerSpec
from runtime.cache.protocol import Caches, StepCache, by_layout
from runtime.errors import UnsupportedModel
from runtime.models.family import RATES, Family, Head
from runtime.models.qwen3_5_config import Config, parse
from runtime.nn.attention.gated_attention import GatedAttention
from runtime.nn.feed_forward.mlp import GatedMLP
from runtime.nn.feed_forward.moe import GatedSharedMoE
from runtime.nn.layer import Mixer
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import RMSNorm, plus_one
from runtime.nn.positions.rope import Rope
from runtime.nn.recurrent.conv import with_filters
from runtime.nn.recurrent.delta_net import DeltaSpec, GatedDeltaNet
from runtime.nn.residual.block import Block as Sublayers
from runtime.nn.residual.block import NormedSublayer
from runtime.nn.residual.sublayer import added
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.names import text_tensors
from runtime.tensors.quantizing import SOURCE, Row
from runtime.tensors.towers import USUAL
from runtime.trunks.decoder import CausalLM, head_norms


def layout(config: Config) -> list[LayerSpec]:
    full = Full(config.kv_heads, config.head_dim)
    return [config.delta.memory if recurrent else full for recurrent in config.recurrent]


class Block(Sublayers):
    def __init__(self, config: Config, rope: Rope, *, recurrent: bool, sparse: bool) -> None:
        super().__init__()
        hidden = config.hidden_size
        if recurrent:
            self.linear_attn = GatedDeltaNet(hidden, config.delta)
        else:
            self.self_attn = GatedAttention(config, rope, head_norms(config), bias=config.bias)
        if sparse and config.expert:
            spec = config.expert
            self.mlp = GatedSharedMoE(
                hidden,
                spec.inner,
                spec.experts,
                spec.chosen,
                shared=spec.shared,
                normalize=spec.normalize,
                activation=config.activation,
            )
        else:
            self.mlp = GatedMLP(hidden, config.intermediate_size, activation=config.activation)
        self.input_layernorm = RMSNorm(hidden, eps=config.norm_eps)
        self.post_attention_layernorm = RMSNorm(hidden, eps=config.norm_eps)
        self._recurrent = recurrent

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        x = added(x, self._mixer, step, cache, norm=self.input_layernorm)
        return added(x, self.mlp, step, norm=self.post_attention_layernorm)

    def sublayers(self) -> tuple[NormedSublayer, ...]:
        return (self._mixer, self.input_layernorm, None), (self.mlp, self.post_attention_layernorm, None)

    @property
    def _mixer(self) -> Mixer:
        return self.linear_attn if self._recurrent else self.self_attn


def _rope(config: Config) -> Rope:
    spec = config.ropes[0]
    assert spec is not None
    return Rope(spec)


def build(config: Config) -> CausalLM:
    rope = _rope(config)
    layers = [
        Block(config, rope, recurrent=recurrent, sparse=sparse)
        for recurrent, sparse in zip(config.recurrent, config.sparse, strict=True)
    ]
    return CausalLM(config, layers, RMSNorm(config.hidden_size, eps=config.norm_eps))


def adapt(config: Config, weights: Weights) -> Weights:
    """The target's tensors; the draft head's are `adapt_head`'s."""
    return {name: array for name, array in adapted(config, weights).items() if not name.startswith("mtp.")}


class Predictor(Module):
    """From a token's embedding and the hidden state before it to the hidden state that predicts the token
    after.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden, eps, rope = config.hidden_size, config.norm_eps, _rope(config)
        self.pre_fc_norm_embedding = RMSNorm(hidden, eps=eps)
        self.pre_fc_norm_hidden = RMSNorm(hidden, eps=eps)
        self.fc = nn.Linear(2 * hidden, hidden, bias=False)
        sparse = config.expert is not None
        self.layers = [Block(config, rope, recurrent=False, sparse=sparse) for _ in range(config.head_layers)]
        self.norm = RMSNorm(hidden, eps=eps)


class DraftHead(Module):
    """The draft head under the names it has in the target's file. Embedding and output head are the
    target's.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.mtp = Predictor(config)

    def __call__(self, step: Step, caches: Caches, hidden: mx.array, *, depth: int = 0) -> mx.array:
        """step: brings the tokens at positions p + 1 as the target's table has them; hidden: the normed
        states at p; all [B, L, D].

        hidden is the target's for depth 0, and what depth - 1 returned for the others.
        """
        mtp = self.mtp
        joined = [mtp.pre_fc_norm_embedding(step.vectors), mtp.pre_fc_norm_hidden(hidden)]
        place = depth % len(mtp.layers)
        x = linear(mtp.fc, mx.concatenate(joined, axis=-1), step)
        return mtp.norm(mtp.layers[place](x, step, by_layout(caches)[place]))


def build_head(config: Config) -> DraftHead:
    return DraftHead(config)


def head_layout(config: Config) -> list[LayerSpec]:
    return [Full(config.kv_heads, config.head_dim)] * config.head_layers


def adapt_head(config: Config, weights: Weights) -> Weights:
    """The draft head's tensors, {} when the file has none."""
    return {name: array for name, array in adapted(config, weights).items() if name.startswith("mtp.")}


_SHIFTED = re.compile(r"(?!.*\.linear_attn\.norm\.).*norm\w*\.weight")


def adapted(config: Config, weights: Weights) -> Weights:
    """Files as Qwen publishes them store filters of C channels [C, 1, k] and norms less one; MLX's have both
    put right.
    """
    stored = any(name.endswith("conv1d.weight") and array.shape[-1] != 1 for name, array in weights.items())
    named = text_tensors(config, weights)
    if config.expert:
        named = to_switch(named, config.expert.experts)
    out: Weights = {}
    for name, array in with_filters(named).items():
        if stored and _SHIFTED.fullmatch(name):
            array = plus_one(array)
        out.update(_in_order(config.delta, name, array))
    return out


def _in_order(spec: DeltaSpec, name: str, array: mx.array) -> Weights:
    """Qwen3-Next's interleaved projections -> the four of Qwen3.5. Rows move, so packed rows move alike."""
    value = spec.value_heads // spec.key_heads
    wide, narrow = spec.key_dim, value * spec.value_dim
    if ".in_proj_qkvz." in name:
        q, k, v, z = _columns(array, spec.key_heads, (wide, wide, narrow, narrow))
        return {
            name.replace("qkvz", "qkv"): mx.concatenate([q, k, v]),
            name.replace("qkvz", "z"): z,
        }
    if ".in_proj_ba." in name:
        b, a = _columns(array, spec.key_heads, (value, value))
        return {name.replace("_ba.", "_b."): b, name.replace("_ba.", "_a."): a}
    return {name: array}


def _columns(array: mx.array, heads: int, sizes: tuple[int, ...]) -> list[mx.array]:
    """Rows stored head by head, each head's in parts of these sizes -> one array per part."""
    if array.ndim != 2 or array.shape[0] != heads * sum(sizes):
        raise UnsupportedModel(
            f"a delta net projection has shape {array.shape}, expected {heads * sum(sizes)} rows"
        )
    by_head = array.reshape(heads, sum(sizes), array.shape[1])
    stops = [sum(sizes[: i + 1]) for i in range(len(sizes) - 1)]
    return [part.flatten(0, 1) for part in mx.split(by_head, stops, axis=1)]


ROWS: tuple[Row, ...] = (
    Row(lambda t, _: t.has(".in_proj_a.", ".in_proj_b.", ".in_proj_ba."), SOURCE, "gate of the state"),
)


def _checkpoint(config: Mapping[str, Any]) -> Checkpoint:
    settled = config.get("model_type") == "qwen3_next"
    towers = replace(USUAL, projectors=(*USUAL.projectors, "merger."))  # MiniCPM-V's
    return Checkpoint(rows=ROWS, settled=settled, towers=towers, heads=("mtp.",))


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    wide=RATES,
    head=Head(layout=head_layout, build=build_head, adapt=adapt_head),
    checkpoint=_checkpoint,
)
