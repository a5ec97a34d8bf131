"""RecurrentGemma (Griffin): two recurrent blocks to one attention layer with a sliding window.

Norms are stored as weight - 1, embeddings are scaled, half of each head is rotated, and logits are soft-
capped.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec, Rotating
from runtime.cache.protocol import StepCache
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel
from runtime.models.family import Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.feed_forward.mlp import GatedMLP
from runtime.nn.layer import Mixer
from runtime.nn.norm import RMSNorm, one_added
from runtime.nn.positions.rope import Rope
from runtime.nn.recurrent.conv import with_filters
from runtime.nn.recurrent.rg_lru import RecurrentBlock, rg_lru_memory
from runtime.nn.residual.block import Block as Sublayers
from runtime.nn.residual.block import NormedSublayer
from runtime.nn.residual.sublayer import added
from runtime.quoting import quoted
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.experts import Weights
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, layer_ropes


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    attention_bias: bool
    recurrent: tuple[bool, ...]
    """Of each layer: it is a recurrent block, and its window None; else attention."""
    width: int
    """Channels of a recurrent block."""
    taps: int
    """Tokens that its convolution spans."""
    logit_cap: float
    """Logits become cap * tanh(logit / cap)."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    layers = layer_count(fields, 26)
    shape = read_shape(
        fields,
        activation_field="hidden_activation",
        activation="gelu_pytorch_tanh",
        tied=True,
        max_position_embeddings=8192,
    )
    window = fields.count("attention_window_size", 2048)
    recurrent = _recurrent(fields, layers)
    width = fields.count("lru_width", shape["hidden_size"], high=1 << 20)
    if width % shape["heads"]:
        raise UnsupportedModel(f"config.json: lru_width {width} does not divide into {shape['heads']} heads")
    if shape["intermediate_size"] % 2:
        fields.refuse("intermediate_size", "an even number, two halves in one matrix")
    shape["intermediate_size"] //= 2
    return Config(
        **shape,
        windows=tuple(None if r else window for r in recurrent),
        ropes=(one_rope(fields, shape, partial=0.5),) * layers,
        attention_bias=fields.flag("attention_bias"),
        recurrent=recurrent,
        width=width,
        taps=fields.count("conv1d_width", 4, low=2, high=64),
        logit_cap=fields.number("logits_soft_cap", 30.0, low=1e-3),
    )


def _recurrent(fields: Fields, layers: int) -> tuple[bool, ...]:
    """The pattern repeats until there are enough layers."""
    pattern = fields.raw.get("block_types") or ["recurrent", "recurrent", "attention"]
    if not isinstance(pattern, list | tuple) or any(
        kind not in ("recurrent", "attention") for kind in pattern
    ):
        raise UnsupportedModel(
            f"config.json: block_types is {quoted(pattern)}, expected recurrent or attention"
        )
    return tuple(pattern[i % len(pattern)] == "recurrent" for i in range(layers))


def layout(config: Config) -> list[LayerSpec]:
    fold = rg_lru_memory(config.width, config.taps)
    return [
        fold if window is None else Rotating(config.kv_heads, config.head_dim, window)
        for window in config.windows
    ]


class Block(Sublayers):
    def __init__(self, config: Config, rope: Rope | None, *, recurrent: bool) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.norm_eps
        self.temporal_pre_norm = RMSNorm(hidden, eps=eps)
        self.channel_pre_norm = RMSNorm(hidden, eps=eps)
        self.temporal_block: Mixer = (
            RecurrentBlock(hidden, config.width, config.heads, config.taps, config.activation)
            if recurrent
            else SelfAttention(config, rope, qkv_bias=config.attention_bias, output_bias=True)
        )
        self.mlp_block = GatedMLP(hidden, config.intermediate_size, activation=config.activation, bias=True)

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        x = added(x, self.temporal_block, step, cache, norm=self.temporal_pre_norm)
        return added(x, self.mlp_block, step, norm=self.channel_pre_norm)

    def sublayers(self) -> tuple[NormedSublayer, NormedSublayer]:
        return (self.temporal_block, self.temporal_pre_norm, None), (
            self.mlp_block,
            self.channel_pre_norm,
            None,
        )


class RecurrentGemma(CausalLM):
    def __init__(self, config: Config) -> None:
        kinds = zip(layer_ropes(config), config.recurrent, strict=True)
        layers = [Block(config, rope, recurrent=recurrent) for rope, recurrent in kinds]
        norm = RMSNorm(config.hidden_size, eps=config.norm_eps)
        scale = _embed_scale(config.hidden_size)
        super().__init__(config, layers, norm, embed_scale=scale, logit_softcap=config.logit_cap)


def _embed_scale(hidden: int) -> float:
    """The root of the hidden size, rounded to bfloat16 as it was in training, whatever the weights are."""
    return mx.array(hidden**0.5, mx.bfloat16).item()  # pyright: ignore[reportReturnType] -- the item of a float is one


def build(config: Config) -> RecurrentGemma:
    return RecurrentGemma(config)


def adapt(config: Config, weights: Weights) -> Weights:
    """Norms with their 1 added, which converters leave out too; filters to MLX's axis order."""
    named = one_added(without_spares(config, weights))
    named = {name.replace("model.final_norm.", "model.norm."): array for name, array in named.items()}
    return with_filters(named, "conv_1d.weight")


# Rates go through an exponential.
FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt, wide=(".recurrent_param",))
