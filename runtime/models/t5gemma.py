"""T5Gemma: two Gemma 2 stacks, one that reads the prompt both ways and one that writes the answer.

Each stack has a config block of its own (`encoder`, `decoder`), which may differ in every size. Blocks norm
around each sublayer, cap scores and rotate positions as Gemma 2 does; a decoder's layer attends to its own
tokens, then without positions to what the encoder made of the prompt. Sliding layers of the encoder see as
far ahead as back.

Source: arXiv 2504.06225; transformers modeling_t5gemma.py.
"""

import math
from typing import Any, ClassVar, cast

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Encoder, LayerSpec
from runtime.cache.protocol import AttentionCache, Caches
from runtime.models.family import Family
from runtime.models.t5gemma_config import Config, StackConfig, parse
from runtime.nn.activation import softcap
from runtime.nn.attention.attend import attend_over, split_heads
from runtime.nn.attention.bidirectional import whole_texts
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.linear import embed, linear, tied
from runtime.nn.module import Module
from runtime.nn.norm import one_added
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.sublayer import added
from runtime.step import Inputs, Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.quantizing import EIGHT, Row
from runtime.trunks.decoder import (
    attention_layout,
    gated_mlp,
    layer_ropes,
    rms_norms,
)
from runtime.trunks.reading import remember, through


def layout(config: Config) -> list[LayerSpec]:
    """Of each decoder layer: its own tokens, then what the encoder made of the prompt."""
    decoder = config.decoder
    read = Encoder(decoder.kv_heads, decoder.head_dim, of_prompt=True)
    return [spec for own in attention_layout(decoder) for spec in (own, read)]


def _self_attention(config: StackConfig, rope: Rope | None) -> SelfAttention:
    return SelfAttention(
        config,
        rope,
        qkv_bias=config.bias,
        output_bias=config.bias,
        scale=config.scale,
        softcap=config.score_softcap,
    )


class CrossAttention(Module):
    """Queries of the decoder's tokens, keys and values of the encoder's."""

    crosses: ClassVar[bool] = True

    def __init__(self, config: Config) -> None:
        super().__init__()
        own, read = config.decoder, config.encoder.hidden_size
        inner, shared = own.heads * own.head_dim, own.kv_heads * own.head_dim
        self.q_proj = nn.Linear(own.hidden_size, inner, bias=own.bias)
        self.k_proj = nn.Linear(read, shared, bias=own.bias)
        self.v_proj = nn.Linear(read, shared, bias=own.bias)
        self.o_proj = nn.Linear(inner, own.hidden_size, bias=own.bias)
        self._heads, self._kv_heads = own.heads, own.kv_heads
        self._scale, self._softcap = own.scale, own.score_softcap

    @property
    def head_counts(self) -> tuple[int, int]:
        """Of queries, and of keys and values."""
        return self._heads, self._kv_heads

    def of_heads(self, heads: int, groups: int) -> dict[str, Any]:
        """Its attributes where it has so many of its heads (`runtime.ranks`)."""
        return {"_heads": heads, "_kv_heads": groups}

    def keys_values(self, read: mx.array, step: Step) -> tuple[mx.array, mx.array]:
        keys, values = linear(self.k_proj, read, step), linear(self.v_proj, read, step)
        return split_heads(keys, self._kv_heads), split_heads(values, self._kv_heads)

    def __call__(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        queries = split_heads(linear(self.q_proj, x, step), self._heads)
        seen = attend_over(step, cache, queries, scale=self._scale, softcap=self._softcap)
        return linear(self.o_proj, seen, step)


_NO_MEMORY = cast("AttentionCache", None)
"""Of what looks ahead."""


class EncoderLayer(Module):
    def __init__(self, config: StackConfig, attention: SelfAttention) -> None:
        """attention: which looks ahead."""
        super().__init__()
        norm = rms_norms(config)
        self.self_attn = attention
        self.mlp = gated_mlp(config)
        self.pre_self_attn_layernorm = norm()
        self.post_self_attn_layernorm = norm()
        self.pre_feedforward_layernorm = norm()
        self.post_feedforward_layernorm = norm()

    def __call__(self, x: mx.array, whole: Step) -> mx.array:
        """whole: see `whole_texts`."""
        seen = self.self_attn(self.pre_self_attn_layernorm(x), whole, _NO_MEMORY)
        x = x + self.post_self_attn_layernorm(seen)
        return x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x), whole))


class DecoderLayer(Module):
    def __init__(self, config: Config, rope: Rope | None) -> None:
        super().__init__()
        norm = rms_norms(config.decoder)
        self.self_attn = _self_attention(config.decoder, rope)
        self.cross_attn = CrossAttention(config)
        self.mlp = gated_mlp(config.decoder)
        self.pre_self_attn_layernorm = norm()
        self.post_self_attn_layernorm = norm()
        self.pre_cross_attn_layernorm = norm()
        self.post_cross_attn_layernorm = norm()
        self.pre_feedforward_layernorm = norm()
        self.post_feedforward_layernorm = norm()

    def __call__(self, x: mx.array, step: Step, own: AttentionCache, read: AttentionCache) -> mx.array:
        before, after = self.pre_self_attn_layernorm, self.post_self_attn_layernorm
        x = added(x, self.self_attn, step, own, norm=before, after=after)
        before, after = self.pre_cross_attn_layernorm, self.post_cross_attn_layernorm
        x = added(x, self.cross_attn, step, read, norm=before, after=after)
        before, after = self.pre_feedforward_layernorm, self.post_feedforward_layernorm
        return added(x, self.mlp, step, norm=before, after=after)

    def remember(self, read: mx.array, whole: Step, step: Step, cache: AttentionCache) -> None:
        """What the encoder made of a whole prompt, which begins the rows of this step."""
        cache.append(step, *self.cross_attn.keys_values(read, whole))


class Stack(Module):
    """Embedding and the last norm; layers are the two kinds' own."""

    in_turn: ClassVar[str] = "layers"

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.norm = rms_norms(config)()
        self._embed_scale = math.sqrt(config.hidden_size)

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return embed(self.embed_tokens, ids, step) * self._embed_scale


class EncoderStack(Stack):
    reads_prompts: ClassVar[bool] = True

    def __init__(self, config: StackConfig) -> None:
        super().__init__(config)
        self.layers = [EncoderLayer(config, _self_attention(config, rope)) for rope in layer_ropes(config)]
        for layer, window in zip(self.layers, config.windows, strict=True):
            layer.self_attn.look_ahead(window)

    def __call__(self, whole: Step) -> mx.array:
        """Normed hidden states of whole texts [B, T, D]. whole: see `whole_texts`."""
        x = whole.embedded(self.embed)
        for layer in self.layers:
            x = layer(x, whole)
        return self.norm(x)


class DecoderStack(Stack):
    def __init__(self, config: Config) -> None:
        super().__init__(config.decoder)
        self.layers = [DecoderLayer(config, rope) for rope in layer_ropes(config.decoder)]

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        return self.norm(through(self.layers, step.embedded(self.embed), step, caches))


class Stacks(Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.encoder = EncoderStack(config.encoder)
        self.decoder = DecoderStack(config)


class T5Gemma(Module):
    shifts: ClassVar[tuple[()]] = ()  # a row that has outgrown its context reads what is left anew

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.model = Stacks(config)
        if not config.tied:
            self.lm_head = {"out_proj": nn.Linear(config.hidden_size, config.vocab_size, bias=False)}
        self._tied, self._softcap = config.tied, config.decoder.logit_softcap

    def encode(self, prompt: Inputs, step: Step, caches: Caches) -> None:
        """Read whole prompts [B, T], one for each row of a step that begins; that step follows."""
        whole = whole_texts(prompt, step)
        remember(self.model.decoder.layers, self.model.encoder(whole), whole, step, caches)

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        return self.model.decoder(step, caches)

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return self.model.decoder.embed(ids, step)

    @property
    def tied_table(self) -> nn.Module | None:
        """The table that is the head, too."""
        return self.model.decoder.embed_tokens if self._tied else None

    def logits(self, hidden: mx.array, step: Step | None = None) -> mx.array:
        table = self.model.decoder.embed_tokens
        logits = tied(table, hidden, step) if self._tied else linear(self.lm_head["out_proj"], hidden, step)
        return logits if self._softcap is None else softcap(logits, self._softcap)


def build(config: Config) -> T5Gemma:
    return T5Gemma(config)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Norms get their 1; a head that repeats the embedding is left out, one that a file lacks repeats it."""
    head, table = "lm_head.out_proj.", "model.decoder.embed_tokens."
    kept = {name: x for name, x in weights.items() if not (config.tied and name.startswith(head))}
    if not config.tied and f"{head}weight" not in kept:
        kept |= {head + name.removeprefix(table): x for name, x in kept.items() if name.startswith(table)}
    return one_added(kept)


ROWS: tuple[Row, ...] = (Row(lambda t, _: t.ends("lm_head.out_proj.weight"), EIGHT, "output head"),)

FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    start_id=lambda config: config.start_id,
    checkpoint=always(Checkpoint(rows=ROWS)),
)
