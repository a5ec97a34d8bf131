"""GLM-4 (0414): norms before and after both sublayers, half of each head rotated in neighbouring pairs.

Gate and up are one matrix. Its predecessor, GLM-4 9B, lacks the norms after; its MoE successors are
elsewhere. GLM-4.1V's text model is it, but for what a file may leave out, and GLM-OCR's, without biases.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import StepCache
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.feed_forward.mlp import FusedGatedMLP
from runtime.nn.norm import Normalize
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import Block as Sublayers
from runtime.nn.residual.block import NormedSublayer, PreNorm
from runtime.nn.residual.sublayer import added
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, layer_ropes, rms_norms


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    qkv_bias: bool
    after: bool
    """There are norms behind the sublayers."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    family = fields.choice("model_type", ("glm", "glm4", "glm4v_text", "glm_ocr_text"))
    pictured = family in ("glm4v_text", "glm_ocr_text")
    equal = fields.count("hidden_size") // fields.count("num_attention_heads")
    shape = read_shape(
        fields,
        eps=1e-5 if pictured else 1.5625e-07,
        num_key_value_heads=2,
        head_dim=equal if pictured else 128,
        max_position_embeddings=32768 if pictured else 131072,
    )
    layers = layer_count(fields)
    if family == "glm4v_text" and shape["head_dim"] != equal:
        fields.refuse("head_dim", "hidden_size / num_attention_heads")
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape, partial=1.0 if pictured else 0.5, traditional=True),) * layers,
        qkv_bias=family == "glm4v_text" or (not pictured and fields.flag("attention_bias", True)),
        after=family != "glm",
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class Block(Sublayers):
    """Checkpoints call the norm before the MLP `post_attention_layernorm`, and those after by sublayer."""

    def __init__(self, config: Config, rope: Rope | None) -> None:
        super().__init__()
        norm = rms_norms(config)
        self.self_attn = _attention(config, rope)
        self.mlp = _mlp(config)
        self.input_layernorm: Normalize = norm()
        self.post_self_attn_layernorm: Normalize = norm()
        self.post_attention_layernorm: Normalize = norm()
        self.post_mlp_layernorm: Normalize = norm()

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        before, after = self.input_layernorm, self.post_self_attn_layernorm
        x = added(x, self.self_attn, step, cache, norm=before, after=after)
        before, after = self.post_attention_layernorm, self.post_mlp_layernorm
        return added(x, self.mlp, step, norm=before, after=after)

    def sublayers(self) -> tuple[NormedSublayer, ...]:
        return (
            (self.self_attn, self.input_layernorm, self.post_self_attn_layernorm),
            (self.mlp, self.post_attention_layernorm, self.post_mlp_layernorm),
        )


def _attention(config: Config, rope: Rope | None) -> SelfAttention:
    return SelfAttention(config, rope, qkv_bias=config.qkv_bias)


def _mlp(config: Config) -> FusedGatedMLP:
    return FusedGatedMLP(config.hidden_size, config.intermediate_size, activation=config.activation)


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)
    layers = [
        Block(config, rope) if config.after else PreNorm(_attention(config, rope), _mlp(config), norm)
        for rope in layer_ropes(config)
    ]
    return CausalLM(config, layers, norm())


def _checkpoint(config: Mapping[str, Any]) -> Checkpoint:
    """GLM-OCR's files have a draft head."""
    return Checkpoint(heads_behind=str(config.get("model_type")).startswith("glm_ocr"))


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=without_spares, checkpoint=_checkpoint)
