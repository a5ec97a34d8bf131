"""DBRX: LayerNorms of weights alone, queries, keys and values within bounds, and many experts for MLPs.

Files have an expert's matrices below those of the one before it, the last of them input first. How positions
turn stands in `attn_config`: there the authors' code, llama.cpp and mlx-lm read it. transformers 5 goes by
the model's own fields, and takes 10000 for a base where these say none.

Source: transformers modeling_dbrx.py; databricks/dbrx.
"""

from collections.abc import Mapping
from typing import Any

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import (
    DecoderConfig,
    key_heads,
    layer_count,
    one_rope,
    read_older_shape,
)
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.models.mpt import Clipped
from runtime.nn.attention.fused_attention import FusedAttention
from runtime.nn.feed_forward.mlp import ACTIVATIONS
from runtime.nn.feed_forward.moe import SoftmaxMoE
from runtime.nn.norm import LayerNorm
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint
from runtime.tensors.experts import Weights, cut_piles, to_switch
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, layer_ropes

_EPS = 1e-5
"""transformers reads it from no file."""
_EXPERTS = 4
"""Where a file does not say it."""


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    clip: float | None
    """Queries, keys and values are held within [-clip, clip]; None: they are not."""
    experts: int
    chosen: int
    """Experts per token."""
    normalize: bool
    """The weights of the chosen are divided by their sum."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    attention, mixture = fields.block("attn_config"), fields.block("ffn_config")
    shape = read_older_shape(
        fields, length="max_seq_len", vocab_size=32000, hidden_size=2048, num_attention_heads=16
    )
    if shape["tied"]:
        fields.refuse("tie_word_embeddings", "false: no DBRX has a tied head")
    shape |= {
        "intermediate_size": mixture.count("ffn_hidden_size", 3584, high=1 << 22),
        "kv_heads": key_heads(attention, shape["heads"], 1, name="kv_n_heads"),
        "norm_eps": _EPS,
        "activation": _activation(mixture),
    }
    layers = layer_count(fields, 24)
    experts = mixture.count("moe_num_experts", _EXPERTS, high=1 << 16)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(_rope(fields, attention, shape),) * layers,
        clip=attention.number("clip_qkv", low=1e-6) if attention.has("clip_qkv") else None,
        experts=experts,
        chosen=mixture.count("moe_top_k", 1, high=experts),
        normalize=_normalizes(mixture),
    )


def _activation(mixture: Fields) -> str:
    act = mixture.block("ffn_act_fn")
    if set(act.raw) - {"name"}:
        mixture.refuse("ffn_act_fn", "a name and nothing else")
    return act.choice("name", tuple(ACTIVATIONS), "silu")


def _normalizes(mixture: Fields) -> bool:
    if mixture.flag("uniform_expert_assignment"):
        mixture.refuse("uniform_expert_assignment", "false: routers choose here")
    by = mixture.raw.get("moe_normalize_expert_weights", 1)
    if by not in (None, 1) or isinstance(by, bool):
        mixture.refuse(
            "moe_normalize_expert_weights", "1, by which weights are divided by their sum, or null"
        )
    return by is not None


def _rope(fields: Fields, attention: Fields, shape: dict[str, Any]) -> RopeSpec:
    theta = attention.number("rope_theta", 10000.0, low=2.0)
    beside = fields.rope_parameters(theta=theta)["rope_theta"]
    if attention.has("rope_theta") and theta != beside:
        said = next(name for name in ("rope_scaling", "rope_parameters", "rope_theta") if fields.has(name))
        attention.refuse("rope_theta", f"{beside:g} as {said} has it: one of them is wrong")
    return one_rope(fields, shape, theta=theta)


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def _attention(config: Config, rope: Rope | None) -> FusedAttention:
    if config.clip is None:
        return FusedAttention(config, rope)
    return Clipped(config, rope, config.clip)


def build(config: Config) -> CausalLM:
    def norm() -> LayerNorm:
        return LayerNorm(config.hidden_size, eps=config.norm_eps, bias=False)

    def mlp() -> SoftmaxMoE:
        return SoftmaxMoE(
            config.hidden_size,
            config.intermediate_size,
            config.experts,
            config.chosen,
            normalize=config.normalize,
            activation=config.activation,
        )

    layers = [PreNorm(_attention(config, rope), mlp(), norm) for rope in layer_ropes(config)]
    return CausalLM(config, layers, norm())


_NAMES = (
    ("transformer.blocks.", "model.layers."),
    ("transformer.wte.", "model.embed_tokens."),
    ("transformer.norm_f.", "model.norm."),
    (".norm_attn_norm.norm_1.", ".input_layernorm."),
    (".norm_attn_norm.norm_2.", ".post_attention_layernorm."),
    (".norm_attn_norm.attn.Wqkv.", ".self_attn.qkv_proj."),
    (".norm_attn_norm.attn.out_proj.", ".self_attn.o_proj."),
    (".ffn.router.layer.", ".mlp.gate."),
    (".ffn.experts.mlp.", ".mlp.experts."),
    (".ffn.", ".mlp."),
    (".w1", ".gate_proj"),
    (".v1", ".up_proj"),
    (".w2", ".down_proj"),
)


def adapt(config: Config, weights: Weights) -> Weights:
    named = respelled(without_spares(config, weights), _NAMES, trunk="transformer.")
    return to_switch(cut_piles(named, config.experts, config.hidden_size), config.experts)


_PILED = (
    ("experts.mlp.w1", ("gate_proj", False)),
    ("experts.mlp.v1", ("up_proj", False)),
    ("experts.mlp.w2", ("down_proj", True)),
)


def _checkpoint(text: Mapping[str, Any]) -> Checkpoint:
    block = text.get("ffn_config")
    count = block.get("moe_num_experts", _EXPERTS) if isinstance(block, Mapping) else _EXPERTS
    return Checkpoint(piled=_PILED, piles=count if type(count) is int else 0)


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt, checkpoint=_checkpoint)
