"""Jais, of 2023 and 2024, and BTLM: GPT-2's layers with ALiBi and SwiGLU, and muP's factors.

Embeddings and logits are multiplied by numbers of the config, and scores divided by the size of a head where
GPT-2's are by its root. Files from before muP's names call the factors otherwise. Slopes are stored, too, and
those that are computed are the same. What shrinks ALiBi for texts longer than those of training is not
computed: a context ends there.

Sources: arXiv 2308.16149, 2309.11568; vLLM's jais.py; llama.cpp's converter.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, read_older_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.models.gpt2 import outputs_first
from runtime.nn.attention.fused_attention import FusedAttention
from runtime.nn.positions.alibi import Alibi, slopes
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.names import GPT_NAMES, respelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, gated_mlp, layer_norms


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    scale: float
    """Of attention scores."""
    embed_scale: float
    logit_scale: float


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("activation_function", ("swiglu",))
    fields.choice("position_embedding_type", ("alibi",))
    fields.only({"scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False})
    meant = {**fields.raw, "activation_function": "silu"}
    shape = read_older_shape(
        Fields(meant), inner="n_inner", activation_field="activation_function", tied=True, vocab_size=50257
    )
    shape["context_length"] = _trained(fields, shape["context_length"])
    layers = layer_count(fields, 12)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(None,) * layers,
        scale=_score_scale(fields, shape["head_dim"]),
        embed_scale=fields.number("mup_embeddings_scale", 1.0),
        logit_scale=_logit_scale(fields),
    )


def _score_scale(fields: Fields, head_dim: int) -> float:
    if not fields.flag("scale_attn_weights", True):
        return 1.0
    return 1 / head_dim if fields.flag("mup_scale_qk_dot_by_d") else head_dim**-0.5


def _logit_scale(fields: Fields) -> float:
    if fields.has("width_scale"):
        return fields.number("width_scale")
    return fields.number("mup_output_alpha", 1.0) * fields.number("mup_width_scale", 1.0)


def _trained(fields: Fields, whole: int) -> int:
    """How long a text may be before ALiBi is shrunk."""
    if not fields.has("alibi_scaling"):
        return whole
    block = fields.block("alibi_scaling")
    if not block.has("train_seq_len"):
        fields.refuse("alibi_scaling", "none, or a train_seq_len up to which nothing is scaled")
    return min(whole, block.count("train_seq_len", low=2))


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> CausalLM:
    norm, biases = layer_norms(config), Alibi(slopes(config.heads))
    layers = [
        PreNorm(
            FusedAttention(config, None, bias=True, alibi=biases, scale=config.scale),
            gated_mlp(config, bias=True),
            norm,
        )
        for _ in config.windows
    ]
    return CausalLM(config, layers, norm(), embed_scale=config.embed_scale, logit_scale=config.logit_scale)


_NAMES = ((".mlp.c_fc2.", ".mlp.gate_proj."), *GPT_NAMES)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return without_spares(config, respelled(outputs_first(config, weights), _NAMES, trunk="transformer."))


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(
        Checkpoint(
            input_first=(".c_attn.weight", ".c_proj.weight", ".c_fc.weight", ".c_fc2.weight"),
            spare=(".attn.bias", ".attn.masked_bias", "relative_pe.slopes"),
        )
    ),
)
