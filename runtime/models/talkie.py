"""Talkie: a Llama whose norms have no weights. Answers have learned shares instead: each sublayer's, each
head's of queries, the head's, and that of the embeddings, which enter the stream again behind each layer.

Heads turn the other way than everybody's and are normed behind that, as nanochat's.

Source: mlx-lm talkie.py; read beside llama.cpp's talkie.cpp.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import Caches, StepCache, by_layout
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.linear import embed, linear
from runtime.nn.module import Module
from runtime.nn.norm import PlainRMS, rms
from runtime.nn.operations import ops
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import turned_back
from runtime.step import Step
from runtime.tensors.experts import Weights
from runtime.tensors.names import respelled
from runtime.trunks.decoder import attention_layout, gated_mlp, layer_ropes
from runtime.trunks.headed import Headed, untied_head

_EPS = 2.0**-23
"""What the authors' norms add: they name no number, and get float32's own."""


def parse(raw: Mapping[str, Any]) -> DecoderConfig:
    fields = Fields(raw)
    fields.choice("model_type", ("talkie",))
    shape = read_shape(
        fields,
        eps=_EPS,
        activations=("silu",),
        vocab_size=65540,
        hidden_size=5120,
        intermediate_size=13696,
        num_attention_heads=40,
        head_dim=128,
    )
    fields.only({"tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False})
    if shape["kv_heads"] != shape["heads"]:
        fields.refuse("num_key_value_heads", f"num_attention_heads, {shape['heads']}")
    rope = one_rope(fields, shape, theta=1e6)
    if fields.rope_parameters(theta=1e6)["rope_type"] != "default":
        fields.refuse("rope_parameters", "rope_type default: the rotation of this family is not scaled")
    layers = layer_count(fields, 40)
    return DecoderConfig(**shape, windows=(None,) * layers, ropes=(turned_back(rope),) * layers)


def layout(config: DecoderConfig) -> list[LayerSpec]:
    return attention_layout(config)


class Attention(SelfAttention):
    """With a share for each head of queries, behind their norm."""

    def __init__(self, config: DecoderConfig, rope: Rope | None) -> None:
        super().__init__(config, rope)
        self.head_gain = mx.ones((config.heads,))
        self._norm = PlainRMS(config.norm_eps)

    def place(self, queries: mx.array, keys: mx.array, step: Step) -> tuple[mx.array, mx.array]:
        queries, keys = super().place(queries, keys, step)
        return self._norm(queries) * self.head_gain.astype(queries.dtype)[:, None, None], self._norm(keys)


class Block(Module):
    def __init__(self, config: DecoderConfig, rope: Rope | None) -> None:
        super().__init__()
        self.self_attn = Attention(config, rope)
        self.mlp = gated_mlp(config)
        self.attn_gain, self.mlp_gain, self.embed_skip = mx.ones((1,)), mx.ones((1,)), mx.zeros((1,))
        self._norm = PlainRMS(config.norm_eps)

    def __call__(self, x: mx.array, step: Step, cache: StepCache, embedded: mx.array) -> mx.array:
        """embedded: the normed embeddings [B, L, D]."""
        x = x + self.self_attn(self._norm(x), step, cache) * self.attn_gain.astype(x.dtype)
        x = x + self.mlp(self._norm(x), step) * self.mlp_gain.astype(x.dtype)
        return x + embedded * self.embed_skip.astype(x.dtype)


class Trunk(Module):
    in_turn: ClassVar[str] = "layers"
    for_layers: ClassVar[tuple[str, ...]] = ("embed_tokens",)

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = [Block(config, rope) for rope in layer_ropes(config)]
        self.norm = PlainRMS(config.norm_eps)
        self._eps = config.norm_eps

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        x = step.embedded(self.embed)
        return self.norm(ops.table.layers(self.layers, x, step, by_layout(caches), x[:, :, None]))

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        """By no module: stages behind the first, which have not the last norm, make it, too."""
        return rms(embed(self.embed_tokens, ids, step), self._eps)


class Talkie(Headed):
    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(Trunk(config), untied_head(config))
        self.lm_head_gain = mx.ones((1,))

    def logits(self, hidden: mx.array, step: Step | None = None) -> mx.array:
        logits = linear(self[self.head_name], hidden, step)
        return logits * self.lm_head_gain.astype(logits.dtype)


def build(config: DecoderConfig) -> Talkie:
    return Talkie(config)


_NAMES = (
    ("model.embed.", "model.embed_tokens."),
    ("model.blocks.", "model.layers."),
    (".attn.attn_query.", ".self_attn.q_proj."),
    (".attn.attn_key.", ".self_attn.k_proj."),
    (".attn.attn_value.", ".self_attn.v_proj."),
    (".attn.attn_resid.", ".self_attn.o_proj."),
    (".attn.head_gain.head_g", ".self_attn.head_gain"),
    (".mlp.mlp_gate.", ".mlp.gate_proj."),
    (".mlp.mlp_linear.", ".mlp.up_proj."),
    (".mlp.mlp_resid.", ".mlp.down_proj."),
    ("_gain.a_g", "_gain"),
    ("_gain.w_g", "_gain"),
    (".embed_skip.a_g", ".embed_skip"),
)


def adapt(config: DecoderConfig, weights: Weights) -> Weights:
    """The head has no `.weight` in files. Tables of the rotation are left out."""
    named = respelled(weights, _NAMES)
    return {
        "lm_head.weight" if name == "lm_head" else name: array
        for name, array in named.items()
        if "rotary" not in name and not name.endswith(("cos", "sin"))
    }


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
