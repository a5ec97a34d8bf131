"""T5 and its kin: T5 v1.0, v1.1 and Flan, mT5, UMT5. An encoder reads the prompt, a decoder answers.

Pre-norm blocks without biases, and without positions but for a bias on scores by distance, which the first
layer of a stack has for all (each layer its own in UMT5); scores are not scaled. The decoder's layers attend
to themselves and then to what the encoder made of the prompt, whose keys and values they remember.

The stream of residuals grows beyond what float16 can hold, so in that type it is kept in float32, as is what
`wo` computes; transformers does the same.

Sources: arXiv 1910.10683 (T5), 2010.11934 (mT5), 2304.09151 (UMT5); transformers modeling_t5.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Encoder as Encoded
from runtime.cache.layout import Full, LayerSpec
from runtime.cache.protocol import AttentionCache, Caches, by_layer
from runtime.models.family import Family
from runtime.models.registry.names import architecture_name
from runtime.models.t5_config import Config, parse
from runtime.nn.attention.attend import attend, attend_over, split_heads
from runtime.nn.attention.bidirectional import attend_both_ways, whole_texts
from runtime.nn.feed_forward.mlp import ACTIVATIONS
from runtime.nn.linear import embed, linear, tied
from runtime.nn.module import Module
from runtime.nn.norm import RMSNorm
from runtime.nn.positions.relative_bias import RelativeBias
from runtime.step import Inputs, Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.quantizing import EIGHT_ELSE, SOURCE, Row
from runtime.trunks.reading import remember


def layout(config: Config) -> list[LayerSpec]:
    """Of each decoder layer: its own tokens, then what the encoder made of the prompt."""
    own, read = Full(config.heads, config.head_dim), Encoded(config.heads, config.head_dim, of_prompt=True)
    return [spec for _ in range(config.decoder_layers) for spec in (own, read)]


class Biases(nn.Embedding):
    """A number for each distance and head. Attention reads the weight itself, so adapters find no table."""


class Attention(Module):
    """Projections for scores that are not scaled."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        inner = config.heads * config.head_dim
        self.q = nn.Linear(config.hidden_size, inner, bias=False)
        self.k = nn.Linear(config.hidden_size, inner, bias=False)
        self.v = nn.Linear(config.hidden_size, inner, bias=False)
        self.o = nn.Linear(inner, config.hidden_size, bias=False)
        self._heads, self.head_dim = config.heads, config.head_dim

    @property
    def head_counts(self) -> tuple[int, int]:
        """Of queries, and of keys and values."""
        return self._heads, self._heads

    def of_heads(self, heads: int, _groups: int) -> dict[str, Any]:
        """Its attributes where it has so many of its heads (`runtime.ranks`)."""
        return {"_heads": heads}

    def queries(self, x: mx.array, step: Step) -> mx.array:
        return split_heads(linear(self.q, x, step), self._heads)

    def keys_values(self, x: mx.array, step: Step) -> tuple[mx.array, mx.array]:
        keys, values = linear(self.k, x, step), linear(self.v, x, step)
        return split_heads(keys, self._heads), split_heads(values, self._heads)


class BiasedAttention(Attention):
    """With a table of biases by distance: its own, or that of another layer (`lent`)."""

    def __init__(self, config: Config, positions: RelativeBias, place: int, lent: Biases | None) -> None:
        super().__init__(config)
        if lent is None:
            self.relative_attention_bias = Biases(config.buckets, config.heads)
        self._table = self.relative_attention_bias if lent is None else lent
        self._positions, self._of = positions, place if lent is None else 0


class EncoderAttention(BiasedAttention):
    """Every token sees every other."""

    looks_ahead: ClassVar[bool] = True

    def __call__(self, x: mx.array, whole: Step) -> mx.array:
        """whole: see `whole_texts`."""
        queries, (keys, values) = self.queries(x, whole), self.keys_values(x, whole)
        counts, between = whole.counts, self._between
        seen = attend_both_ways(queries, keys, values, scale=1.0, between=between, counts=counts)
        return linear(self.o, seen, whole)

    def _between(self, queries: range, keys: range) -> mx.array:
        asking = mx.arange(queries.start, queries.stop, dtype=mx.int32)[None]
        asked = mx.arange(keys.start, keys.stop, dtype=mx.int32)
        return self._positions.between(self._table.weight, asking, asked)


class DecoderAttention(BiasedAttention):
    """Tokens see what stands before them."""

    def __call__(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        queries, (keys, values) = self.queries(x, step), self.keys_values(x, step)
        bias = self._positions.of_step(self._table.weight, step, self._of)
        return linear(self.o, attend(step, cache, queries, keys, values, scale=1.0, bias=bias), step)


class CrossAttention(Attention):
    """Tokens see what the encoder read."""

    crosses: ClassVar[bool] = True

    def __call__(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        return linear(self.o, attend_over(step, cache, self.queries(x, step), scale=1.0), step)


class FeedForward(Module):
    by_inner: ClassVar[bool] = True

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

    SelfAttention: Any
    """EncoderAttention, or DecoderAttention."""
    EncDecAttention: CrossAttention
    DenseReluDense: FeedForward

    def __init__(self, config: Config, name: str, part: nn.Module) -> None:
        super().__init__()
        self[name] = part
        self.layer_norm = RMSNorm(config.hidden_size, eps=config.norm_eps)

    def normed(self, x: mx.array, dtype: mx.Dtype) -> mx.array:
        return self.layer_norm(x).astype(dtype)


class Block(Module):
    """dtype: of activations; the stream may be wider (see above)."""

    def __init__(self, config: Config, parts: Sequence[tuple[str, nn.Module]], *, lent: bool) -> None:
        """lent: the first layer's biases are its own, too."""
        super().__init__()
        self.layer = [Sublayer(config, name, part) for name, part in parts]
        self._lent = lent

    @property
    def borrows(self) -> tuple[int, str] | None:
        """The layer whose biases it has, and by what name that has them; None: its own."""
        return (0, "layer.0.SelfAttention.relative_attention_bias") if self._lent else None


class EncoderBlock(Block):
    def __call__(self, x: mx.array, whole: Step, dtype: mx.Dtype) -> mx.array:
        own, forward = self.layer
        x = x + own.SelfAttention(own.normed(x, dtype), whole)
        return x + forward.DenseReluDense(forward.normed(x, dtype), whole)


class DecoderBlock(Block):
    def __call__(
        self, x: mx.array, step: Step, remembered: AttentionCache, read: AttentionCache, dtype: mx.Dtype
    ) -> mx.array:
        own, cross, forward = self.layer
        x = x + own.SelfAttention(own.normed(x, dtype), step, remembered)
        x = x + cross.EncDecAttention(cross.normed(x, dtype), step, read)
        return x + forward.DenseReluDense(forward.normed(x, dtype), step)

    def remember(self, read: mx.array, whole: Step, step: Step, cache: AttentionCache) -> None:
        """What the encoder made of a whole prompt, which begins the rows of this step."""
        cache.append(step, *self.layer[1].EncDecAttention.keys_values(read, whole))


class Encoder(Module):
    """Norms answer in the type of activations."""

    in_turn: ClassVar[str] = "block"
    reads_prompts: ClassVar[bool] = True

    def __init__(self, config: Config) -> None:
        super().__init__()
        positions = RelativeBias(config.buckets, config.max_distance, both_ways=True)
        self.block: list[EncoderBlock] = []
        for place in range(config.encoder_layers):
            lent = _lent(config, self.block)
            parts = ("SelfAttention", EncoderAttention(config, positions, place, lent)), _feed_forward(config)
            self.block.append(EncoderBlock(config, parts, lent=lent is not None))
        self.final_layer_norm = RMSNorm(config.hidden_size, eps=config.norm_eps)

    def __call__(self, whole: Step, x: mx.array) -> mx.array:
        """Embedded tokens [B, T, D] of whole texts -> normed hidden states. whole: see `whole_texts`."""
        dtype, x = x.dtype, _wide(x)
        for block in self.block:
            x = block(x, whole, dtype)
        return self.final_layer_norm(x).astype(dtype)


class Decoder(Module):
    """Norms answer in the type of activations."""

    in_turn: ClassVar[str] = "block"

    def __init__(self, config: Config) -> None:
        super().__init__()
        positions = RelativeBias(config.buckets, config.max_distance, both_ways=False)
        self.block: list[DecoderBlock] = []
        for place in range(config.decoder_layers):
            lent = _lent(config, self.block)
            own = ("SelfAttention", DecoderAttention(config, positions, place, lent))
            parts = own, ("EncDecAttention", CrossAttention(config)), _feed_forward(config)
            self.block.append(DecoderBlock(config, parts, lent=lent is not None))
        self.final_layer_norm = RMSNorm(config.hidden_size, eps=config.norm_eps)

    def __call__(self, step: Step, caches: Caches, x: mx.array) -> mx.array:
        """Embedded tokens [B, L, D] of a step -> normed hidden states; caches: two for each layer."""
        dtype, x = x.dtype, _wide(x)
        for block, (own, read) in zip(self.block, by_layer(caches, 2), strict=True):
            x = block(x, step, own, read, dtype)
        return self.final_layer_norm(x).astype(dtype)


def _lent(config: Config, before: Sequence[Block]) -> Biases | None:
    """The first layer's biases, for one that stands behind these."""
    if config.own_bias or not before:
        return None
    return before[0].layer[0].SelfAttention.relative_attention_bias


def _feed_forward(config: Config) -> tuple[str, FeedForward]:
    return "DenseReluDense", FeedForward(config)


class T5(Module):
    shifts: ClassVar[tuple[()]] = ()  # a row that has outgrown its context reads what is left anew

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.shared = nn.Embedding(config.vocab_size, config.hidden_size)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        if not config.tied:
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self._tied = config.tied
        self._scale = config.hidden_size**-0.5 if config.scaled else None

    def encode(self, prompt: Inputs, step: Step, caches: Caches) -> None:
        """Read whole prompts [B, T], one for each row of a step that begins; that step follows."""
        whole = whole_texts(prompt, step)
        read = self.encoder(whole, self._entering(whole))
        remember(self.decoder.block, read, whole, step, caches)

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        return self.decoder(step, caches, self._entering(step))

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
