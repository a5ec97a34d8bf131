"""Mistral 4 (Mistral Small 4): DeepSeek's latent attention, sharpened over long contexts, and experts routed
by a softmax in groups. Published as the text tower of a Mistral 3 wrapper.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.cpu.stated import Routing
from runtime.errors import UnsupportedModel
from runtime.models.checkpoint import Checkpoint, always
from runtime.models.config import Fields
from runtime.models.decoder import CausalLM, gated_mlp, rms_norms
from runtime.models.decoder_config import DecoderConfig, layer_count, read_shape
from runtime.models.expert_groups import read_groups
from runtime.models.experts import Weights, to_switch
from runtime.models.family import Family
from runtime.models.latent_fields import latent_shape
from runtime.models.mixture import MixtureSpec
from runtime.models.tensor_names import text_tower, without_spares
from runtime.models.towers import USUAL
from runtime.nn.block import PreNorm
from runtime.nn.layer import FeedForward
from runtime.nn.mla import LatentAttention, LatentShape, split_latent_heads
from runtime.nn.rope import Rope
from runtime.nn.rope_spec import RopeSpec, read_rope
from runtime.nn.route import RuledRouter
from runtime.nn.sharpen import Sharpening
from runtime.nn.sparse import SharedMoE
from runtime.records import dataclass
from runtime.step import Step

# What the transformers class takes for fields that a file leaves out; wrappers leave out much.
_DEFAULTS: dict[str, int] = {
    "vocab_size": 131072,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 1048576,
}
_YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 128.0,
    "original_max_position_embeddings": 8192,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale_all_dim": 1.0,
    "mscale": 1.0,
    "llama_4_scaling_beta": 0.1,
}


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    latent: LatentShape
    rope: RopeSpec
    sharpening: Sharpening
    dense: int
    """So many first layers have plain MLPs."""
    mixture: MixtureSpec


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("mistral4",))
    unsaid = {name: value for name, value in _DEFAULTS.items() if fields.raw.get(name) is None}
    fields = Fields({**fields.raw, **unsaid})
    shape = read_shape(fields)
    layers = layer_count(fields)
    block = _rope_block(fields)
    latent = latent_shape(fields, shape, block, ranks=(1024, 256), sizes=(64, 64, 128))
    rope = read_rope(
        {key: value for key, value in block.items() if key != "partial_rotary_factor"},
        head_dim=latent.position,
        max_positions=shape["context_length"],
        traditional=fields.flag("rope_interleave", True),
    )
    _check_share(block, latent)
    trained = Fields(block).count("original_max_position_embeddings", 8192)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(rope,) * layers,
        latent=latent,
        rope=rope,
        sharpening=Sharpening(Fields(block).number("llama_4_scaling_beta", 0.0, low=0.0), trained),
        dense=fields.count("first_k_dense_replace", 0, low=0),
        mixture=_mixture(fields),
    )


def _rope_block(fields: Fields) -> dict[str, Any]:
    """Only YaRN has a meaning: the reference cannot compute the family's heads with any other type."""
    given = any(fields.has(name) for name in ("rope_parameters", "rope_scaling"))
    block = fields.rope_parameters() if given else dict(_YARN)
    fields.take("rope_parameters", block)
    block.setdefault("rope_type", block.get("type", "default"))
    Fields(block).choice("rope_type", ("yarn",))
    return block


def _check_share(block: Mapping[str, Any], latent: LatentShape) -> None:
    """`partial_rotary_factor` says again what the sizes of a head's two parts say."""
    whole = latent.content + latent.position
    share = Fields(block).number("partial_rotary_factor", latent.position / whole)
    if int(whole * share) != latent.position:
        raise UnsupportedModel(
            f"config.json: partial_rotary_factor is {share}, and qk_rope_head_dim is {latent.position} "
            f"of {whole}"
        )


def _mixture(fields: Fields) -> MixtureSpec:
    experts = fields.count("n_routed_experts", fields.count("num_local_experts", 128), high=1 << 16)
    chosen = fields.count("num_experts_per_tok", 4, high=experts)
    groups, top_groups = read_groups(fields, experts, chosen)
    inner = fields.count("moe_intermediate_size", 2048, high=1 << 22)
    return MixtureSpec(
        experts=experts,
        chosen=chosen,
        inner=inner,
        shared=inner * fields.count("n_shared_experts", 1, high=1 << 10),
        groups=groups,
        top_groups=top_groups,
        normalize=fields.flag("norm_topk_prob", True),
        scale=fields.number("routed_scaling_factor", 1.0),
    )


def layout(config: Config) -> list[LayerSpec]:
    return [config.latent.memory] * config.layers


class SharpenedLatent(LatentAttention):
    def __init__(self, config: Config, rope: Rope) -> None:
        super().__init__(config.latent, rope)
        self._sharpening = config.sharpening

    def factors(self, step: Step) -> mx.array | None:
        return self._sharpening.factors(step)


def _mlp(config: Config, *, sparse: bool) -> FeedForward:
    if not sparse:
        return gated_mlp(config)
    hidden, spec = config.hidden_size, config.mixture
    routing = Routing(
        "softmax",
        spec.chosen,
        groups=spec.groups,
        top_groups=spec.top_groups,
        normalize=spec.normalize,
        scale=spec.scale,
    )
    router = RuledRouter(hidden, spec.experts, routing)
    return SharedMoE(
        hidden, spec.inner, spec.experts, router, shared=spec.shared, activation=config.activation
    )


def build(config: Config) -> CausalLM:
    norm, rope = rms_norms(config), Rope(config.rope)
    layers = [
        PreNorm(SharpenedLatent(config, rope), _mlp(config, sparse=i >= config.dense), norm)
        for i in range(config.layers)
    ]
    return CausalLM(config, layers, norm())


def adapt(config: Config, weights: Weights) -> Weights:
    own = to_switch(without_spares(config, text_tower(weights)), config.mixture.experts)
    return split_latent_heads(own, config.latent)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(Checkpoint(towers=USUAL)),
)
