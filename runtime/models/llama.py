"""Llama and its closest kin: Llama 1-3.x, Mistral, Qwen2, Qwen3.

One pre-norm decoder: RMSNorm -> attention with rotary positions -> RMSNorm -> SwiGLU. The members differ in
four facts, all
read from the config: biases on q, k, v (Qwen2 always, Llama by flag), RMSNorm on each query and key head
(Qwen3), which layers look through a sliding window (Mistral, Qwen2 and Qwen3 by flag), and how positions are
scaled (rope).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Full, LayerSpec, Rotating
from runtime.models.config import Fields
from runtime.nn.attend import attend, split_heads
from runtime.nn.mlp import ACTIVATIONS, GatedMLP
from runtime.nn.rope import Rope, RopeSpec, read_rope
from runtime.step import Step


@dataclass(frozen=True, slots=True)
class Config:
    """windows[i] is layer i's sliding window in tokens, None for full attention."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    activation: str
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    head_norm: bool
    tied: bool
    context_length: int
    rope: RopeSpec
    windows: tuple[int | None, ...]


def parse(raw: Mapping[str, Any]) -> Config:
    """Fields as transformers 4 and 5 spell them. Raises UnsupportedModel naming the field that cannot be
    run.
    """
    fields = Fields(raw)
    family = str(fields.raw.get("model_type") or "llama")
    layers = fields.count("num_hidden_layers", high=4096)
    hidden = fields.count("hidden_size", high=1 << 20)
    heads = fields.count("num_attention_heads", high=4096)
    head_dim = fields.count("head_dim", max(hidden // heads, 1), high=4096)
    context = fields.count("max_position_embeddings", 32768 if family == "mistral" else 2048)
    theta = 10000.0
    bias = fields.flag("attention_bias", family == "qwen2")
    return Config(
        vocab_size=fields.count("vocab_size", high=1 << 24),
        hidden_size=hidden,
        intermediate_size=fields.count("intermediate_size", high=1 << 22),
        heads=heads,
        kv_heads=fields.count("num_key_value_heads", heads, high=heads),
        head_dim=head_dim,
        norm_eps=fields.number("rms_norm_eps", 1e-6, low=0.0),
        activation=fields.choice("hidden_act", tuple(ACTIVATIONS), "silu"),
        qkv_bias=bias or family == "qwen2",
        output_bias=bias and family != "qwen2",
        mlp_bias=fields.flag("mlp_bias"),
        head_norm=family == "qwen3",
        tied=fields.flag("tie_word_embeddings"),
        context_length=context,
        rope=read_rope(fields.rope_parameters(theta=theta), head_dim=head_dim, max_positions=context),
        windows=_windows(fields, family, layers),
    )


def _windows(fields: Fields, family: str, layers: int) -> tuple[int | None, ...]:
    if family == "llama" or not fields.has("sliding_window"):
        return (None,) * layers
    window = fields.count("sliding_window")
    if family == "mistral":
        return (window,) * layers
    if not fields.flag("use_sliding_window"):
        return (None,) * layers
    kinds = fields.words("layer_types", layers, ("full_attention", "sliding_attention"))
    if kinds is not None:
        return tuple(window if kind == "sliding_attention" else None for kind in kinds)
    first = fields.count("max_window_layers", 28, low=0)
    return tuple(window if i >= first else None for i in range(layers))


def layout(config: Config) -> list[LayerSpec]:
    return [
        Full(config.kv_heads, config.head_dim)
        if window is None
        else Rotating(config.kv_heads, config.head_dim, window)
        for window in config.windows
    ]


class Attention(nn.Module):
    """Grouped-query attention with rotary positions, [B, L, D] -> [B, L, D]."""

    def __init__(self, config: Config, rope: Rope) -> None:
        super().__init__()
        inner, shared = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, inner, bias=config.qkv_bias)
        self.k_proj = nn.Linear(config.hidden_size, shared, bias=config.qkv_bias)
        self.v_proj = nn.Linear(config.hidden_size, shared, bias=config.qkv_bias)
        self.o_proj = nn.Linear(inner, config.hidden_size, bias=config.output_bias)
        if config.head_norm:
            self.q_norm = nn.RMSNorm(config.head_dim, eps=config.norm_eps)
            self.k_norm = nn.RMSNorm(config.head_dim, eps=config.norm_eps)
        self._config = config
        self._rope = rope
        self._scale = config.head_dim**-0.5

    def __call__(self, x: mx.array, step: Step, cache: Any) -> mx.array:
        config = self._config
        queries = split_heads(self.q_proj(x), config.heads)
        keys = split_heads(self.k_proj(x), config.kv_heads)
        values = split_heads(self.v_proj(x), config.kv_heads)
        if config.head_norm:
            queries, keys = self.q_norm(queries), self.k_norm(keys)
        queries, keys = self._rope(queries, step), self._rope(keys, step)
        return self.o_proj(attend(step, cache, queries, keys, values, scale=self._scale))


class Block(nn.Module):
    def __init__(self, config: Config, rope: Rope) -> None:
        super().__init__()
        self.self_attn = Attention(config, rope)
        self.mlp = GatedMLP(
            config.hidden_size, config.intermediate_size, activation=config.activation, bias=config.mlp_bias
        )
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)

    def __call__(self, x: mx.array, step: Step, cache: Any) -> mx.array:
        x = x + self.self_attn(self.input_layernorm(x), step, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class Trunk(nn.Module):
    """Everything below the output head; named as the checkpoints name it (`model.`)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        rope = Rope(config.rope)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = [Block(config, rope) for _ in config.windows]
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)

    def __call__(self, tokens: mx.array, step: Step, caches: Sequence[Any]) -> mx.array:
        x = self.embed_tokens(tokens)
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, step, cache)
        return self.norm(x)


class Llama(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.model = Trunk(config)
        if not config.tied:
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self._tied = config.tied

    def __call__(self, tokens: mx.array, step: Step, caches: Sequence[Any]) -> mx.array:
        return self.model(tokens, step, caches)

    def logits(self, hidden: mx.array) -> mx.array:
        return self.model.embed_tokens.as_linear(hidden) if self._tied else self.lm_head(hidden)


def build(config: Config) -> Llama:
    return Llama(config)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Drop what carries no information: stored rotary tables, and a head that repeats a tied embedding."""
    spare_head = ("lm_head.",) if config.tied else ()
    return {
        name: array
        for name, array in weights.items()
        if not name.endswith("rotary_emb.inv_freq") and not name.startswith(spare_head)
    }
