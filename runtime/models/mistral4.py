"""Mistral 4 (Mistral Small 4): DeepSeek's latent attention, sharpened over long contexts, and experts routed
by a softmax in groups. Published as the text tower of a Mistral 3 wrapper.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import layer_count, read_shape
from runtime.config.fields import Fields
from runtime.config.latent import latent_shape
from runtime.errors import UnsupportedModel
from runtime.models.family import Family
from runtime.nn.attention.mla import LatentAttention, LatentShape
from runtime.nn.positions.attention_temperature import AttentionTemperature
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec, read_rope
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.latent_heads import split_latent_heads
from runtime.tensors.names import text_tensors
from runtime.tensors.towers import USUAL
from runtime.trunks.decoder import CausalLM, rms_norms
from runtime.trunks.mixture import MixtureConfig, feed_forward, read_mixture, softmax_mixture

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
class Config(MixtureConfig):
    latent: LatentShape
    rope: RopeSpec
    sharpening: AttentionTemperature
    dense: int
    """So many first layers have plain MLPs."""


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
    _check_share(fields, block, latent)
    trained = Fields(block).count("original_max_position_embeddings", 8192)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(rope,) * layers,
        latent=latent,
        rope=rope,
        sharpening=AttentionTemperature(Fields(block).number("llama_4_scaling_beta", 0.0, low=0.0), trained),
        dense=fields.count("first_k_dense_replace", 0, low=0),
        mixture=read_mixture(fields, experts=128, chosen=4, inner=2048, scale=1.0),
    )


def _rope_block(fields: Fields) -> dict[str, Any]:
    """Only YaRN has a meaning: the reference cannot compute the family's heads with any other type."""
    given = any(fields.has(name) for name in ("rope_parameters", "rope_scaling"))
    block = fields.rope_parameters() if given else dict(_YARN)
    fields.take("rope_parameters", block)
    block.setdefault("rope_type", block.get("type", "default"))
    Fields(block).choice("rope_type", ("yarn",))
    return block


def _check_share(fields: Fields, block: Mapping[str, Any], latent: LatentShape) -> None:
    """`head_dim` and `partial_rotary_factor` say again what sizes a head's parts have; heads turn by them."""
    whole = latent.content + latent.position
    if fields.count("head_dim", whole) != whole:
        fields.refuse("head_dim", f"{whole}, of which qk_rope_head_dim are turned")
    share = Fields(block).number("partial_rotary_factor", latent.position / whole)
    if int(whole * share) != latent.position:
        raise UnsupportedModel(
            f"config.json: partial_rotary_factor is {share}, and qk_rope_head_dim is {latent.position} "
            f"of {whole}"
        )


def layout(config: Config) -> list[LayerSpec]:
    return [config.latent.memory] * config.layers


class SharpenedLatent(LatentAttention):
    def __init__(self, config: Config, rope: Rope) -> None:
        super().__init__(config.latent, rope)
        self._sharpening = config.sharpening

    def factors(self, step: Step) -> mx.array | None:
        return self._sharpening.factors(step)


def build(config: Config) -> CausalLM:
    norm, rope = rms_norms(config), Rope(config.rope)
    layers = [
        PreNorm(
            SharpenedLatent(config, rope),
            feed_forward(config, sparse=i >= config.dense, mixture=softmax_mixture),
            norm,
        )
        for i in range(config.layers)
    ]
    return CausalLM(config, layers, norm())


def adapt(config: Config, weights: Weights) -> Weights:
    own = to_switch(text_tensors(config, weights), config.mixture.experts)
    return split_latent_heads(own, config.latent)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(Checkpoint(towers=USUAL)),
)
