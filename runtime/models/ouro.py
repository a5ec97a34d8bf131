"""Ouro: a Llama in sandwich norms whose layers are passed several times, each time with memories of their
own. Behind each pass comes the last norm, and what it gives enters the next one.

A gate says after each pass how likely it is the last. As published (early_exit_threshold 1) all are made, so
it is not computed; a lower threshold is refused.

Sources: the authors' modeling_ouro.py; llama.cpp's ouro.cpp and vLLM's ouro.py, which make all passes, too.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import Caches, StepCache, by_layout
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape, without_windows
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.layer import Layer
from runtime.nn.linear import embed
from runtime.nn.module import Module
from runtime.nn.norm import Normalize
from runtime.nn.operations import ops
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import Block as Sublayers
from runtime.nn.residual.block import NormedSublayer
from runtime.nn.residual.sublayer import added
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import attention_layout, gated_mlp, layer_ropes, rms_norms
from runtime.trunks.headed import Headed, untied_head


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    passes: int
    """Times that each layer is passed."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("ouro",))
    shape, layers = read_shape(fields, max_position_embeddings=32768), layer_count(fields, 32)
    _refuse_exits(fields)
    return Config(
        **shape,
        windows=_windows(fields, layers),
        ropes=(one_rope(fields, shape),) * layers,
        passes=fields.count("total_ut_steps", 4, high=64),
    )


def _refuse_exits(fields: Fields) -> None:
    """A null threshold is none to the authors' class."""
    if fields.has("early_exit_threshold") and fields.number("early_exit_threshold") < 1:
        fields.refuse("early_exit_threshold", "1: all passes are made here")
    if fields.has("early_exit_step"):
        fields.refuse("early_exit_step", "nothing there: the last pass answers")


def _windows(fields: Fields, layers: int) -> tuple[int | None, ...]:
    window = fields.raw.get("sliding_window", 4096)
    if window is None or not fields.flag("use_sliding_window"):
        return without_windows(fields, layers)
    window = fields.count("sliding_window", 4096)
    kinds = fields.words("layer_types", layers, ("full_attention", "sliding_attention"))
    if kinds is not None:
        return tuple(window if kind == "sliding_attention" else None for kind in kinds)
    first = fields.count("max_window_layers", 28, low=0)
    return tuple(window if i >= first else None for i in range(layers))


def layout(config: Config) -> list[LayerSpec]:
    """Of each layer, one memory for each pass."""
    return [spec for spec in attention_layout(config) for _ in range(config.passes)]


class Attention(SelfAttention):
    def __init__(self, config: Config, rope: Rope | None) -> None:
        super().__init__(config, rope)
        self.memories = config.passes


class Block(Sublayers):
    def __init__(self, config: Config, rope: Rope | None) -> None:
        super().__init__()
        norm = rms_norms(config)
        self.self_attn = Attention(config, rope)
        self.mlp = gated_mlp(config)
        self.input_layernorm: Normalize = norm()
        self.input_layernorm_2: Normalize = norm()
        self.post_attention_layernorm: Normalize = norm()
        self.post_attention_layernorm_2: Normalize = norm()

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        before, after = self.input_layernorm, self.input_layernorm_2
        x = added(x, self.self_attn, step, cache, norm=before, after=after)
        before, after = self.post_attention_layernorm, self.post_attention_layernorm_2
        return added(x, self.mlp, step, norm=before, after=after)

    def sublayers(self) -> tuple[NormedSublayer, NormedSublayer]:
        return (
            (self.self_attn, self.input_layernorm, self.input_layernorm_2),
            (self.mlp, self.post_attention_layernorm, self.post_attention_layernorm_2),
        )


class Trunk(Module):
    """Of layers that are all passed so many times; also of others' (`nanbeige`)."""

    in_turn: ClassVar[str] = "layers"

    def __init__(self, config: DecoderConfig, layers: Sequence[Layer], passes: int) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = list(layers)
        self.norm = rms_norms(config)()
        self._passes, self._turn = passes, 0

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        memories, x = by_layout(caches), step.embedded(self.embed)
        for turn in range(self._passes):
            self._turn = turn
            x = self.norm(ops.table.layers(self.layers, x, step, memories[turn :: self._passes]))
        return x

    def goes_round(self, given: Sequence[Any]) -> bool:
        """See `runtime.ranks.stream`. Layers are called alike in all passes, so that the whole of a pass can
        be one operation; the trunk knows which one it is.
        """
        return self._turn + 1 < self._passes

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return embed(self.embed_tokens, ids, step)


class Ouro(Headed):
    def __init__(self, config: Config) -> None:
        layers = [Block(config, rope) for rope in layer_ropes(config)]
        super().__init__(Trunk(config, layers, config.passes), untied_head(config))


def build(config: Config) -> Ouro:
    return Ouro(config)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=without_spares,
    checkpoint=always(Checkpoint(spare=("early_exit_gate.weight", "early_exit_gate.bias"))),
)
