"""OLMo hybrid: three gated delta nets, normed before, to one attention layer, normed after (OLMo 2's wiring).

Released checkpoints rotate nothing: without a rope base in the config positions are left out. A delta net
is stored with one matrix and one filter each for queries, keys and values, which are joined here.
"""

from collections.abc import Mapping
from typing import Any

from runtime.cache.layout import Full, LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import RATES, Family
from runtime.nn.attention.self_attention import WideNormAttention
from runtime.nn.positions.rope import Rope
from runtime.nn.recurrent.conv import with_filters
from runtime.nn.recurrent.delta_net import DeltaSpec, GatedDeltaNet
from runtime.nn.residual.block import PostNorm, PreNormRecurrent
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights
from runtime.tensors.joined_rows import alike, joined_rows
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, gated_mlp, layer_ropes, rms_norms


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    bias: bool
    recurrent: tuple[bool, ...]
    delta: DeltaSpec


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    layers = layer_count(fields)
    shape = read_shape(fields, max_position_embeddings=65536)
    rope = one_rope(fields, shape) if _rotates(fields) else None
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(rope,) * layers,
        bias=fields.flag("attention_bias"),
        recurrent=_recurrent(fields, layers),
        delta=_delta(fields, shape),
    )


def _rotates(fields: Fields) -> bool:
    """Positions are switched off by a base that is null, in the block or, without it there, beside it."""
    block = fields.raw.get("rope_scaling") or fields.raw.get("rope_parameters")
    said = block if isinstance(block, Mapping) and "rope_theta" in block else fields.raw
    return said.get("rope_theta", 10000.0) is not None


def _recurrent(fields: Fields, layers: int) -> tuple[bool, ...]:
    kinds = fields.words("layer_types", layers, ("linear_attention", "full_attention"))
    if kinds is not None:
        return tuple(kind == "linear_attention" for kind in kinds)
    every_fourth = tuple(i % 4 != 3 for i in range(layers))
    return (*every_fourth[:-1], False) if all(every_fourth) else every_fourth


def _delta(fields: Fields, shape: Mapping[str, Any]) -> DeltaSpec:
    hidden, heads = shape["hidden_size"], shape["heads"]
    key_heads = fields.count("linear_num_key_heads", heads, high=4096)
    key_dim = fields.count("linear_key_head_dim", max(int(0.75 * hidden / key_heads), 1), high=4096)
    fields.choice("hidden_act", ("silu",), "silu")
    return DeltaSpec(
        key_heads=key_heads,
        value_heads=fields.count("linear_num_value_heads", heads, high=4096),
        key_dim=key_dim,
        value_dim=fields.count("linear_value_head_dim", 2 * key_dim, high=1 << 14),
        taps=fields.count("linear_conv_kernel_dim", 4, low=2, high=64),
        eps=1e-5,
        strength=2.0 if fields.flag("linear_allow_neg_eigval", True) else 1.0,
    )


def layout(config: Config) -> list[LayerSpec]:
    full = Full(config.kv_heads, config.head_dim)
    return [config.delta.memory if recurrent else full for recurrent in config.recurrent]


def _attention(config: Config, rope: Rope | None) -> WideNormAttention:
    bias = config.bias
    return WideNormAttention(config, rope, config.norm_eps, qkv_bias=bias, output_bias=bias)


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)

    def recurring() -> PreNormRecurrent:
        return PreNormRecurrent(GatedDeltaNet(config.hidden_size, config.delta), gated_mlp(config), norm)

    layers = [
        recurring() if recurrent else PostNorm(_attention(config, rope), gated_mlp(config), norm)
        for rope, recurrent in zip(layer_ropes(config), config.recurrent, strict=True)
    ]
    return CausalLM(config, layers, norm())


_RENAMED = (
    (".attention_layer_norm.", ".input_layernorm."),
    (".feedforward_layer_norm.", ".post_attention_layernorm."),
    (".linear_attn.a_proj.", ".linear_attn.in_proj_a."),
    (".linear_attn.b_proj.", ".linear_attn.in_proj_b."),
    (".linear_attn.g_proj.", ".linear_attn.in_proj_z."),
    (".linear_attn.o_proj.", ".linear_attn.out_proj."),
    (".linear_attn.o_norm.", ".linear_attn.norm."),
)
_MATRICES = tuple(f".linear_attn.{part}_proj." for part in "qkv")
_JOINED = (
    (_MATRICES, ".linear_attn.in_proj_qkv."),
    (tuple(f".linear_attn.{part}_conv1d." for part in "qkv"), ".linear_attn.conv1d."),
)


def adapt(config: Config, weights: Weights) -> Weights:
    """Names to those of Qwen3.5's delta net; queries, keys and values joined; filters to MLX's axis order."""
    named: Weights = {}
    for name, array in without_spares(config, weights).items():
        for old, new in _RENAMED:
            name = name.replace(old, new)
        named[name] = array
    for parts, whole in _JOINED:
        named = joined_rows(named, parts, whole)
    return with_filters(named)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    wide=RATES,
    checkpoint=always(Checkpoint(rows=(alike(_MATRICES),), joined=(_MATRICES,))),
)
