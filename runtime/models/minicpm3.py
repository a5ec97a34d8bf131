"""MiniCPM3: latent attention over plain gated MLPs, with multipliers on embeddings, on what sublayers add and
on what the head reads.
"""

from collections.abc import Mapping
from typing import Any

from runtime.config.decoder import layer_count, read_shape
from runtime.config.fields import Fields
from runtime.config.latent import read_latent
from runtime.models import youtu
from runtime.models.family import Family
from runtime.models.youtu import adapt, layout
from runtime.nn.attention.mla import LatentAttention
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import Scaled
from runtime.records import dataclass
from runtime.trunks.decoder import CausalLM, gated_mlp, rms_norms


@dataclass(frozen=True, slots=True)
class Config(youtu.Config):
    mlp_bias: bool
    embed_scale: float
    """Embeddings are multiplied by it."""
    share: float
    """What a sublayer adds is multiplied by it."""
    logit_scale: float
    """Logits are multiplied by it."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("minicpm3",))
    shape = read_shape(fields, eps=1e-5, tied=True, num_key_value_heads=40, max_position_embeddings=32768)
    hidden, layers = shape["hidden_size"], layer_count(fields)
    sizes = (64, 32, hidden // shape["heads"])
    latent, rope = read_latent(fields, shape, ranks=(768, 256), sizes=sizes, traditional=False)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(rope,) * layers,
        latent=latent,
        rope=rope,
        mlp_bias=fields.flag("mlp_bias"),
        embed_scale=fields.number("scale_emb", 12.0),
        share=_or_one(fields, "scale_depth", 1.4, layers**-0.5),
        logit_scale=_or_one(fields, "dim_model_base", 256.0, 1 / hidden),
    )


def _or_one(fields: Fields, name: str, default: float, unit: float) -> float:
    """The field in this unit; a null is not a multiplier."""
    if name in fields.raw and fields.raw[name] is None:
        return 1.0
    return fields.number(name, default, low=0.0) * unit


def build(config: Config) -> CausalLM:
    norm, rope = rms_norms(config), Rope(config.rope)
    layers = [
        Scaled(
            LatentAttention(config.latent, rope), gated_mlp(config, bias=config.mlp_bias), norm, config.share
        )
        for _ in range(config.layers)
    ]
    return CausalLM(config, layers, norm(), embed_scale=config.embed_scale, logit_scale=config.logit_scale)


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
