"""OpenELM: a Llama whose layers grow: each has its own number of heads and size of MLP (arXiv 2404.14619)."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.cache.layout import Full, LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, one_rope
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.feed_forward.mlp import ACTIVATIONS, FusedGatedMLP
from runtime.nn.layer import Mixer
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.tensors.experts import Weights
from runtime.tensors.joined_rows import parted_rows
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, layer_ropes, rms_norms, self_attention


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    """`heads`, `kv_heads` and `intermediate_size` are the largest."""

    head_counts: tuple[tuple[int, int], ...]
    """Of each layer: of queries, and of keys."""
    inner: tuple[int, ...]
    """Of each layer: its MLP's size."""
    head_norm: bool


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("openelm",))
    hidden, layers = fields.count("hidden_size", high=1 << 20), layer_count(fields)
    if not fields.flag("ffn_with_glu", True):
        fields.refuse("ffn_with_glu", "true: MLPs have gates here")
    fields.choice("normalization_layer_name", ("rms_norm",), "rms_norm")
    counts = tuple(zip(*(_for_each_layer(fields, name, layers) for name in _COUNTS), strict=True))
    if any(type(n) is not int or n > 4096 for pair in counts for n in pair) or any(q % k for q, k in counts):
        fields.refuse("num_query_heads", "for each layer a multiple of num_kv_heads")
    divisor = fields.count("ffn_dim_divisor", 256, high=1 << 16)
    inner = tuple(_divisible(n * hidden, divisor) for n in _for_each_layer(fields, "ffn_multipliers", layers))
    size = fields.count("head_dim", 128, high=4096)
    shape: dict[str, Any] = {
        "vocab_size": fields.count("vocab_size", high=1 << 24),
        "hidden_size": hidden,
        "intermediate_size": max(inner),
        "heads": max(queries for queries, _ in counts),
        "kv_heads": max(keys for _, keys in counts),
        "head_dim": size,
        "norm_eps": fields.number("rms_norm_eps", 1e-6, low=1e-30),
        "activation": fields.choice("activation_fn_name", tuple(ACTIVATIONS), "swish"),
        "tied": fields.flag("share_input_output_layers", True),
        "context_length": fields.count("max_position_embeddings", 2048),
    }
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape),) * layers,
        head_counts=counts,
        inner=inner,
        head_norm=fields.flag("normalize_qk_projections", True),
    )


_COUNTS = "num_query_heads", "num_kv_heads"


def _for_each_layer(fields: Fields, name: str, layers: int) -> list[Any]:
    """A number above zero for each layer."""
    told = fields.raw.get(name)
    if not isinstance(told, list) or len(told) != layers or not all(map(_is_positive, told)):
        fields.refuse(name, f"a number above 0 for each of {layers} layers")
    return told


def _is_positive(one: Any) -> bool:
    return type(one) in (int, float) and 0 < one <= 1 << 16


def _divisible(size: float, by: int) -> int:
    """The nearest multiple, which is at least that number and nine tenths of the size."""
    found = max(by, int(size + by / 2) // by * by)
    return found + by if found < 0.9 * size else found


def layout(config: Config) -> list[LayerSpec]:
    return [Full(keys, config.head_dim) for _, keys in config.head_counts]


def build(config: Config) -> CausalLM:
    norm, hidden = rms_norms(config), config.hidden_size

    def attention(place: int, rope: Rope | None) -> Mixer:
        heads, keys = config.head_counts[place]
        shape = replace(config, heads=heads, kv_heads=keys)
        return self_attention(shape, rope, head_norm=config.head_norm)

    layers = [
        PreNorm(
            attention(place, rope),
            FusedGatedMLP(hidden, config.inner[place], activation=config.activation),
            norm,
        )
        for place, rope in enumerate(layer_ropes(config))
    ]
    return CausalLM(config, layers, norm())


_NAMES = (
    ("transformer.token_embeddings.", "model.embed_tokens."),
    ("transformer.", "model."),
    (".attn_norm.", ".input_layernorm."),
    (".ffn_norm.", ".post_attention_layernorm."),
    (".attn.out_proj.", ".self_attn.o_proj."),
    (".attn.pos_embedding.", ".self_attn.rotary_emb."),
    (".attn.", ".self_attn."),
    (".ffn.proj_1.", ".mlp.gate_up_proj."),
    (".ffn.proj_2.", ".mlp.down_proj."),
)
_FUSED = re.compile(r"model\.layers\.(\d{1,4})\.self_attn\.qkv_proj\.")


def adapt(config: Config, weights: Weights) -> Weights:
    """Queries, keys and values apart: heads of the first two have norms."""
    named, size = without_spares(config, respelled(weights, _NAMES, trunk="transformer.")), config.head_dim
    for name in list(named):
        found = _FUSED.match(name)
        if found is not None and int(found[1]) < config.layers:
            heads, keys = config.head_counts[int(found[1])]
            parts = tuple(f".{part}_proj." for part in "qkv")
            rows = heads * size, keys * size, keys * size
            named |= parted_rows({name: named.pop(name)}, ".qkv_proj.", parts, rows)
    return named


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
