"""What a config.json of Nemotron-H says: a pattern of layers, and the shape of each kind."""

import math
from collections.abc import Mapping
from typing import Any

from runtime.config.decoder import key_heads
from runtime.config.expert_groups import read_groups
from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel
from runtime.nn.feed_forward.mlp import ACTIVATIONS
from runtime.nn.recurrent.mamba2 import Mamba2Spec, step_bounds
from runtime.quoting import quoted
from runtime.records import dataclass
from runtime.trunks.mixture import MixtureSpec

_KINDS = {
    "M": "M",
    "*": "*",
    "-": "-",
    "E": "E",
    "mamba": "M",
    "linear_attention": "M",
    "attention": "*",
    "full_attention": "*",
    "mlp": "-",
    "moe": "E",
}


@dataclass(frozen=True, slots=True)
class ExpertSpec(MixtureSpec):
    """`shared` is the width of the block that every token passes."""

    latent: int | None = None
    """The size that experts work in; None: the hidden size itself."""


@dataclass(frozen=True, slots=True)
class Config:
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    activation: str
    attention_bias: bool
    mlp_bias: bool
    tied: bool
    context_length: int
    kinds: tuple[str, ...]
    """Of each layer: M (Mamba), * (attention), - (MLP) or E (experts)."""
    mixer: Mamba2Spec
    expert: ExpertSpec | None
    """None: no layer is of kind E."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    hidden = fields.count("hidden_size", 4096, high=1 << 20)
    heads = fields.count("num_attention_heads", 32, high=4096)
    eps = fields.number("layer_norm_epsilon", fields.number("rms_norm_eps", 1e-5, low=1e-30), low=1e-30)
    kinds = _kinds(fields)
    fields.choice("mamba_hidden_act", ("silu", "swish"), "silu")
    return Config(
        vocab_size=fields.count("vocab_size", high=1 << 24),
        hidden_size=hidden,
        intermediate_size=fields.count("intermediate_size", 21504, high=1 << 22),
        heads=heads,
        kv_heads=key_heads(fields, heads, min(8, heads)),
        head_dim=fields.count("head_dim", 128, high=4096),
        norm_eps=eps,
        activation=fields.choice("mlp_hidden_act", tuple(ACTIVATIONS), "relu2"),
        attention_bias=fields.flag("attention_bias"),
        mlp_bias=fields.flag("mlp_bias"),
        tied=False,  # whatever the config says: the reference never ties, and saves a head
        context_length=fields.count("max_position_embeddings", 4096),
        kinds=kinds,
        mixer=_mixer(fields, hidden, eps),
        expert=_experts(fields) if "E" in kinds else None,
    )


def _kinds(fields: Fields) -> tuple[str, ...]:
    """One letter per layer, from a list of words or from the pattern string."""
    listed = fields.raw.get("layers_block_type") or fields.raw.get("layer_types")
    listed = listed or fields.raw.get("hybrid_override_pattern")
    if not isinstance(listed, str | list | tuple) or not 0 < len(listed) <= 4096:
        raise UnsupportedModel("config.json: nemotron_h needs layers_block_type or hybrid_override_pattern")
    kinds = tuple(_KINDS.get(word, "") if isinstance(word, str) else "" for word in listed)
    if "" in kinds:
        raise UnsupportedModel(
            f"config.json: the layer kinds are {quoted(listed)}, known: {', '.join(_KINDS)}"
        )
    return kinds


def _mixer(fields: Fields, hidden: int, eps: float) -> Mamba2Spec:
    groups = fields.count("n_groups", fields.count("mamba_n_groups", 8, high=4096), high=4096)
    bias = fields.flag("use_bias")
    return Mamba2Spec(
        hidden=hidden,
        heads=fields.count("mamba_num_heads", 128, high=1 << 16),
        head_dim=fields.count("mamba_head_dim", 64, high=4096),
        groups=groups,
        state=fields.count("ssm_state_size", 128, high=4096),
        taps=fields.count("conv_kernel", fields.count("mamba_d_conv", 4, low=2, high=64), low=2, high=64),
        eps=eps,
        conv_bias=fields.flag("use_conv_bias", fields.flag("mamba_conv_bias", True)),
        in_bias=bias,
        out_bias=bias,
        norm_groups=groups,
        steps=_steps(fields),
    )


def _steps(fields: Fields) -> tuple[float, float]:
    """Other bounds than none have no one meaning: transformers does not look at them, published code does."""
    bounds = step_bounds(fields.raw)
    if bounds != (0.0, math.inf):
        fields.refuse("time_step_limit", "0 to infinity, which is not a limit")
    return bounds


def _experts(fields: Fields) -> ExpertSpec:
    experts = fields.count(
        "n_routed_experts", fields.count("num_local_experts", 8, high=1 << 16), high=1 << 16
    )
    chosen = fields.count("num_experts_per_tok", 2, high=experts)
    groups, top_groups = read_groups(fields, experts, chosen)
    if fields.count("n_shared_experts", 1, low=0) > 1:
        fields.refuse("n_shared_experts", "one, of moe_shared_expert_intermediate_size")
    return ExpertSpec(
        experts=experts,
        chosen=chosen,
        inner=fields.count("moe_intermediate_size", 7688, high=1 << 22),
        shared=fields.count("moe_shared_expert_intermediate_size", 7688, high=1 << 22),
        latent=fields.count("moe_latent_size", high=1 << 20) if fields.has("moe_latent_size") else None,
        groups=groups,
        top_groups=top_groups,
        normalize=fields.flag("norm_topk_prob", True),
        scale=fields.number("routed_scaling_factor", 1.0),
    )
