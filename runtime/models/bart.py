"""BART and its kin (mBART, M2M100 and NLLB, Marian, Pegasus, Blenderbot, PLBart, MVP): an encoder reads the
prompt, a decoder answers; positions are added to embeddings, biases are everywhere, and norms stand before
sublayers or behind.

Both stacks have one table of tokens, which is the head, too; most add a bias to logits. Tables of positions
that are sinusoids are not in most files; a file's own goes first, as in transformers.

Sources: arXiv 1910.13461; transformers modeling_{bart,mbart,m2m_100,marian,pegasus,blenderbot,
blenderbot_small,plbart,mvp}.py.
"""

from collections.abc import Callable
from typing import Any, ClassVar, cast

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Encoder as Encoded
from runtime.cache.layout import Full, LayerSpec
from runtime.cache.protocol import AttentionCache, Caches
from runtime.models.bart_config import Config, StackConfig, parse
from runtime.models.family import Family
from runtime.nn.attention.attend import attend_over, split_heads
from runtime.nn.attention.bidirectional import whole_texts
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.feed_forward.mlp import ACTIVATIONS, MLP
from runtime.nn.linear import embed, linear, tied
from runtime.nn.module import Module
from runtime.nn.norm import LayerNorm, Normalize
from runtime.nn.positions.sinusoids import sinusoids
from runtime.step import Inputs, Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.quantizing import EIGHT_ELSE, SOURCE, Row
from runtime.trunks.reading import remember, through


def layout(config: Config) -> list[LayerSpec]:
    """Of each decoder layer: its own tokens, then what the encoder made of the prompt."""
    own = config.decoder
    both = Full(own.heads, own.head_dim), Encoded(own.heads, own.head_dim, of_prompt=True)
    return [spec for _ in range(own.layers) for spec in both]


_EPS = 1e-5


def _norm(config: StackConfig) -> LayerNorm:
    return LayerNorm(config.hidden_size, eps=_EPS)


def _attention(config: StackConfig) -> SelfAttention:
    return SelfAttention(config, None, qkv_bias=True, output_bias=True)


def _mlp(config: StackConfig) -> MLP:
    return MLP(config.hidden_size, config.intermediate_size, ACTIVATIONS[config.activation], bias=True)


class CrossAttention(Module):
    """Queries of the decoder's tokens, keys and values of the encoder's."""

    crosses: ClassVar[bool] = True

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(hidden, hidden) for _ in range(4))
        self._heads, self._scale = config.heads, config.head_dim**-0.5

    @property
    def head_counts(self) -> tuple[int, int]:
        """Of queries, and of keys and values."""
        return self._heads, self._heads

    def of_heads(self, heads: int, _groups: int) -> dict[str, Any]:
        """Its attributes where it has so many of its heads (`runtime.ranks`)."""
        return {"_heads": heads}

    def keys_values(self, read: mx.array, step: Step) -> tuple[mx.array, mx.array]:
        keys, values = linear(self.k_proj, read, step), linear(self.v_proj, read, step)
        return split_heads(keys, self._heads), split_heads(values, self._heads)

    def __call__(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        queries = split_heads(linear(self.q_proj, x, step), self._heads)
        return linear(self.o_proj, attend_over(step, cache, queries, scale=self._scale), step)


_NO_MEMORY = cast("AttentionCache", None)
"""Of what looks ahead."""


class Layer(Module):
    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self._first = config.kind.norms_first

    def added(self, x: mx.array, norm: Normalize, part: Callable[[mx.array], mx.array]) -> mx.array:
        """What a sublayer makes of x, added to it; its norm stands before it or behind."""
        return x + part(norm(x)) if self._first else norm(x + part(x))


class EncoderLayer(Layer):
    def __init__(self, config: StackConfig) -> None:
        super().__init__(config)
        self.self_attn, self.mlp = _attention(config), _mlp(config)
        self.self_attn_layer_norm, self.final_layer_norm = _norm(config), _norm(config)
        self.self_attn.look_ahead()

    def __call__(self, x: mx.array, whole: Step) -> mx.array:
        """whole: see `whole_texts`."""
        x = self.added(x, self.self_attn_layer_norm, lambda y: self.self_attn(y, whole, _NO_MEMORY))
        return self.added(x, self.final_layer_norm, lambda y: self.mlp(y, whole))


class DecoderLayer(Layer):
    def __init__(self, config: StackConfig) -> None:
        super().__init__(config)
        self.self_attn, self.mlp = _attention(config), _mlp(config)
        self.encoder_attn = CrossAttention(config)
        self.self_attn_layer_norm, self.final_layer_norm = _norm(config), _norm(config)
        self.encoder_attn_layer_norm = _norm(config)

    def __call__(self, x: mx.array, step: Step, own: AttentionCache, read: AttentionCache) -> mx.array:
        x = self.added(x, self.self_attn_layer_norm, lambda y: self.self_attn(y, step, own))
        x = self.added(x, self.encoder_attn_layer_norm, lambda y: self.encoder_attn(y, step, read))
        return self.added(x, self.final_layer_norm, lambda y: self.mlp(y, step))

    def remember(self, read: mx.array, whole: Step, step: Step, cache: AttentionCache) -> None:
        """What the encoder made of a whole prompt, which begins the rows of this step."""
        cache.append(step, *self.encoder_attn.keys_values(read, whole))


class Stack(Module):
    """Positions and the norms before the first layer and behind the last; layers are the two kinds' own."""

    in_turn: ClassVar[str] = "layers"

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.embed_positions = nn.Embedding(config.places, config.hidden_size)
        if config.kind.norms_entering:
            self.layernorm_embedding = _norm(config)
        if config.kind.norms_first:
            self.layer_norm = _norm(config)
        self._kind, self._last = config.kind, config.places - 1
        self._tokens_alone = False

    def entering(self, x: mx.array, step: Step) -> mx.array:
        # Padding columns count on past a row's tokens, and so past the table where a row is nearly full.
        places = mx.minimum(step.positions + self._kind.before, self._last)
        positions = embed(self.embed_positions, places, step).astype(x.dtype)
        if self._tokens_alone:
            return self.layernorm_embedding(x) + positions
        x = x + positions
        return self.layernorm_embedding(x) if self._kind.norms_entering else x

    def leaving(self, x: mx.array) -> mx.array:
        return self.layer_norm(x) if self._kind.norms_first else x


class EncoderStack(Stack):
    reads_prompts: ClassVar[bool] = True

    def __init__(self, config: StackConfig) -> None:
        super().__init__(config)
        self.layers = [EncoderLayer(config) for _ in range(config.layers)]

    def __call__(self, whole: Step, x: mx.array) -> mx.array:
        """Embedded tokens [B, T, D] of whole texts -> hidden states. whole: see `whole_texts`."""
        x = self.entering(x, whole)
        for layer in self.layers:
            x = layer(x, whole)
        return self.leaving(x)


class DecoderStack(Stack):
    def __init__(self, config: StackConfig) -> None:
        super().__init__(config)
        self.layers = [DecoderLayer(config) for _ in range(config.layers)]
        self._tokens_alone = config.kind.norms_tokens

    def __call__(self, step: Step, caches: Caches, x: mx.array) -> mx.array:
        """Embedded tokens [B, L, D] of a step -> hidden states; caches: two for each layer."""
        return self.leaving(through(self.layers, self.entering(x, step), step, caches))


class Bart(Module):
    shifts: ClassVar[tuple[()]] = ()  # a row that has outgrown its context reads what is left anew

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.shared = nn.Embedding(config.vocab_size, config.hidden_size)
        self.encoder, self.decoder = EncoderStack(config.encoder), DecoderStack(config.decoder)
        if config.kind.biased:
            self.final_logits_bias = mx.zeros((1, config.vocab_size))
        self._biased = config.kind.biased
        self._read_scale = config.embed_scale
        # transformers does not scale tokens that a decoder norms by themselves.
        self._scale = None if config.kind.norms_tokens else config.embed_scale

    def encode(self, prompt: Inputs, step: Step, caches: Caches) -> None:
        """Read whole prompts [B, T], one for each row of a step that begins; that step follows."""
        whole = whole_texts(prompt, step)
        read = self.encoder(whole, whole.embedded(self._read))
        remember(self.decoder.layers, read, whole, step, caches)

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        return self.decoder(step, caches, step.embedded(self.embed))

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        """Of the decoder's tokens."""
        x = embed(self.shared, ids, step)
        return x if self._scale is None else x * self._scale

    def _read(self, ids: mx.array, step: Step | None = None) -> mx.array:
        x = embed(self.shared, ids, step)
        return x if self._read_scale is None else x * self._read_scale

    @property
    def tied_table(self) -> nn.Module:
        """The table that is the head, too."""
        return self.shared

    def logits(self, hidden: mx.array, step: Step | None = None) -> mx.array:
        logits = tied(self.shared, hidden, step)
        return logits + self.final_logits_bias[0].astype(logits.dtype) if self._biased else logits


def build(config: Config) -> Bart:
    return Bart(config)


_COPIES = ("encoder.embed_tokens.", "decoder.embed_tokens.")
_NAMES = (
    (".self_attn.out_proj.", ".self_attn.o_proj."),
    (".encoder_attn.out_proj.", ".encoder_attn.o_proj."),
    (".fc1.", ".mlp.up_proj."),
    (".fc2.", ".mlp.down_proj."),
)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """The embedding by its one name, and what a file may leave out."""
    named: dict[str, mx.array] = {}
    for name, array in weights.items():
        name = name.removeprefix("model.")
        for theirs, ours in _NAMES:
            name = name.replace(theirs, ours)
        named[name] = array
    kept = {name: array for name, array in named.items() if not name.startswith((*_COPIES, "lm_head."))}
    for copy in _COPIES if "shared.weight" not in kept else ():
        kept |= {f"shared.{n.removeprefix(copy)}": x for n, x in named.items() if n.startswith(copy)}
    return {**_unsaid(config), **kept}


def _unsaid(config: Config) -> dict[str, mx.array]:
    """A bias that is none, and positions that are sinusoids."""
    unsaid = {"final_logits_bias": mx.zeros((1, config.vocab_size))} if config.kind.biased else {}
    if not config.kind.sinusoids:
        return unsaid
    half = config.hidden_size // 2
    spread = half - 1 if config.kind.sinusoids == "to the last" else half
    for name, stack in (("encoder", config.encoder), ("decoder", config.decoder)):
        unsaid[f"{name}.embed_positions.weight"] = sinusoids(mx.arange(stack.places), half, spread)
    return unsaid


_ROWS = (
    Row(lambda t, _: t.ends("embed_positions.weight", "final_logits_bias"), SOURCE, "table of positions"),
    Row(lambda t, _: t.ends("shared.weight"), EIGHT_ELSE, "token embedding"),
    Row(
        lambda t, r: r.promotes and t.has("_attn.k_proj.", "_attn.v_proj.", ".fc2."),
        EIGHT_ELSE,
        "sensitive matrix",
    ),
)

FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    wide=("embed_positions.weight",),
    start_id=lambda config: config.start_id,
    checkpoint=always(
        Checkpoint(
            rows=_ROWS,
            copies=("model.shared.weight", tuple(f"{name}weight" for name in _COPIES)),
            spare=("embed_positions.weights",),
        )
    ),
)
