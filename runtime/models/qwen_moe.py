"""Qwen2-MoE and Qwen3-MoE: Qwen2 and Qwen3 with a mixture of experts where the dense ones have an MLP.

Qwen2-MoE adds a shared expert under a sigmoid gate. Layers of either may stay dense (`mlp_only_layers`,
`decoder_sparse_step`). The text tower of Qwen3-VL-MoE is Qwen3-MoE; its packed experts are stored input
first.
"""

from collections.abc import Callable, Mapping
from typing import Any

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import layer_count, listed_layers, one_rope, read_shape, without_windows
from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel
from runtime.models.family import Family
from runtime.nn.attention.self_attention import HeadNormAttention, SelfAttention
from runtime.nn.feed_forward.moe import GatedSharedMoE, SoftmaxMoE
from runtime.nn.layer import FeedForward
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights, output_first, to_switch
from runtime.tensors.names import text_tensors
from runtime.tensors.towers import USUAL
from runtime.trunks.decoder import CausalLM, attention_layout, gated_mlp, head_norms, layer_ropes, rms_norms
from runtime.trunks.mixture import MixtureConfig, MixtureSpec


@dataclass(frozen=True, slots=True)
class Config(MixtureConfig):
    sparse: tuple[bool, ...]
    """Of each layer: its feed-forward is a mixture."""
    bias: bool

    @property
    def second(self) -> bool:
        """Is it a Qwen2-MoE?"""
        return self.mixture.shared > 0


_THETAS = {"qwen3_vl_moe_text": 500000.0, "qwen3_vl_moe": 500000.0}


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    kinds = ("qwen2_moe", "qwen3_moe", "qwen3_vl_moe_text", "qwen3_vl_moe")
    family = fields.choice("model_type", kinds)
    second = family == "qwen2_moe"
    shape = read_shape(fields, max_position_embeddings=32768)
    layers = layer_count(fields)
    experts = fields.count(
        "num_experts", fields.count("num_local_experts", 60 if second else 128), high=1 << 16
    )
    return Config(
        **shape,
        windows=_windows(fields, layers, second),
        ropes=(one_rope(fields, shape, theta=_THETAS.get(family, 10000.0)),) * layers,
        sparse=_sparse(fields, layers),
        mixture=MixtureSpec(
            experts=experts,
            chosen=fields.count("num_experts_per_tok", 4 if second else 8, high=experts),
            inner=fields.count("moe_intermediate_size", 1408 if second else 768, high=1 << 22),
            shared=fields.count("shared_expert_intermediate_size", 5632, high=1 << 22) if second else 0,
            normalize=_normalize(fields),
        ),
        bias=fields.flag("qkv_bias", True) if second else fields.flag("attention_bias"),
    )


def _windows(fields: Fields, layers: int, second: bool) -> tuple[int | None, ...]:
    given = fields.raw.get("sliding_window", 4096) is not None
    if not (given and fields.flag("use_sliding_window")):
        return without_windows(fields, layers) if second else (None,) * layers
    window = fields.count("sliding_window", 4096)
    if not second:
        return (window,) * layers
    kinds = fields.words("layer_types", layers, ("full_attention", "sliding_attention"))
    if kinds is None:
        raise UnsupportedModel(
            "config.json: use_sliding_window is true and no layer_types says which layers slide"
        )
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def _normalize(fields: Fields) -> bool:
    """Are the weights of the chosen scaled to sum to one? In Qwen3-VL-MoE always; its files may not say."""
    if not str(fields.raw["model_type"]).startswith("qwen3_vl_moe"):
        return fields.flag("norm_topk_prob")
    if not fields.flag("norm_topk_prob", True):
        raise UnsupportedModel("config.json: norm_topk_prob is false, and Qwen3-VL-MoE is computed with true")
    return True


def _sparse(fields: Fields, layers: int) -> tuple[bool, ...]:
    dense = listed_layers(fields, "mlp_only_layers", layers) or (False,) * layers
    every = fields.count("decoder_sparse_step", 1)
    return tuple(not dense[i] and (i + 1) % every == 0 for i in range(layers))


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> CausalLM:
    return built(config, _mlp)


def built(config: Config, mixture: Callable[[Config], FeedForward]) -> CausalLM:
    """mixture: makes those of sparse layers."""
    norm = rms_norms(config)
    layers = [
        PreNorm(_attention(config, rope), mixture(config) if sparse else gated_mlp(config), norm)
        for rope, sparse in zip(layer_ropes(config), config.sparse, strict=True)
    ]
    return CausalLM(config, layers, norm())


def _attention(config: Config, rope: Rope | None) -> SelfAttention:
    if config.second:
        return SelfAttention(config, rope, qkv_bias=config.bias)
    return HeadNormAttention(config, rope, head_norms(config), qkv_bias=config.bias, output_bias=config.bias)


def _mlp(config: Config) -> FeedForward:
    spec = config.mixture
    sizes = (config.hidden_size, spec.inner, spec.experts, spec.chosen)
    normalize, activation = spec.normalize, config.activation
    if config.second:
        return GatedSharedMoE(*sizes, shared=spec.shared, normalize=normalize, activation=activation)
    return SoftmaxMoE(*sizes, normalize=normalize, activation=activation)


def adapt(config: Config, weights: Weights) -> Weights:
    text = text_tensors(config, weights)
    return to_switch(output_first(text) if _input_first(config, text) else text, config.mixture.experts)


def _input_first(config: Config, weights: Weights) -> bool:
    """Are packed experts stored [E, in, out], as Qwen3-VL-MoE publishes them?

    One of the two matrices may be square and tell nothing; both cannot be.
    """
    hidden, inner = config.hidden_size, config.mixture.inner
    for name, array in weights.items():
        if name.endswith(".experts.down_proj") and hidden != inner:
            return array.shape[1:] == (inner, hidden)
        if name.endswith(".experts.gate_up_proj") and hidden != 2 * inner:
            return array.shape[1:] == (hidden, 2 * inner)
    return False


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(Checkpoint(towers=USUAL)),
)
