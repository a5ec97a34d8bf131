"""T5 and its kin: T5 v1.0, v1.1 and Flan, mT5, UMT5. An encoder reads the prompt, a decoder answers.

Pre-norm blocks without biases, and without positions but for a bias on scores by distance, which the first
layer of a stack has for all (each layer its own in UMT5); scores are not scaled. The decoder's layers attend
to themselves and then to what the encoder made of the prompt, whose keys and values they remember.

The stream of residuals grows beyond what float16 can hold, so in that type it is kept in float32, as is what
`wo` computes; transformers does the same.

Sources: arXiv 1910.10683 (T5), 2010.11934 (mT5), 2304.09151 (UMT5); transformers modeling_t5.py.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Encoder, Full, LayerSpec
from runtime.cache.protocol import AttentionCache, Caches, by_layout
from runtime.models.checkpoint import Checkpoint, always
from runtime.models.family import Family
from runtime.models.names import architecture_name
from runtime.models.quantizing import EIGHT_ELSE, SOURCE, Row
from runtime.models.t5_config import Config, parse
from runtime.nn.attend import Bias, attend, attend_over, split_heads
from runtime.nn.bidirectional import Between, attend_both_ways, whole_texts
from runtime.nn.linear import embed, linear, tied
from runtime.nn.mlp import ACTIVATIONS
from runtime.nn.module import Module
from runtime.nn.norm import RMSNorm
from runtime.nn.relative import RelativeBias
from runtime.step import Inputs, Step


def layout(config: Config) -> list[LayerSpec]:
    """Of each decoder layer: its own tokens, then what the encoder made of the prompt."""
    own, read = Full(config.heads, config.head_dim), Encoder(config.heads, config.head_dim, of_prompt=True)
    return [spec for _ in range(config.decoder_layers) for spec in (own, read)]


class Biases(nn.Embedding):
    """A number for each distance and head. Attention reads the weight itself, so adapters find no table."""


class Attention(Module):
    """Projections for scores that are not scaled. biased: the layer has a table of biases by distance."""

    def __init__(self, config: Config, *, biased: bool = False) -> None:
        super().__init__()
        inner = config.heads * config.head_dim
        self.q = nn.Linear(config.hidden_size, inner, bias=False)
        self.k = nn.Linear(config.hidden_size, inner, bias=False)
        self.v = nn.Linear(config.hidden_size, inner, bias=False)
        self.o = nn.Linear(inner, config.hidden_size, bias=False)
        if biased:
            self.relative_attention_bias = Biases(config.buckets, config.heads)
        self._heads = config.heads

    def queries(self, x: mx.array, step: Step) -> mx.array:
        return split_heads(linear(self.q, x, step), self._heads)

    def keys_values(self, x: mx.array, step: Step) -> tuple[mx.array, mx.array]:
        keys, values = linear(self.k, x, step), linear(self.v, x, step)
        return split_heads(keys, self._heads), split_heads(values, self._heads)

    def within(self, x: mx.array, whole: Step, between: Between) -> mx.array:
        """Every token sees every other. whole: see `whole_texts`."""
        queries, (keys, values) = self.queries(x, whole), self.keys_values(x, whole)
        seen = attend_both_ways(queries, keys, values, scale=1.0, between=between, counts=whole.counts)
        return linear(self.o, seen, whole)

    def onward(self, x: mx.array, step: Step, cache: AttentionCache, bias: Bias) -> mx.array:
        """Tokens see what stands before them."""
        queries, (keys, values) = self.queries(x, step), self.keys_values(x, step)
        return linear(self.o, attend(step, cache, queries, keys, values, scale=1.0, bias=bias), step)

    def across(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        """Tokens see what the encoder read."""
        return linear(self.o, attend_over(step, cache, self.queries(x, step), scale=1.0), step)


class FeedForward(Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        if config.gated:
            self.wi_0 = nn.Linear(hidden, inner, bias=False)
            self.wi_1 = nn.Linear(hidden, inner, bias=False)
        else:
            self.wi = nn.Linear(hidden, inner, bias=False)
        self.wo = nn.Linear(inner, hidden, bias=False)
        self._activation, self._gated = ACTIVATIONS[config.activation], config.gated

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        y = self._activation(linear(self.wi_0 if self._gated else self.wi, x, step))
        if self._gated:
            y = y * linear(self.wi_1, x, step)
        return linear(self.wo, _wide(y), step)


class Sublayer(Module):
    """`name`: what the checkpoint calls the part that the norm stands before, one of these."""

    SelfAttention: Attention
    EncDecAttention: Attention
    DenseReluDense: FeedForward

    def __init__(self, config: Config, name: str, part: nn.Module) -> None:
        super().__init__()
        self[name] = part
        self.layer_norm = RMSNorm(config.hidden_size, eps=config.norm_eps)

    def normed(self, x: mx.array, dtype: mx.Dtype) -> mx.array:
        return self.layer_norm(x).astype(dtype)


class Block(Module):
    def __init__(self, config: Config, *, biased: bool, decodes: bool) -> None:
        super().__init__()
        parts: list[tuple[str, nn.Module]] = [("SelfAttention", Attention(config, biased=biased))]
        parts += [("EncDecAttention", Attention(config))] if decodes else []
        self.layer = [
            Sublayer(config, name, part) for name, part in (*parts, ("DenseReluDense", FeedForward(config)))
        ]


class Stack(Module):
    """Encoder or decoder. Norms answer in the type of activations, the stream may be wider (see above)."""

    def __init__(self, config: Config, *, decodes: bool) -> None:
        super().__init__()
        layers = config.decoder_layers if decodes else config.encoder_layers
        self.block = [Block(config, biased=config.own_bias or not i, decodes=decodes) for i in range(layers)]
        self.final_layer_norm = RMSNorm(config.hidden_size, eps=config.norm_eps)
        self._positions = RelativeBias(config.buckets, config.max_distance, both_ways=not decodes)
        self._own_bias = config.own_bias

    def encode(self, x: mx.array, whole: Step) -> mx.array:
        """Embedded tokens [B, T, D] of whole texts -> normed hidden states. whole: see `whole_texts`."""
        dtype, x = x.dtype, _wide(x)
        for i, block in enumerate(self.block):
            own, forward = block.layer
            table = self._table(i)
            x = x + own.SelfAttention.within(own.normed(x, dtype), whole, self._between(table))
            x = x + forward.DenseReluDense(forward.normed(x, dtype), whole)
        return self.final_layer_norm(x).astype(dtype)

    def __call__(self, x: mx.array, step: Step, caches: Caches) -> mx.array:
        """Embedded tokens [B, L, D] of a step -> normed hidden states; caches: two for each layer."""
        dtype, x = x.dtype, _wide(x)
        memories = by_layout(caches)
        for i, block in enumerate(self.block):
            own, cross, forward = block.layer
            remembered, read = memories[2 * i : 2 * i + 2]
            bias = self._bias(i, step)
            x = x + own.SelfAttention.onward(own.normed(x, dtype), step, remembered, bias)
            x = x + cross.EncDecAttention.across(cross.normed(x, dtype), step, read)
            x = x + forward.DenseReluDense(forward.normed(x, dtype), step)
        return self.final_layer_norm(x).astype(dtype)

    def _table(self, layer: int) -> mx.array:
        block = self.block[layer if self._own_bias else 0]
        return block.layer[0].SelfAttention.relative_attention_bias.weight

    def _between(self, table: mx.array) -> Between:
        def between(queries: range, keys: range) -> mx.array:
            asking = mx.arange(queries.start, queries.stop, dtype=mx.int32)[None]
            return self._positions.between(table, asking, mx.arange(keys.start, keys.stop, dtype=mx.int32))

        return between

    def _bias(self, layer: int, step: Step) -> Bias:
        table, of = self._table(layer), layer if self._own_bias else 0
        return self._positions.of_step(table, step, of)


class T5(Module):
    shifts: ClassVar[tuple[()]] = ()  # a row that has outgrown its context reads what is left anew

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.shared = nn.Embedding(config.vocab_size, config.hidden_size)
        self.encoder = Stack(config, decodes=False)
        self.decoder = Stack(config, decodes=True)
        if not config.tied:
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self._tied = config.tied
        self._scale = config.hidden_size**-0.5 if config.scaled else None

    def encode(self, prompt: Inputs, step: Step, caches: Caches) -> None:
        """Read whole prompts [B, T], one for each row of a step that begins; that step follows."""
        whole = whole_texts(prompt, step)
        read = self.encoder.encode(self._entering(whole), whole)
        for block, cache in zip(self.decoder.block, by_layout(caches)[1::2], strict=True):
            cache.append(step, *block.layer[1].EncDecAttention.keys_values(read, whole))

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        return self.decoder(self._entering(step), step, caches)

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return embed(self.shared, ids, step)

    def _entering(self, step: Step) -> mx.array:
        step.refuse_positions("this network counts how many tokens lie between two")
        return step.embedded(self.embed)

    @property
    def tied_table(self) -> nn.Module | None:
        """The table that is the head, too."""
        return self.shared if self._tied else None

    def logits(self, hidden: mx.array, step: Step | None = None) -> mx.array:
        hidden = hidden if self._scale is None else hidden * self._scale
        return tied(self.shared, hidden, step) if self._tied else linear(self.lm_head, hidden, step)


def build(config: Config) -> T5:
    return T5(config)


# What files repeat, or what nothing reads.
_COPIES = ("encoder.embed_tokens.", "decoder.embed_tokens.")
_SPARE = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias."
COPIES = tuple(f"{name}weight" for name in (*_COPIES, _SPARE))


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """The embedding by its one name, a head where the config does not tie it."""
    kept = {name: x for name, x in weights.items() if not name.startswith((*_COPIES, _SPARE))}
    sources = (*_COPIES, "lm_head.") if config.tied else _COPIES
    named = _renamed(weights, next((name for name in sources if f"{name}weight" in weights), ""), "shared.")
    kept = {**named, **kept}
    if config.tied:
        return {name: x for name, x in kept.items() if not name.startswith("lm_head.")}
    return {**_renamed(kept, "shared.", "lm_head."), **kept}


def _renamed(weights: Mapping[str, mx.array], old: str, new: str) -> dict[str, mx.array]:
    """The tensors of one module, under another name."""
    own = {name: x for name, x in weights.items() if old and name.startswith(old)}
    return {new + name.removeprefix(old): x for name, x in own.items()}


def _wide(x: mx.array) -> mx.array:
    return x.astype(mx.float32) if x.dtype == mx.float16 else x


ROWS: tuple[Row, ...] = (
    Row(lambda t, _: t.has("relative_attention_bias."), SOURCE, "bias of positions"),
    Row(lambda t, _: t.ends("shared.weight"), EIGHT_ELSE, "token embedding"),
    Row(
        lambda t, r: r.promotes and t.has("Attention.k.", "Attention.v.", "DenseReluDense.wo."),
        EIGHT_ELSE,
        "sensitive matrix",
    ),
)


def _variant(raw: Mapping[str, Any]) -> str | None:
    """Its encoder may be all that is wanted."""
    return "t5_encoder" if architecture_name(raw).endswith("EncoderModel") else None


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    start_id=lambda config: config.start_id,
    variant=_variant,
    checkpoint=always(
        Checkpoint(
            rows=ROWS,
            tied_fields=(("scale_decoder_outputs", True),),
            copies=("shared.weight", COPIES),
        )
    ),
)
