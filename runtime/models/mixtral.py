"""Mixtral: a Mistral whose MLPs are mixtures of experts."""

from collections.abc import Mapping
from typing import Any

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.feed_forward.moe import SoftmaxMoE
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import MODULES, Weights, numbered_names, to_switch
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, layer_ropes, rms_norms


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    experts: int
    chosen: int


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape = read_shape(fields, eps=1e-5, num_key_value_heads=8, max_position_embeddings=131072)
    layers = layer_count(fields)
    window = fields.count("sliding_window") if fields.has("sliding_window") else None
    experts = fields.count("num_local_experts", 8, high=1 << 16)
    return Config(
        **shape,
        windows=(window,) * layers,
        ropes=(one_rope(fields, shape, theta=1e6),) * layers,
        experts=experts,
        chosen=fields.count("num_experts_per_tok", 2, high=experts),
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)

    def mlp() -> SoftmaxMoE:
        return SoftmaxMoE(
            config.hidden_size,
            config.intermediate_size,
            config.experts,
            config.chosen,
            normalize=True,
            activation=config.activation,
        )

    layers = [PreNorm(SelfAttention(config, rope), mlp(), norm) for rope in layer_ropes(config)]
    return CausalLM(config, layers, norm())


def adapt(config: Config, weights: Weights) -> Weights:
    """Files call the mixture `block_sparse_moe` and an expert's matrices w1, w3 and w2."""
    return to_switch(numbered_names(without_spares(config, weights)), config.experts)


FAMILY = Family(
    parse=parse, layout=layout, build=build, adapt=adapt, checkpoint=always(Checkpoint(modules=MODULES))
)
