"""StableLM: LayerNorms, a quarter of each head rotated, sublayers one after the other or side by side.

StableLM 2 12B norms each query and key head with weights of that head; the checkpoint keeps one tensor per
head.
"""

import re
from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.self_attention import HeadNormAttention, SelfAttention
from runtime.nn.norm import HeadLayerNorm, Normalize
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import Parallel, PreNorm
from runtime.records import dataclass
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, gated_mlp, layer_norms, layer_ropes


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    bias: bool
    head_norm: bool
    parallel: bool


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape = read_shape(fields, eps_field="layer_norm_eps", eps=1e-5, max_position_embeddings=4096)
    layers = layer_count(fields)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape, partial=0.25),) * layers,
        bias=fields.flag("use_qkv_bias"),
        head_norm=fields.flag("qk_layernorm"),
        parallel=fields.flag("use_parallel_residual"),
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> CausalLM:
    norm = layer_norms(config)
    wiring = Parallel if config.parallel else PreNorm
    layers = [wiring(_attention(config, rope), gated_mlp(config), norm) for rope in layer_ropes(config)]
    return CausalLM(config, layers, norm())


def _attention(config: Config, rope: Rope | None) -> SelfAttention:
    if not config.head_norm:
        return SelfAttention(config, rope, qkv_bias=config.bias)

    def norm(heads: int) -> Normalize:
        return HeadLayerNorm(heads, config.head_dim, config.norm_eps)

    return HeadNormAttention(config, rope, norm, qkv_bias=config.bias)


_HEAD_NORM = re.compile(r"(.*self_attn\.[qk])_layernorm\.norms\.(\d+)\.weight")


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """The heads' norm weights of a layer become one tensor, self_attn.q_norm.weight [heads, head size]."""
    plain: dict[str, mx.array] = {}
    heads: dict[str, dict[int, mx.array]] = {}
    for name, array in without_spares(config, weights).items():
        match = _HEAD_NORM.fullmatch(name)
        if match is None:
            plain[name] = array
        else:
            heads.setdefault(f"{match[1]}_norm.weight", {})[int(match[2])] = array
    stacked = {name: mx.stack([rows[i] for i in sorted(rows)]) for name, rows in heads.items()}
    return plain | stacked


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
