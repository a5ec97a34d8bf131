"""T5Gemma 2: two Gemma 3 stacks, one that reads the prompt both ways and one that writes the answer.

A decoder's layer attends to its own tokens and to what the encoder made of the prompt under one softmax:
keys and values of both come of the same matrices, those of the prompt without positions. Both stacks have one
table of tokens, which is the head, too; the token that ends an image has an embedding of its own. Sliding
layers of the encoder see half of their window to either side, one token less of what came before where it is
even. What is for images is left out.

Source: arXiv 2512.14856; transformers modeling_t5gemma2.py.
"""

import math
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.protocol import AttentionCache, Caches
from runtime.models.family import Family
from runtime.models.t5gemma import EncoderLayer, layout
from runtime.models.t5gemma2_config import Config, StackConfig, parse
from runtime.nn.activation import softcap
from runtime.nn.attention.attend import split_heads
from runtime.nn.attention.bidirectional import whole_texts
from runtime.nn.attention.joint import attend_jointly
from runtime.nn.attention.self_attention import HeadNormAttention
from runtime.nn.linear import embed, linear, tied
from runtime.nn.module import Module
from runtime.nn.norm import one_added
from runtime.nn.positions.rope import Rope
from runtime.step import Inputs, Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.towers import Towers
from runtime.trunks.decoder import gated_mlp, head_norms, layer_ropes, rms_norms
from runtime.trunks.reading import remember, through


def _sizes(config: StackConfig) -> dict[str, Any]:
    return {"qkv_bias": config.bias, "output_bias": config.bias, "scale": config.scale}


class JointAttention(HeadNormAttention):
    """Queries of the decoder's tokens over keys and values of these and of the encoder's."""

    joins: ClassVar[bool] = True
    memories: ClassVar[int] = 2
    """Its own tokens, and what was read (`runtime.ranks`)."""

    def __init__(self, config: StackConfig, rope: Rope | None) -> None:
        super().__init__(config, rope, head_norms(config), **_sizes(config))
        self._parts_hold = False

    def keys_values(self, read: mx.array, step: Step) -> tuple[mx.array, mx.array]:
        keys, values = linear(self.k_proj, read, step), linear(self.v_proj, read, step)
        return self.k_norm(split_heads(keys, self._kv_heads)), split_heads(values, self._kv_heads)

    def __call__(
        self, x: mx.array, step: Step, cache: AttentionCache, read: AttentionCache | None = None
    ) -> mx.array:
        assert read is not None
        queries, keys, values = self.project(x, step)
        queries, keys = self.place(queries, keys, step)
        seen = attend_jointly(step, cache, read, queries, keys, values, scale=self._scale)
        return linear(self.o_proj, seen, step)


class DecoderLayer(Module):
    def __init__(self, config: StackConfig, rope: Rope | None) -> None:
        super().__init__()
        norm = rms_norms(config)
        self.self_attn, self.mlp = JointAttention(config, rope), gated_mlp(config)
        self.pre_self_attn_layernorm, self.post_self_attn_layernorm = norm(), norm()
        self.pre_feedforward_layernorm, self.post_feedforward_layernorm = norm(), norm()

    def __call__(self, x: mx.array, step: Step, own: AttentionCache, read: AttentionCache) -> mx.array:
        seen = self.self_attn(self.pre_self_attn_layernorm(x), step, own, read)
        x = x + self.post_self_attn_layernorm(seen)
        return x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x), step))

    def remember(self, read: mx.array, whole: Step, step: Step, cache: AttentionCache) -> None:
        """What the encoder made of a whole prompt, which begins the rows of this step."""
        cache.append(step, *self.self_attn.keys_values(read, whole))


class EncoderStack(Module):
    in_turn: ClassVar[str] = "layers"
    reads_prompts: ClassVar[bool] = True

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.layers = [
            EncoderLayer(config, HeadNormAttention(config, rope, head_norms(config), **_sizes(config)))
            for rope in layer_ropes(config)
        ]
        self.norm = rms_norms(config)()
        for layer, window in zip(self.layers, config.windows, strict=True):
            layer.self_attn.look_ahead(*(() if window is None else ((window - 1) // 2, window // 2)))

    def __call__(self, whole: Step, x: mx.array) -> mx.array:
        """Embedded tokens [B, T, D] of whole texts -> normed hidden states. whole: see `whole_texts`."""
        for layer in self.layers:
            x = layer(x, whole)
        return self.norm(x)


class DecoderStack(Module):
    in_turn: ClassVar[str] = "layers"

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.layers = [DecoderLayer(config, rope) for rope in layer_ropes(config)]
        self.norm = rms_norms(config)()

    def __call__(self, step: Step, caches: Caches, x: mx.array) -> mx.array:
        """Embedded tokens [B, L, D] of a step -> normed hidden states; caches: two for each layer."""
        return self.norm(through(self.layers, x, step, caches))


class T5Gemma2(Module):
    shifts: ClassVar[tuple[()]] = ()  # a row that has outgrown its context reads what is left anew

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.eoi_embedding = mx.zeros((config.hidden_size,))
        self.encoder, self.decoder = EncoderStack(config.encoder), DecoderStack(config.decoder)
        self._scale, self._image_end = math.sqrt(config.hidden_size), config.image_end_id
        self._softcap = config.decoder.logit_softcap

    def encode(self, prompt: Inputs, step: Step, caches: Caches) -> None:
        """Read whole prompts [B, T], one for each row of a step that begins; that step follows."""
        whole = whole_texts(prompt, step)
        read = self.encoder(whole, whole.embedded(self.embed))
        remember(self.decoder.layers, read, whole, step, caches)

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        return self.decoder(step, caches, step.embedded(self.embed))

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        x = embed(self.embed_tokens, ids, step) * self._scale
        return mx.where((ids == self._image_end)[..., None], self.eoi_embedding.astype(x.dtype), x)

    @property
    def tied_table(self) -> nn.Module:
        """The table that is the head, too."""
        return self.embed_tokens

    def logits(self, hidden: mx.array, step: Step | None = None) -> mx.array:
        logits = tied(self.embed_tokens, hidden, step)
        return logits if self._softcap is None else softcap(logits, self._softcap)


def build(config: Config) -> T5Gemma2:
    return T5Gemma2(config)


_TABLE = "encoder.embed_tokens."
_COPIES = ("decoder.embed_tokens.", "lm_head.out_proj.")


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """The table by its one name; norms get their 1. In memory transformers has `text_model.` in names of the
    encoder, in files it has not.
    """
    named = {name.removeprefix("model.").replace(".text_model.", "."): x for name, x in weights.items()}
    kept = {name: x for name, x in named.items() if not name.startswith(_COPIES)}
    for copy in _COPIES if f"{_TABLE}weight" not in kept else ():
        kept |= {_TABLE + name.removeprefix(copy): x for name, x in named.items() if name.startswith(copy)}
    return one_added({_name(name): x for name, x in kept.items()})


def _name(name: str) -> str:
    own = name.removeprefix(_TABLE)
    return name if own == name else own if own == "eoi_embedding" else f"embed_tokens.{own}"


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    start_id=lambda config: config.start_id,
    checkpoint=always(
        Checkpoint(
            copies=(f"model.{_TABLE}weight", tuple(f"{name}weight" for name in _COPIES)),
            towers=Towers(images=("encoder.vision_tower.",), projectors=("encoder.multi_modal_projector.",)),
        )
    ),
)
