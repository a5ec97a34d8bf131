"""Phi-3.5-MoE: LayerNorms with biases, LongRoPE, and two experts per token chosen by SparseMixer.

SparseMixer (arXiv 2310.00811) gives each of the two a probability of its own: a softmax over the experts
that are nearly as good as it, the second's without the first. The two do not sum to one.
"""

from collections.abc import Mapping
from typing import Any

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, read_shape
from runtime.config.fields import Fields, whole_heads
from runtime.errors import UnsupportedModel
from runtime.models.family import Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.feed_forward.moe import SoftmaxMoE
from runtime.nn.positions.rope_spec import RopeSpec, read_rope
from runtime.nn.residual.block import PreNorm
from runtime.parts.feed_forward import Routing
from runtime.quoting import quoted
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import MODULES, Weights, numbered_names, to_switch
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, layer_norms, layer_ropes


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    bias: bool
    head_bias: bool
    experts: int
    jitter: float
    """Half of how much worse, relatively, an expert may be and still share in a softmax."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape = read_shape(fields, eps=1e-5, num_key_value_heads=8, max_position_embeddings=131072)
    layers = layer_count(fields)
    window = fields.count("sliding_window") if fields.has("sliding_window") else None
    fields.count("num_experts_per_tok", 2, low=2, high=2)
    if shape["tied"] and fields.flag("lm_head_bias"):
        fields.refuse("tie_word_embeddings", "false: a tied head has no lm_head_bias here")
    return Config(
        **shape,
        windows=(window,) * layers,
        ropes=(_rope(fields, shape),) * layers,
        bias=fields.flag("attention_bias"),
        head_bias=fields.flag("lm_head_bias"),
        experts=fields.count("num_local_experts", 16, low=2, high=1 << 16),
        jitter=fields.number("router_jitter_noise", 0.01, low=0.0),
    )


def _rope(fields: Fields, shape: dict[str, Any]) -> RopeSpec:
    """LongRoPE with a given temperature: one for short, one for long sequences (published: the same)."""
    block = whole_heads(fields.rope_parameters(theta=1e6))
    if block["rope_type"] not in ("default", "longrope", "su"):
        fields.refuse("rope_parameters", "rope_type default or longrope")
    if block["rope_type"] != "default":
        short, long = block.get("short_mscale"), block.get("long_mscale")
        if not isinstance(short, int | float) or short != long:
            raise UnsupportedModel(
                f"config.json: short_mscale {quoted(short)} and long_mscale {quoted(long)} should be the "
                "same number"
            )
        original = block.get("original_max_position_embeddings") or fields.raw.get(
            "original_max_position_embeddings"
        )
        block = {**block, "attention_factor": float(short), "original_max_position_embeddings": original}
    return read_rope(block, head_dim=shape["head_dim"], max_positions=shape["context_length"])


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class SparseMLP(SoftmaxMoE):
    def __init__(self, config: Config) -> None:
        sizes = config.hidden_size, config.intermediate_size, config.experts, 2
        super().__init__(*sizes, normalize=False, activation=config.activation)
        self._routing = Routing("near", 2, nearness=2 * config.jitter)


def build(config: Config) -> CausalLM:
    norm = layer_norms(config)
    bias = config.bias
    layers = [
        PreNorm(SelfAttention(config, rope, qkv_bias=bias, output_bias=bias), SparseMLP(config), norm)
        for rope in layer_ropes(config)
    ]
    return CausalLM(config, layers, norm(), head_bias=config.head_bias)


def adapt(config: Config, weights: Weights) -> Weights:
    named = numbered_names(without_spares(config, weights))
    named = {name.replace(".mlp.router.", ".mlp.gate."): array for name, array in named.items()}
    return to_switch(named, config.experts)


_MODULES = (*MODULES, (".mlp.gate.", ".mlp.router."))

FAMILY = Family(
    parse=parse, layout=layout, build=build, adapt=adapt, checkpoint=always(Checkpoint(modules=_MODULES))
)
