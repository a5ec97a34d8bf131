"""What a config.json of Qwen3-Next, Qwen3.5 or its MoE says: which layers are delta nets, which mixtures."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.config.decoder import DecoderConfig, layer_count, listed_layers, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel
from runtime.nn.recurrent.delta_net import DeltaSpec
from runtime.records import dataclass
from runtime.trunks.mixture import MixtureSpec


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    bias: bool
    delta: DeltaSpec
    recurrent: tuple[bool, ...]
    """Of each layer: it is a delta net; else attention."""
    sparse: tuple[bool, ...]
    """Of each layer: its feed-forward is a mixture."""
    expert: MixtureSpec | None
    """None: no layer has a mixture."""
    head_layers: int
    """Of the draft head."""


_SIZES: dict[str, dict[str, Any]] = {
    "qwen3_next": {"intermediate_size": 5632, "num_key_value_heads": 2},
    "qwen3_5": {"intermediate_size": 12288, "num_key_value_heads": 4},
    "qwen3_5_moe": {"intermediate_size": 5632, "num_key_value_heads": 2},
}
"""What is taken for sizes that a file leaves out."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    family = str(fields.raw.get("model_type") or "qwen3_5").removesuffix("_text")
    layers = layer_count(fields)
    fields.only({"attn_output_gate": True})
    shape = read_shape(fields, head_dim=256, max_position_embeddings=32768, **_SIZES.get(family, {}))
    fields.choice("hidden_act", ("silu",), "silu")
    expert = _experts(fields, family)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape, partial=0.25),) * layers,
        bias=fields.flag("attention_bias"),
        delta=read_delta(fields, shape["norm_eps"]),
        recurrent=read_recurrent(fields, layers),
        sparse=_sparse(fields, layers) if expert else (False,) * layers,
        expert=expert,
        head_layers=fields.count("mtp_num_hidden_layers", 1, low=0, high=64),
    )


def read_delta(fields: Fields, eps: float) -> DeltaSpec:
    return DeltaSpec(
        key_heads=fields.count("linear_num_key_heads", 16, high=4096),
        value_heads=fields.count("linear_num_value_heads", 32, high=4096),
        key_dim=fields.count("linear_key_head_dim", 128, high=4096),
        value_dim=fields.count("linear_value_head_dim", 128, high=4096),
        taps=fields.count("linear_conv_kernel_dim", 4, low=2, high=64),
        eps=eps,
    )


def _experts(fields: Fields, family: str) -> MixtureSpec | None:
    default = {"qwen3_next": 512, "qwen3_5_moe": 256}.get(family, 0)
    if fields.count("num_experts", default, low=0, high=1 << 16) == 0:
        return None
    spec = read_experts(fields, default, 8 if family == "qwen3_5_moe" else 10)
    return spec if family == "qwen3_next" else replace(spec, normalize=True)


def read_experts(fields: Fields, experts: int, chosen: int) -> MixtureSpec:
    """The numbers: where the file does not say."""
    experts = fields.count("num_experts", experts, high=1 << 16)
    return MixtureSpec(
        experts=experts,
        chosen=fields.count("num_experts_per_tok", chosen, high=experts),
        inner=fields.count("moe_intermediate_size", 512, high=1 << 22),
        shared=fields.count("shared_expert_intermediate_size", 512, high=1 << 22),
        normalize=fields.flag("norm_topk_prob", True),
    )


def read_recurrent(
    fields: Fields, layers: int, attention: tuple[str, ...] = ("full_attention",)
) -> tuple[bool, ...]:
    """Which layers are delta nets. attention: what layer_types calls the others."""
    kinds = fields.words("layer_types", layers, ("linear_attention", *attention))
    if kinds is not None:
        recurrent = tuple(kind == "linear_attention" for kind in kinds)
    else:
        interval = fields.count("full_attention_interval", 4, high=layers)
        recurrent = tuple((i + 1) % interval != 0 for i in range(layers))
    if not any(recurrent):  # a delta net's filters say whether norms are stored less one, or whole as MLX has
        name = fields.name("full_attention_interval" if kinds is None else "layer_types")
        raise UnsupportedModel(
            f"config.json: {name} leaves no layer of linear_attention, and one is expected at least: "
            "its weights tell how norms are stored"
        )
    return recurrent


def _sparse(fields: Fields, layers: int) -> tuple[bool, ...]:
    dense = listed_layers(fields, "mlp_only_layers", layers) or (False,) * layers
    interval = fields.count("decoder_sparse_step", 1)
    return tuple(not dense[i] and (i + 1) % interval == 0 for i in range(layers))
