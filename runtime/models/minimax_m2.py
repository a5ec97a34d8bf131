"""MiniMax M2: experts in every layer, routed by corrected sigmoids; part of each head is rotated.

Queries and keys are normed over all heads together. How much of a head is rotated is `rotary_dim` in
published files.
"""

from collections.abc import Mapping
from typing import Any

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel
from runtime.models.family import CORRECTIONS, Family
from runtime.nn.attention.self_attention import WideNormAttention
from runtime.nn.residual.block import PreNorm
from runtime.quoting import quoted
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import MODULES, Weights, numbered_names, to_switch
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, layer_ropes, rms_norms
from runtime.trunks.mixture import MixtureConfig as Config
from runtime.trunks.mixture import MixtureSpec, corrected_mixture


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape = read_shape(fields, num_key_value_heads=8, head_dim=128, max_position_embeddings=196608)
    layers = layer_count(fields)
    _refuse_unknown(fields, layers)
    share = fields.count("rotary_dim", shape["head_dim"], high=shape["head_dim"]) / shape["head_dim"]
    experts = fields.count("num_local_experts", fields.count("num_experts", 256), high=1 << 16)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape, theta=5e6, partial=share),) * layers,
        mixture=MixtureSpec(
            experts=experts,
            chosen=fields.count("num_experts_per_tok", 8, high=experts),
            inner=shape["intermediate_size"],
        ),
    )


def _refuse_unknown(fields: Fields, layers: int) -> None:
    """What the code that came with the first files could do besides, and no published model does."""
    fields.choice("scoring_func", ("sigmoid",), "sigmoid")
    fields.choice("qk_norm_type", ("per_layer",), "per_layer")
    fields.count("shared_intermediate_size", 0, low=0, high=0)
    fields.only({"use_qk_norm": True, "use_routing_bias": True})
    kinds = fields.raw.get("attn_type_list")
    if kinds is not None and kinds != [1] * layers:
        raise UnsupportedModel(
            f"config.json: attn_type_list is {quoted(kinds)}, and only full attention (1) in each of "
            f"{layers} layers is computed"
        )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)
    layers = [
        PreNorm(
            WideNormAttention(config, rope, config.norm_eps),
            corrected_mixture(config),
            norm,
        )
        for rope in layer_ropes(config)
    ]
    return CausalLM(config, layers, norm())


def adapt(config: Config, weights: Weights) -> Weights:
    """Files have Mixtral's names, and corrections beside the gate."""
    own = {
        name.replace(".mlp.e_score_correction_bias", ".mlp.gate.e_score_correction_bias"): array
        for name, array in numbered_names(without_spares(config, weights)).items()
    }
    return to_switch(own, config.mixture.experts)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    wide=CORRECTIONS,
    checkpoint=always(Checkpoint(modules=MODULES)),
)
