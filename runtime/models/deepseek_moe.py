"""DeepSeekMoE 16B, the first DeepSeek with experts: a Llama with mixtures beside shared experts.

Experts are weighed by a softmax over all of them (arXiv 2401.06066). Later versions are in `deepseek`.
"""

from collections.abc import Mapping
from typing import Any

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, layer_ropes, rms_norms
from runtime.trunks.mixture import MixtureConfig, MixtureSpec, feed_forward, softmax_mixture


@dataclass(frozen=True, slots=True)
class Config(MixtureConfig):
    bias: bool
    """On attention's projections."""
    sparse: tuple[bool, ...]
    """Of each layer: it is a mixture."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("deepseek",))
    shape = read_shape(fields)
    layers = layer_count(fields)
    fields.choice("scoring_func", ("softmax",), "softmax")
    if fields.rope_parameters()["rope_type"] not in ("default", "linear"):
        fields.refuse("rope_scaling", "none, or a linear one: its class has no other")
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape),) * layers,
        bias=fields.flag("attention_bias"),
        sparse=_sparse(fields, layers),
        mixture=_mixture(fields),
    )


def _sparse(fields: Fields, layers: int) -> tuple[bool, ...]:
    first = fields.count("first_k_dense_replace", 0, low=0)
    every = fields.count("moe_layer_freq", 1)
    return tuple(fields.has("n_routed_experts") and i >= first and i % every == 0 for i in range(layers))


def _mixture(fields: Fields) -> MixtureSpec:
    """Of one expert that is never asked where all layers are dense."""
    inner = fields.count("moe_intermediate_size", 1407, high=1 << 22)
    experts = fields.count("n_routed_experts", 1, high=1 << 16)
    chosen = fields.count("num_experts_per_tok", 1 if experts == 1 else None, high=experts)
    shared = fields.count("n_shared_experts", 0, low=0, high=256)
    normalize = fields.flag("norm_topk_prob") and chosen > 1
    return MixtureSpec(experts, chosen, inner, shared=inner * shared, normalize=normalize)


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)
    layers = [
        PreNorm(
            SelfAttention(config, rope, qkv_bias=config.bias, output_bias=config.bias),
            feed_forward(config, sparse=sparse, mixture=softmax_mixture),
            norm,
        )
        for rope, sparse in zip(layer_ropes(config), config.sparse, strict=True)
    ]
    return CausalLM(config, layers, norm())


def adapt(config: Config, weights: Weights) -> Weights:
    return to_switch(without_spares(config, weights), config.mixture.experts)


FAMILY = Family(
    parse=parse, layout=layout, build=build, adapt=adapt, checkpoint=always(Checkpoint(singles=True))
)
