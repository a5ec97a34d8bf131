"""IQuest-Coder Loop: Llama whose layers are passed twice. In the second pass a gate of each head mixes what
the first pass's keys and values show of the whole past with what its own show of the last tokens.

Each layer has two memories, one of each pass.

Sources: mlx-lm's iquestloopcoder.py; vLLM's iquest_loopcoder.py.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Full, LayerSpec, Rotating
from runtime.cache.protocol import AttentionCache, Caches, StepCache, by_layout
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.activation import sigmoid
from runtime.nn.attention.attend import attend, attend_over
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.linear import embed, linear
from runtime.nn.module import Module
from runtime.nn.norm import Normalize
from runtime.nn.operations import ops
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import NormedSublayer, PreNorm
from runtime.nn.residual.sublayer import added
from runtime.parts.attention import AttentionParts
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import gated_mlp, layer_ropes, rms_norms
from runtime.trunks.headed import Headed, untied_head


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    near: int
    """Tokens that the second pass's own keys show."""
    bias: bool
    """Of the attention's projections."""
    mlp_bias: bool


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("iquestloopcoder",))
    fields.count("loop_num", 2, low=2, high=2)
    shape, layers = read_shape(fields, max_position_embeddings=131072, eps=1e-5), layer_count(fields)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape, theta=500000.0),) * layers,
        near=fields.count("loop_window_size", 64),
        bias=fields.flag("attention_bias"),
        mlp_bias=fields.flag("mlp_bias"),
    )


def layout(config: Config) -> list[LayerSpec]:
    heads, size = config.kv_heads, config.head_dim
    return [Full(heads, size), Rotating(heads, size, config.near)] * config.layers


class Attention(SelfAttention):
    memories: ClassVar[int] = 2

    def __init__(self, config: Config, rope: Rope | None) -> None:
        super().__init__(config, rope, qkv_bias=config.bias, output_bias=config.bias)
        self.head_gate = Gate(config.heads, config.head_dim)

    def __call__(
        self, x: mx.array, step: Step, cache: AttentionCache, near: AttentionCache | None = None
    ) -> mx.array:
        """near: in the second pass, its own memory. Then heads see what the first one remembers of all
        tokens, and the last of this one's, each by its own share.
        """
        if near is None:
            return super().__call__(x, step, cache)
        queries, keys, values = self.project(x, step)
        queries, keys = self.place(queries, keys, step)
        share, scale = self.head_gate(queries), self._scale
        far = attend_over(step, cache, queries, scale=scale)
        close = attend(step, near, queries, keys, values, scale=scale)
        mixed = [mx.unflatten(seen, -1, (self._heads, -1)) for seen in (far, close)]
        return linear(self.o_proj, (share * mixed[0] + (1 - share) * mixed[1]).flatten(2), step)

    def parts(self, norm: Normalize | None, after: Normalize | None) -> AttentionParts | None:
        """Of the first pass (`sublayer.defined_together`)."""
        return super().parts(norm, after)


class Gate(Module):
    """Queries [B, H, L, K] of K numbers -> shares [B, L, H, 1]."""

    def __init__(self, heads: int, size: int) -> None:
        super().__init__()
        self.weight = mx.zeros((heads, 1, size))
        self.bias = mx.zeros((heads,))

    def __call__(self, queries: mx.array) -> mx.array:
        scores = ops.table.matmul(queries, self.weight.astype(queries.dtype), transposed=True)
        return sigmoid(scores.swapaxes(1, 2) + self.bias[:, None].astype(queries.dtype))


class Block(PreNorm):
    def __call__(
        self, x: mx.array, step: Step, cache: StepCache, near: AttentionCache | None = None
    ) -> mx.array:
        """near: as `Attention` has it."""
        if near is None:
            return super().__call__(x, step, cache)
        attention = cast("Attention", self.self_attn)
        x = x + attention(self.input_layernorm(x), step, cast("AttentionCache", cache), near)
        return added(x, self.mlp, step, norm=self.post_attention_layernorm)

    def sublayers(self) -> tuple[NormedSublayer, NormedSublayer]:
        """Of the first pass (`sublayer.defined_together`)."""
        return super().sublayers()


class Trunk(Module):
    in_turn: ClassVar[str] = "layers"

    def __init__(self, config: Config) -> None:
        super().__init__()
        norm = rms_norms(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = [
            Block(Attention(config, rope), gated_mlp(config, bias=config.mlp_bias), norm)
            for rope in layer_ropes(config)
        ]
        self.norm = norm()

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        memories = by_layout(caches)
        first, second = memories[::2], memories[1::2]
        x = ops.table.layers(self.layers, step.embedded(self.embed), step, first)
        for layer, cache, near in zip(self.layers, first, second, strict=True):
            x = layer(x, step, cache, near)
        return self.norm(x)

    def goes_round(self, given: Sequence[Any]) -> bool:
        """See `runtime.ranks.stream`."""
        return len(given) == 2

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return embed(self.embed_tokens, ids, step)


class IQuestLoop(Headed):
    def __init__(self, config: Config) -> None:
        super().__init__(Trunk(config), untied_head(config))


def build(config: Config) -> IQuestLoop:
    return IQuestLoop(config)


_GATE = re.compile(r"model\.gate_projections\.(\d{1,6})\.(weight|bias)", re.ASCII)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Gates stand beside the layers in files."""
    adapted: dict[str, mx.array] = {}
    for name, array in without_spares(config, weights).items():
        gate = _GATE.fullmatch(name)
        if gate is None:
            adapted[name] = array
        else:
            gates = array[:, None] if gate[2] == "weight" and array.ndim == 2 else array
            adapted[f"model.layers.{gate[1]}.self_attn.head_gate.{gate[2]}"] = gates
    return adapted


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
