"""BLOOM and BLOOMZ: ALiBi, LayerNorms, one of them on the embeddings, and one matrix for q, k and v, head by
head.

Published files hold the trunk alone, without `transformer.` before its names.

Sources: arXiv 2211.05100; transformers modeling_bloom.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, read_older_shape
from runtime.config.fields import Fields
from runtime.models.falcon import NAMES
from runtime.models.family import Family
from runtime.nn.activation import gelu_tanh
from runtime.nn.attention.fused_attention import GroupedAttention
from runtime.nn.feed_forward.mlp import MLP
from runtime.nn.layer import Layer
from runtime.nn.norm import Normalize
from runtime.nn.positions.alibi import Alibi, slopes
from runtime.nn.residual.block import PreNorm
from runtime.step import Step
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, Trunk, attention_layout, layer_norms


def parse(raw: Mapping[str, Any]) -> DecoderConfig:
    fields = Fields(raw)
    shape = read_older_shape(fields, length="seq_length", tied=True)
    if fields.flag("apply_residual_connection_post_layernorm"):
        fields.refuse("apply_residual_connection_post_layernorm", "false: norms stand beside the stream here")
    if fields.flag("slow_but_exact") and fields.count("pretraining_tp", 1) > 1:
        fields.refuse("slow_but_exact", "false: otherwise transformers leaves out biases")
    layers = layer_count(fields, 2)
    return DecoderConfig(**shape, windows=(None,) * layers, ropes=(None,) * layers)


def layout(config: DecoderConfig) -> list[LayerSpec]:
    return attention_layout(config)


class NormedTrunk(Trunk):
    def __init__(
        self, config: DecoderConfig, layers: Sequence[Layer], norm: Normalize, embed_scale: float | None
    ) -> None:
        super().__init__(config, layers, norm, embed_scale)
        self.embed_norm = layer_norms(config)()

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return self.embed_norm(super().embed(ids, step))


def build(config: DecoderConfig) -> CausalLM:
    norm, biases, hidden = layer_norms(config), Alibi(slopes(config.heads)), config.hidden_size
    layers = [
        PreNorm(
            GroupedAttention(config, None, bias=True, alibi=biases),
            MLP(hidden, config.intermediate_size, gelu_tanh, bias=True),
            norm,
        )
        for _ in config.windows
    ]
    return CausalLM(config, layers, norm(), trunk=NormedTrunk)


_EMBEDDED = "transformer.word_embeddings_layernorm.", "model.embed_norm."


def adapt(config: DecoderConfig, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return respelled(without_spares(config, weights), (_EMBEDDED, *NAMES), trunk="transformer.")


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
