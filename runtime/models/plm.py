"""PLM: DeepSeek's latent attention over MLPs without gates, of squared ReLUs.

Sources: arXiv 2503.12167; the authors' modeling_plm.py, llama.cpp's plm.cpp.
"""

from collections.abc import Mapping
from typing import Any

from runtime.config.decoder import layer_count, read_shape
from runtime.config.fields import Fields
from runtime.config.latent import read_latent
from runtime.models.family import Family
from runtime.models.youtu import Config, adapt, layout
from runtime.nn.attention.mla import LatentAttention
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import PreNorm
from runtime.trunks.decoder import CausalLM, plain_mlp, rms_norms


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("plm",))
    fields.only({"attention_bias": False, "mlp_bias": False})
    if fields.has("q_lora_rank"):
        fields.refuse("q_lora_rank", "null: queries have no latents")
    shape = read_shape(
        fields, activations=("relu2",), activation="relu2", tied=True, max_position_embeddings=4096
    )
    latent, rope = read_latent(fields, shape, ranks=(None, 512), theta=100000.0, traditional=True)
    if fields.rope_parameters()["rope_type"] != "default":
        fields.refuse("rope_scaling", "none")
    layers = layer_count(fields)
    return Config(**shape, windows=(None,) * layers, ropes=(rope,) * layers, latent=latent, rope=rope)


def build(config: Config) -> CausalLM:
    norm, rope = rms_norms(config), Rope(config.rope)
    layers = [
        PreNorm(LatentAttention(config.latent, rope), plain_mlp(config), norm) for _ in range(config.layers)
    ]
    return CausalLM(config, layers, norm())


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
