"""Muse Glimmer (the text tower): normed embeddings, gated attention and layers without positions.

Queries and keys are normed by head without a weight, queries scaled up; attention's answer is multiplied by
a sigmoid gate. Norms around both sublayers are zero-centred; those after have an epsilon of their own.
Layers with full attention leave positions out. Logits are scaled and capped.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.config.text import text_block
from runtime.errors import UnsupportedModel
from runtime.models.family import Family
from runtime.nn.activation import sigmoid
from runtime.nn.attention.gated_attention import OpenedAttention
from runtime.nn.layer import Layer
from runtime.nn.norm import PlainRMS, RMSNorm, one_added, rms
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import Sandwich
from runtime.quoting import quoted
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.names import text_tensors
from runtime.tensors.quantizing import EIGHT_ELSE, REQUESTED, Row, in_cadence, is_table
from runtime.tensors.towers import Towers
from runtime.trunks.decoder import (
    CausalLM,
    Trunk,
    attention_layout,
    gated_mlp,
    layer_ropes,
    rms_norms,
)


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    bias: bool
    scale: float
    """Scores are multiplied by it."""
    after_eps: float
    """Of the norms after each sublayer."""
    multiplier: float
    """Logits are multiplied by it, before the cap."""
    softcap: float
    """Logits become cap * tanh(logit / cap)."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape = read_shape(
        fields,
        eps=1e-5,
        activation_field="hidden_activation",
        vocab_size=202048,
        hidden_size=6656,
        intermediate_size=19968,
        num_attention_heads=32,
        num_key_value_heads=2,
        head_dim=128,
        max_position_embeddings=131072,
    )
    layers = layer_count(fields, 52)
    if text_block(raw) and raw.get("tie_word_embeddings") is None and shape["tied"]:
        fields.refuse(
            "tie_word_embeddings", "the wrapper's own word beside text_config, which is what counts"
        )
    rope = one_rope(fields, shape)
    turns = read_turns(fields, layers)
    return Config(
        **shape,
        windows=windows_from_last(fields, layers),
        ropes=tuple(rope if turned else None for turned in turns),
        bias=fields.flag("attention_bias"),
        scale=shape["head_dim"] ** -0.5 * fields.number("qk_scale_factor", 3.87),
        after_eps=fields.number("post_norm_eps", 1e-8, low=1e-30),
        multiplier=fields.number("output_multiplier", 0.19611613513818404),
        softcap=fields.number("final_logit_softcapping", 20.0, low=1e-6),
    )


def windows_from_last(fields: Fields, layers: int) -> tuple[int | None, ...]:
    """Without layer_types every fourth layer is full, counted from the last."""
    window = fields.count("sliding_window", 2048)
    kinds = fields.words("layer_types", layers, ("full_attention", "sliding_attention"))
    if kinds is None:
        full = ((layers - 1 - i) % 4 == 0 for i in range(layers))
        full = fields.settle("layer_types", ("full_attention", "sliding_attention"), full)
        return tuple(None if one else window for one in full)
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def read_turns(fields: Fields, layers: int) -> tuple[bool, ...]:
    """Which layers rotate: layer_rope_theta lists a base per layer, 0 for none. Two bases are refused."""
    if fields.has("no_rope_layers"):
        raise UnsupportedModel("config.json: no_rope_layers is set; layer_rope_theta is what says it here")
    listed = fields.raw.get("layer_rope_theta")
    if listed is None:
        return tuple((layers - 1 - i) % 4 != 0 for i in range(layers))
    theta = fields.rope_parameters()["rope_theta"]
    if (
        not isinstance(listed, list)
        or len(listed) != layers
        or any(base not in (0, theta) for base in listed)
    ):
        raise UnsupportedModel(
            f"config.json: layer_rope_theta should list {layers} times 0 or {theta:g}, the base in "
            f"rope_parameters or rope_scaling; it is {quoted(listed)}"
        )
    return tuple(base != 0 for base in listed)


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class Block(Sandwich):
    def __init__(self, config: Config, rope: Rope | None) -> None:
        attention = OpenedAttention(
            config,
            rope,
            lambda _heads: PlainRMS(config.norm_eps),
            config.heads * config.head_dim,
            sigmoid,
            called="gate_proj",
            bias=config.bias,
            scale=config.scale,
        )
        super().__init__(attention, gated_mlp(config), rms_norms(config))
        self.post_attention_layernorm = RMSNorm(config.hidden_size, eps=config.after_eps)
        self.post_feedforward_layernorm = RMSNorm(config.hidden_size, eps=config.after_eps)


class NormedTrunk(Trunk):
    """What a token's row of the table is, over its root mean square, enters the first layer."""

    def __init__(self, config: DecoderConfig, layers: Sequence[Layer]) -> None:
        super().__init__(config, layers, rms_norms(config)(), None)
        self._eps = config.norm_eps

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return rms(super().embed(ids, step), self._eps)


class MuseGlimmer(CausalLM):
    def __init__(self, config: Config) -> None:
        layers = [Block(config, rope) for rope in layer_ropes(config)]
        scale, cap = config.multiplier, config.softcap
        super().__init__(config, layers, rms_norms(config)(), logit_scale=scale, logit_softcap=cap)
        self.model = NormedTrunk(config, layers)


def build(config: Config) -> MuseGlimmer:
    return MuseGlimmer(config)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """The norms inside layers are stored less one."""
    return one_added(text_tensors(config, weights), "layernorm.weight")


ROWS: tuple[Row, ...] = (
    Row(lambda t, _: is_table(t), EIGHT_ELSE, "token embedding"),
    Row(
        lambda t, r: r.promotes and t.has(".q_proj", ".k_proj", ".v_proj", ".o_proj"),
        EIGHT_ELSE,
        "attention",
    ),
    Row(
        lambda t, r: (
            r.promotes and (t.has("mlp.down_proj") or (t.has("attn.") and t.has("gate"))) and in_cadence(t, r)
        ),
        EIGHT_ELSE,
        "sensitive matrix, sensitive layer",
    ),
    Row(lambda t, r: r.promotes and t.has("mlp.down_proj"), REQUESTED, "as requested"),
)

_TOWERS = Towers(images=("vision_tower.", "vision_adapter.", "vision_projection."))


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(Checkpoint(rows=ROWS, norms_rows=True, towers=_TOWERS)),
)
