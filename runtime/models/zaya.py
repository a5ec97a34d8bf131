"""ZAYA: queries and keys that two short convolutions mix with those before them, values of which one half is
the token's before, and one expert for each token, or none.

Routers have hidden states of their own, which go from layer to layer beside the stream; here they stand
behind it, [x | router]. The stream is float32. Factors and biases are learned for what a sublayer answers and
for what it is added to.

Dimensions: B rows, L tokens, D hidden size, H query heads, G key heads, K head size, R router size.
Sources: arXiv 2510.04476; transformers modeling_zaya.py.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec, Recurrent, State
from runtime.cache.protocol import AttentionCache, Caches, ScanningCache, by_layer
from runtime.config.decoder import DecoderConfig, layer_count, read_shape
from runtime.config.fields import Fields
from runtime.config.rope_block import one_of_several
from runtime.models.family import Family
from runtime.nn.activation import gelu
from runtime.nn.attention.attend import attend, split_heads
from runtime.nn.feed_forward.experts import Experts
from runtime.nn.linear import embed, linear
from runtime.nn.module import Module
from runtime.nn.norm import RMSNorm, rms
from runtime.nn.operations import ops
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec, read_rope
from runtime.nn.recurrent.conv import CausalConv, with_filters
from runtime.nn.residual.sublayer import projections
from runtime.nn.scans.causal_conv import causal_conv, last_inputs
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import attention_layout, layer_ropes
from runtime.trunks.headed import Headed, untied_head


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    """`intermediate_size` is an expert's."""

    bias: bool
    """Of attention's projections."""
    head_bias: bool
    experts: int
    router: int
    """Size of the routers' hidden states."""
    taps: tuple[int, int]
    """Of the convolutions: of each channel by itself, then of each head's channels together."""


_KINDS = "hybrid", "hybrid_sliding"


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("zaya",))
    inner = fields.count("moe_intermediate_size", 2048, high=1 << 22)
    shape = read_shape(
        Fields({**fields.raw, "intermediate_size": inner}),
        eps=1e-5,
        tied=True,
        vocab_size=262272,
        hidden_size=2048,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=128,
        max_position_embeddings=131072,
    )
    if shape["kv_heads"] * shape["head_dim"] % 2:
        fields.refuse("head_dim", "an even number: a half of the values is the token's before")
    fields.count("num_experts_per_tok", 1, high=1)
    layers = layer_count(fields, 40)
    kinds = fields.words("layer_types", layers, _KINDS) or (_KINDS[0],) * layers
    window = fields.count("sliding_window") if _KINDS[1] in kinds else None
    ropes = {kind: _rope(fields, shape, kind) for kind in set(kinds)}
    head_bias = fields.flag("lm_head_bias")
    if head_bias and shape["tied"]:
        fields.refuse("lm_head_bias", "false, as the head is the table of embeddings")
    return Config(
        **shape,
        windows=tuple(window if kind == _KINDS[1] else None for kind in kinds),
        ropes=tuple(ropes[kind] for kind in kinds),
        bias=fields.flag("attention_bias"),
        head_bias=head_bias,
        experts=fields.count("num_experts", 16, high=1 << 16),
        router=fields.count("router_hidden_size", 256, high=1 << 20),
        taps=(fields.count("cca_time0", 2, low=2, high=64), fields.count("cca_time1", 2, high=64)),
    )


_THETAS = dict(zip(_KINDS, (5e6, 1e4), strict=True))


def _rope(fields: Fields, shape: dict[str, Any], kind: str) -> RopeSpec:
    """A block for each kind of layer, and no other way to say it."""
    if fields.has("rope_scaling"):
        fields.refuse("rope_scaling", "none: here rope_parameters has a block for each type of layer")
    usual = {one: {"rope_theta": theta, "partial_rotary_factor": 0.5} for one, theta in _THETAS.items()}
    block = fields.take("rope_parameters", usual)
    inside = block.get(kind) if isinstance(block, Mapping) else None
    if not isinstance(inside, Mapping) or inside.get("rope_theta") is None:
        fields.refuse("rope_parameters", f"a block {kind} with its rope_theta")
    own = one_of_several(inside, f"rope_parameters.{kind}")
    parameters = Fields({"rope_parameters": own}, under=f"rope_parameters.{kind}").rope_parameters()
    return read_rope(parameters, head_dim=shape["head_dim"], max_positions=shape["context_length"])


def layout(config: Config) -> list[LayerSpec]:
    """Of each layer what its convolutions and its values remember, then keys and values."""
    values = config.kv_heads * config.head_dim
    channels = config.heads * config.head_dim + values
    last = Recurrent({"conv": State((sum(config.taps) - 2, channels)), "value": State((1, values // 2))})
    return [spec for one in attention_layout(config) for spec in (last, one)]


class HeadsConv(Module):
    """A convolution of each head's channels together: weight [channels, K, taps], as PyTorch has it."""

    def __init__(self, heads: int, size: int, taps: int) -> None:
        super().__init__()
        self.weight, self.bias = mx.zeros((heads * size, size, taps)), mx.zeros((heads * size,))
        self._heads, self._size, self._taps = heads, size, taps

    def __call__(self, x: mx.array) -> mx.array:
        """[B, taps - 1 + L, channels] -> [B, L, channels]"""
        batch, width = x.shape[0], x.shape[1] - self._taps + 1
        heads = x.reshape(batch, -1, self._heads, self._size).swapaxes(1, 2)
        parts = [heads[:, :, place : place + width] for place in range(self._taps)]
        matrices = self.weight.reshape(self._heads, self._size, self._size, self._taps)
        matrices = matrices.swapaxes(2, 3).reshape(self._heads, self._size, -1).astype(x.dtype)
        mixed = ops.table.matmul(mx.concatenate(parts, axis=-1), matrices, transposed=True)
        return mixed.swapaxes(1, 2).reshape(batch, width, -1) + self.bias.astype(x.dtype)


class Mixed(Module):
    """Queries [B, H, L, K], keys and values [B, G, L, K] of tokens and of those before them."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.heads * config.head_dim
        shared, heads = config.kv_heads * config.head_dim, config.heads + config.kv_heads
        self.q_proj = nn.Linear(hidden, inner, bias=config.bias)
        self.k_proj = nn.Linear(hidden, shared, bias=config.bias)
        self.v_proj_current = nn.Linear(hidden, shared // 2, bias=config.bias)
        self.v_proj_delayed = nn.Linear(hidden, shared // 2, bias=config.bias)
        self.conv_qk_depthwise = CausalConv(inner + shared, config.taps[0], bias=True)
        self.conv_qk_grouped = HeadsConv(heads, config.head_dim, config.taps[1])
        self._heads, self._kv_heads, self._inner = config.heads, config.kv_heads, inner
        self._kept, self._first = sum(config.taps) - 2, config.taps[0] - 1

    def __call__(self, x: mx.array, step: Step, last: ScanningCache) -> tuple[mx.array, mx.array, mx.array]:
        opening = self.q_proj, self.k_proj, self.v_proj_current, self.v_proj_delayed
        queries, keys, current, delayed = projections(opening, x, step)
        both = mx.concatenate([queries, keys], axis=-1)
        found = last.scan(step, self._scan, both, delayed)
        mixed, before = found[..., : both.shape[-1]], found[..., both.shape[-1] :]
        if 0 in step.starts and ("bias" in self.v_proj_delayed or step.adapters is not None):
            nothing = linear(self.v_proj_delayed, mx.zeros_like(x[:, :1]), step)
            before = mx.where((step.indices == 0)[..., None], nothing, before)
        queries, keys = split_heads(queries, self._heads), split_heads(keys, self._kv_heads)
        shares = self._heads // self._kv_heads
        queries = (queries + mx.repeat(keys, shares, axis=1)) * 0.5
        keys = mx.unflatten(queries, 1, (self._kv_heads, shares)).mean(axis=2)
        queries = queries + split_heads(mixed[..., : self._inner], self._heads)
        keys = keys + split_heads(mixed[..., self._inner :], self._kv_heads)
        return queries, keys, split_heads(mx.concatenate([current, before], axis=-1), self._kv_heads)

    def _scan(
        self, states: dict[str, mx.array], both: mx.array, delayed: mx.array, *, counts: mx.array | None
    ) -> tuple[mx.array, dict[str, mx.array]]:
        """What the convolutions make of the first, beside the second as it was one token before. What stands
        before the first token goes through both convolutions, as zeros.
        """
        window = mx.concatenate([states["conv"].astype(both.dtype), both], axis=1)
        own = self.conv_qk_depthwise
        inside, _ = causal_conv(window[:, self._first :], window[:, : self._first], own.weight, own.bias)
        values = mx.concatenate([states["value"].astype(delayed.dtype), delayed], axis=1)
        state = {"conv": last_inputs(window, self._kept, counts), "value": last_inputs(values, 1, counts)}
        return mx.concatenate([self.conv_qk_grouped(inside), values[:, :-1]], axis=-1), state


class QKNorm(Module):
    """A factor for each key head."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.temp = mx.ones((config.kv_heads,))

    def __call__(self, queries: mx.array, keys: mx.array) -> tuple[mx.array, mx.array]:
        """Heads of length sqrt(K)."""
        factors = self.temp.astype(keys.dtype)[:, None, None]
        return rms(queries, _LEAST), rms(keys, _LEAST) * factors


_LEAST = 1e-30
"""Added to the mean square of a head."""


class Attention(Module):
    def __init__(self, config: Config, rope: Rope | None) -> None:
        super().__init__()
        self.qkv_proj, self.qk_norm = Mixed(config), QKNorm(config)
        self.o_proj = nn.Linear(config.heads * config.head_dim, config.hidden_size, bias=config.bias)
        self._rope, self._scale = rope, config.head_dim**-0.5

    def __call__(self, x: mx.array, step: Step, caches: tuple[ScanningCache, AttentionCache]) -> mx.array:
        last, memory = caches
        queries, keys, values = self.qkv_proj(x, step, last)
        queries, keys = self.qk_norm(queries, keys)
        seen = attend(step, memory, queries, keys, values, scale=self._scale, rope=self._rope)
        return linear(self.o_proj, seen, step)


class RouterMLP(Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        size = config.router
        self.norm = RMSNorm(size, eps=config.norm_eps)
        self.fc1, self.fc2 = nn.Linear(size, size), nn.Linear(size, size)
        self.out_proj = nn.Linear(size, config.experts + 1, bias=False)

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        x = gelu(linear(self.fc1, self.norm(x), step))
        return linear(self.out_proj, gelu(linear(self.fc2, x, step)), step)


class Router(Module):
    def __init__(self, config: Config, place: int) -> None:
        super().__init__()
        self.down_proj = nn.Linear(config.hidden_size, config.router)
        if place:
            self.router_states_scale = mx.ones((config.router,))
        self.router_mlp = RouterMLP(config)
        self.balancing_biases = mx.zeros((config.experts + 1,))
        self._experts = config.experts

    def __call__(self, x: mx.array, before: mx.array, step: Step) -> tuple[mx.array, mx.array, mx.array]:
        """x [B, L, D], what the layer before has made [B, L, R] -> the expert of each token and its share
        [B, L, 1], and what the next layer is given. One more than there are experts stands for none.
        """
        made = linear(self.down_proj, x, step)
        if "router_states_scale" in self:
            made = made + before.astype(made.dtype) * self.router_states_scale.astype(made.dtype)
        shares = ops.table.softmax(self.router_mlp(made, step).astype(mx.float32))
        ranked = shares + self.balancing_biases.astype(mx.float32)
        chosen = mx.argmax(ranked, axis=-1, keepdims=True)
        none = chosen == self._experts
        share = mx.where(none, 0, mx.take_along_axis(shares, chosen, axis=-1))
        return mx.where(none, 0, chosen), share, made


class Mixture(Module):
    def __init__(self, config: Config, place: int) -> None:
        super().__init__()
        self.gate = Router(config, place)
        self.switch_mlp = Experts(
            config.hidden_size, config.intermediate_size, config.experts, activation=config.activation
        )

    def __call__(self, x: mx.array, before: mx.array, step: Step) -> tuple[mx.array, mx.array]:
        chosen, share, made = self.gate(x, before, step)
        return self.switch_mlp(x, (chosen, share), step), made


class Joined(Module):
    """An answer and what it is added to, each with a bias and then times a factor."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.hidden_states_scale, self.hidden_states_bias = mx.ones((hidden,)), mx.zeros((hidden,))
        self.residual_scale, self.residual_bias = mx.ones((hidden,)), mx.zeros((hidden,))

    def __call__(self, answer: mx.array, to: mx.array) -> mx.array:
        own = self.hidden_states_bias.astype(answer.dtype), self.hidden_states_scale.astype(answer.dtype)
        return (answer + own[0]) * own[1] + (to + self.residual_bias) * self.residual_scale


class Block(Module):
    def __init__(self, config: Config, rope: Rope | None, place: int) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.input_layernorm = RMSNorm(hidden, eps=config.norm_eps)
        self.self_attn = Attention(config, rope)
        self.post_attention_residual_scale = Joined(hidden)
        self.post_attention_layernorm = RMSNorm(hidden, eps=config.norm_eps)
        self.mlp = Mixture(config, place)
        self.post_mlp_residual_scale = Joined(hidden)
        self._hidden = hidden

    def __call__(self, x: mx.array, step: Step, caches: tuple[ScanningCache, AttentionCache]) -> mx.array:
        """x [B, L, D + R], float32"""
        stream, before = x[..., : self._hidden], x[..., self._hidden :]
        dtype = self.input_layernorm.weight.dtype
        answer = self.self_attn(self.input_layernorm(stream.astype(dtype)), step, caches)
        stream = self.post_attention_residual_scale(answer, stream)
        answer, made = self.mlp(self.post_attention_layernorm(stream.astype(dtype)), before, step)
        stream = self.post_mlp_residual_scale(answer, stream)
        return mx.concatenate([stream, made.astype(stream.dtype)], axis=-1)


class Trunk(Module):
    in_turn: ClassVar[str] = "layers"

    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.embed_tokens = nn.Embedding(config.vocab_size, hidden)
        self.input_hidden_states_scale = mx.ones((hidden,))
        self.input_hidden_states_bias = mx.zeros((hidden,))
        self.layers = [Block(config, rope, place) for place, rope in enumerate(layer_ropes(config))]
        self.norm = RMSNorm(hidden, eps=config.norm_eps)
        self._hidden, self._router = hidden, config.router

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        x = step.embedded(self.embed)
        stream = ((x + self.input_hidden_states_bias) * self.input_hidden_states_scale).astype(mx.float32)
        router = mx.zeros((*x.shape[:2], self._router), mx.float32)
        pairs = by_layer(caches, 2)
        out = ops.table.layers(self.layers, mx.concatenate([stream, router], axis=-1), step, pairs)
        return self.norm(out[..., : self._hidden].astype(x.dtype))

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return embed(self.embed_tokens, ids, step)


class Zaya(Headed):
    def __init__(self, config: Config) -> None:
        super().__init__(Trunk(config), untied_head(config, bias=config.head_bias))


def build(config: Config) -> Zaya:
    return Zaya(config)


def adapt(config: Config, weights: Weights) -> Weights:
    named = with_filters(without_spares(config, weights), "conv_qk_depthwise.weight")
    return to_switch(named, config.experts)


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt, wide=(".balancing_biases",))
