"""BART: an encoder reads the prompt, a decoder answers; learned positions, biases everywhere, and a norm
behind each sublayer.

Both stacks have one table of tokens, which is the head, too; a bias is added to logits.

Sources: arXiv 1910.13461; transformers modeling_bart.py.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, cast

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Encoder as Encoded
from runtime.cache.layout import Full, LayerSpec
from runtime.cache.protocol import AttentionCache, Caches, by_layout
from runtime.models.checkpoint import Checkpoint, always
from runtime.models.config import Fields
from runtime.models.family import Family
from runtime.models.quantizing import EIGHT_ELSE, SOURCE, Row
from runtime.nn.attend import attend_over, split_heads
from runtime.nn.bidirectional import whole_texts
from runtime.nn.linear import embed, linear, tied
from runtime.nn.mlp import ACTIVATIONS, MLP
from runtime.nn.module import Module
from runtime.nn.norm import LayerNorm
from runtime.nn.self_attention import SelfAttention
from runtime.records import dataclass
from runtime.step import Inputs, Step


@dataclass(frozen=True, slots=True)
class StackConfig:
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    places: int
    """Rows of the table of positions."""
    activation: str
    """A name of ACTIVATIONS."""


@dataclass(frozen=True, slots=True)
class Config:
    vocab_size: int
    hidden_size: int
    encoder: StackConfig
    decoder: StackConfig
    embed_scale: float | None
    """Embeddings are multiplied by it; None: they are not."""
    start_id: int
    """What every answer begins with."""
    context_length: int
    """Tokens of a prompt, and of an answer."""


_BEFORE = 2
"""Rows of the tables of positions that no token has."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("bart",))
    fields.only({"is_encoder_decoder": True, "is_decoder": False, "add_cross_attention": False})
    if not fields.flag("tie_word_embeddings", True):
        fields.refuse("tie_word_embeddings", "true: else each stack has a table of its own, too")
    _refuse_older(fields)
    vocab = fields.count("vocab_size", 50265, high=1 << 24)
    hidden = fields.count("d_model", 1024, high=1 << 20)
    context = fields.count("max_position_embeddings", 1024, high=1 << 24)
    encoder, decoder = (_stack(fields, name, hidden, context) for name in ("encoder", "decoder"))
    return Config(
        vocab_size=vocab,
        hidden_size=hidden,
        encoder=encoder,
        decoder=decoder,
        embed_scale=hidden**0.5 if fields.flag("scale_embedding") else None,
        start_id=fields.count("decoder_start_token_id", 2, low=0, high=vocab - 1),
        context_length=context,
    )


def _refuse_older(fields: Fields) -> None:
    """Fields of files from 2020, with the values that the class has taken for granted since."""
    fields.only(
        {
            "add_bias_logits": False,
            "add_final_layer_norm": False,
            "normalize_before": False,
            "normalize_embedding": True,
            "static_position_embeddings": False,
        }
    )
    fields.count("extra_pos_embeddings", _BEFORE, low=_BEFORE, high=_BEFORE)


def _stack(fields: Fields, name: str, hidden: int, context: int) -> StackConfig:
    heads = fields.count(f"{name}_attention_heads", 16, high=4096)
    if hidden % heads:
        fields.refuse("d_model", f"a multiple of {name}_attention_heads, {heads}")
    return StackConfig(
        hidden_size=hidden,
        layers=fields.count(f"{name}_layers", 12, high=4096),
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        intermediate_size=fields.count(f"{name}_ffn_dim", 4096, high=1 << 22),
        places=context + _BEFORE,
        activation=fields.choice("activation_function", tuple(ACTIVATIONS), "gelu"),
    )


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


class EncoderLayer(Module):
    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.self_attn, self.mlp = _attention(config), _mlp(config)
        self.self_attn_layer_norm, self.final_layer_norm = _norm(config), _norm(config)
        self.self_attn.look_ahead()

    def __call__(self, x: mx.array, whole: Step) -> mx.array:
        """whole: see `whole_texts`."""
        x = self.self_attn_layer_norm(x + self.self_attn(x, whole, _NO_MEMORY))
        return self.final_layer_norm(x + self.mlp(x, whole))


class DecoderLayer(Module):
    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.self_attn, self.mlp = _attention(config), _mlp(config)
        self.encoder_attn = CrossAttention(config)
        self.self_attn_layer_norm, self.final_layer_norm = _norm(config), _norm(config)
        self.encoder_attn_layer_norm = _norm(config)

    def __call__(self, x: mx.array, step: Step, own: AttentionCache, read: AttentionCache) -> mx.array:
        x = self.self_attn_layer_norm(x + self.self_attn(x, step, own))
        x = self.encoder_attn_layer_norm(x + self.encoder_attn(x, step, read))
        return self.final_layer_norm(x + self.mlp(x, step))

    def remember(self, read: mx.array, whole: Step, step: Step, cache: AttentionCache) -> None:
        """What the encoder made of a whole prompt, which begins the rows of this step."""
        cache.append(step, *self.encoder_attn.keys_values(read, whole))


class Stack(Module):
    """Positions and the norm before the first layer; layers are the two kinds' own."""

    in_turn: ClassVar[str] = "layers"

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.embed_positions = nn.Embedding(config.places, config.hidden_size)
        self.layernorm_embedding = _norm(config)
        self._last = config.places - 1

    def entering(self, x: mx.array, step: Step) -> mx.array:
        # Padding columns count on past a row's tokens, and so past the table where a row is nearly full.
        places = mx.minimum(step.positions + _BEFORE, self._last)
        return self.layernorm_embedding(x + embed(self.embed_positions, places, step))


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
        return x


class DecoderStack(Stack):
    def __init__(self, config: StackConfig) -> None:
        super().__init__(config)
        self.layers = [DecoderLayer(config) for _ in range(config.layers)]

    def __call__(self, step: Step, caches: Caches, x: mx.array) -> mx.array:
        """Embedded tokens [B, L, D] of a step -> hidden states; caches: two for each layer."""
        x, memories = self.entering(x, step), by_layout(caches)
        for layer, own, read in zip(self.layers, memories[::2], memories[1::2], strict=True):
            x = layer(x, step, own, read)
        return x

    def remember(self, read: mx.array, whole: Step, step: Step, caches: Caches) -> None:
        """What the encoder made of whole prompts, in all layers."""
        for layer, cache in zip(self.layers, by_layout(caches)[1::2], strict=True):
            layer.remember(read, whole, step, cache)


class Bart(Module):
    shifts: ClassVar[tuple[()]] = ()  # a row that has outgrown its context reads what is left anew

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.shared = nn.Embedding(config.vocab_size, config.hidden_size)
        self.encoder, self.decoder = EncoderStack(config.encoder), DecoderStack(config.decoder)
        self.final_logits_bias = mx.zeros((1, config.vocab_size))
        self._scale = config.embed_scale

    def encode(self, prompt: Inputs, step: Step, caches: Caches) -> None:
        """Read whole prompts [B, T], one for each row of a step that begins; that step follows."""
        whole = whole_texts(prompt, step)
        read = self.encoder(whole, whole.embedded(self.embed))
        self.decoder.remember(read, whole, step, caches)

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        return self.decoder(step, caches, step.embedded(self.embed))

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        x = embed(self.shared, ids, step)
        return x if self._scale is None else x * self._scale

    @property
    def tied_table(self) -> nn.Module:
        """The table that is the head, too."""
        return self.shared

    def logits(self, hidden: mx.array, step: Step | None = None) -> mx.array:
        logits = tied(self.shared, hidden, step)
        return logits + self.final_logits_bias[0].astype(logits.dtype)


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
    """The embedding by its one name; a bias of logits that a file lacks is none."""
    named: dict[str, mx.array] = {}
    for name, array in weights.items():
        name = name.removeprefix("model.")
        for theirs, ours in _NAMES:
            name = name.replace(theirs, ours)
        named[name] = array
    kept = {name: array for name, array in named.items() if not name.startswith((*_COPIES, "lm_head."))}
    for copy in _COPIES if "shared.weight" not in kept else ():
        kept |= {f"shared.{n.removeprefix(copy)}": x for n, x in named.items() if n.startswith(copy)}
    return {"final_logits_bias": mx.zeros((1, config.vocab_size)), **kept}


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
    start_id=lambda config: config.start_id,
    checkpoint=always(
        Checkpoint(rows=_ROWS, copies=("shared.weight", tuple(f"{name}weight" for name in _COPIES)))
    ),
)
