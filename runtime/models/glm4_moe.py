"""GLM-4.5 to 4.7, and Sarvam 30B: mixtures and draft heads are those of DeepSeek-V3.

GLM rotates part of each head, Sarvam all of it. Files of Sarvam have one matrix for queries, keys and values.
"""

from collections.abc import Mapping
from typing import Any

from runtime.cache.layout import Full, LayerSpec
from runtime.config.decoder import layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import CORRECTIONS, Family, Head
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.joined_rows import parted_rows
from runtime.tensors.names import spelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, rms_norms, self_attention
from runtime.trunks.draft_heads import DraftHead, Predictor, head_only, without_head
from runtime.trunks.mixture import MixtureConfig, feed_forward, read_mixture


@dataclass(frozen=True, slots=True)
class Config(MixtureConfig):
    rope: RopeSpec
    """Of all layers and draft heads."""
    bias: bool
    """Of the projections to queries, keys and values."""
    head_norm: bool
    """Queries and keys are normed per head."""
    dense: int
    """So many first layers have plain MLPs, the others mixtures."""
    draft_heads: int
    """Stored behind the last layer; 0: none."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    pictured, sarvam = (fields.raw.get("model_type") == kind for kind in ("glm4v_moe_text", "sarvam_moe"))
    heads: dict[str, Any] = (
        {"num_key_value_heads": 4, "head_dim": 64} if sarvam else {"num_key_value_heads": 8}
    )
    shape = read_shape(fields, eps=1e-6 if sarvam else 1e-5, max_position_embeddings=131072, **heads)
    layers = layer_count(fields)
    theta, share = (8e6, 1.0) if sarvam else (10000.0, 0.5)
    rope = one_rope(fields, shape, theta=theta, partial=share)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(rope,) * layers,
        rope=rope,
        bias=fields.flag("attention_bias", pictured),
        head_norm=not pictured and fields.flag("use_qk_norm", sarvam),
        dense=fields.count("first_k_dense_replace", 1, low=0),
        mixture=read_mixture(
            fields,
            experts=128,
            chosen=6 if sarvam else 8,
            inner=1024 if sarvam else 1408,
            scale=2.5 if sarvam else 1.0,
        ),
        draft_heads=fields.count("num_nextn_predict_layers", 0, low=0, high=16),
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def _block(config: Config, rope: Rope, *, sparse: bool) -> PreNorm:
    attention = self_attention(config, rope, head_norm=config.head_norm, qkv_bias=config.bias)
    mlp = feed_forward(config, sparse=sparse)
    return PreNorm(attention, mlp, rms_norms(config))


def build(config: Config) -> CausalLM:
    rope = Rope(config.rope)
    layers = [_block(config, rope, sparse=i >= config.dense) for i in range(config.layers)]
    return CausalLM(config, layers, rms_norms(config)())


SARVAM = (
    ("model.word_embeddings.", "model.embed_tokens."),
    (".attention.", ".self_attn."),
    (".self_attn.dense.", ".self_attn.o_proj."),
    (".self_attn.query_layernorm.", ".self_attn.q_norm."),
    (".self_attn.key_layernorm.", ".self_attn.k_norm."),
    (".mlp.gate.expert_bias", ".mlp.gate.e_score_correction_bias"),
)
"""Names in its files."""
_PARTS = tuple(f".{part}_proj." for part in "qkv")


def adapt(config: Config, weights: Weights) -> Weights:
    """The target's tensors; the draft heads' are `adapt_head`'s."""
    named = {spelled(name, SARVAM): array for name, array in without_spares(config, weights).items()}
    rows = tuple(heads * config.head_dim for heads in (config.heads, *[config.kv_heads] * 2))
    named = parted_rows(named, ".query_key_value.", _PARTS, rows)
    return to_switch(without_head(named, config.layers, config.draft_heads), config.mixture.experts)


def build_head(config: Config) -> DraftHead:
    rope = Rope(config.rope)
    blocks = [_block(config, rope, sparse=True) for _ in range(config.draft_heads)]
    return DraftHead([Predictor(config.hidden_size, config.norm_eps, block) for block in blocks])


def head_layout(config: Config) -> list[LayerSpec]:
    return [Full(config.kv_heads, config.head_dim)] * config.draft_heads


def adapt_head(config: Config, weights: Weights) -> Weights:
    """The draft heads' tensors, {} when the file has none."""
    return to_switch(head_only(weights, config.layers, config.draft_heads), config.mixture.experts)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    wide=CORRECTIONS,
    head=Head(layout=head_layout, build=build_head, adapt=adapt_head),
    checkpoint=always(Checkpoint(heads_behind=True, modules=SARVAM)),
)
