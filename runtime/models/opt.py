"""OPT and Galactica: learned positions, LayerNorms before each sublayer, or, in OPT 350M, behind its sum.

OPT 350M also has embeddings narrower than its layers, and a matrix at either end. Positions have two rows
of their table before them.

Sources: arXiv 2205.01068; transformers modeling_opt.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import StepCache
from runtime.config.decoder import DecoderConfig, layer_count, read_older_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.layer import Layer
from runtime.nn.linear import linear
from runtime.nn.norm import Normalize
from runtime.nn.residual.block import PreNorm
from runtime.nn.residual.sublayer import added
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import attention_layout, layer_norms, plain_mlp
from runtime.trunks.headed import untied_head
from runtime.trunks.position_table import PositionTableLM, PositionTableTrunk

_BEFORE = 2


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    bias: bool
    norm_first: bool
    norm_last: bool
    """Behind the last layer."""
    width: int
    """Of the stream; `hidden_size` is that of embeddings, and of what leaves the trunk."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape = read_older_shape(
        fields, inner="ffn_dim", activation_field="activation_function", activation="relu", tied=True
    )
    if not fields.flag("layer_norm_elementwise_affine", True):
        fields.refuse("layer_norm_elementwise_affine", "true: norms have weights here")
    layers, first = layer_count(fields, 12), fields.flag("do_layer_norm_before", True)
    width = shape["hidden_size"]
    shape["hidden_size"] = fields.count("word_embed_proj_dim", width, high=1 << 20)
    shape["norm_eps"] = 1e-5
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(None,) * layers,
        bias=fields.flag("enable_bias", True),
        norm_first=first,
        norm_last=first and not fields.flag("_remove_final_layer_norm"),
        width=width,
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class NormedSums(PreNorm):
    """Each sublayer reads the stream as it is, and what it makes of it is normed (OPT 350M)."""

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        x = self.input_layernorm(added(x, self.self_attn, step, cache))
        return self.post_attention_layernorm(added(x, self.mlp, step))


class OptTrunk(PositionTableTrunk):
    def __init__(self, config: Config, layers: Sequence[Layer], norm: Normalize) -> None:
        super().__init__(replace(config, hidden_size=config.width), layers, norm, before=_BEFORE)
        self.is_even = config.hidden_size == config.width
        if not self.is_even:
            self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
            self.project_in = nn.Linear(config.hidden_size, config.width, bias=False)
            self.project_out = nn.Linear(config.width, config.hidden_size, bias=False)

    @property
    def for_layers(self) -> tuple[str, ...]:
        """What makes the stream as wide as layers want it."""
        return () if self.is_even else ("project_in",)

    def leaving(self, x: mx.array, step: Step) -> mx.array:
        x = super().leaving(x, step)
        return x if self.is_even else linear(self.project_out, x, step)

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        x = super().embed(ids, step)
        return x if self.is_even else linear(self.project_in, x, step)


def build(config: Config) -> PositionTableLM:
    inside = replace(config, hidden_size=config.width)
    norm = layer_norms(inside)
    wiring, bias = PreNorm if config.norm_first else NormedSums, config.bias
    layers = [
        wiring(
            SelfAttention(inside, None, qkv_bias=bias, output_bias=bias), plain_mlp(inside, bias=bias), norm
        )
        for _ in config.windows
    ]
    last = norm() if config.norm_last else nn.Identity()
    return PositionTableLM(OptTrunk(config, layers, last), untied_head(config))


_NAMES = (
    ("model.decoder.final_layer_norm.", "model.norm."),
    ("model.decoder.", "model."),
    (".self_attn_layer_norm.", ".input_layernorm."),
    (".final_layer_norm.", ".post_attention_layernorm."),
    (".self_attn.out_proj.", ".self_attn.o_proj."),
    (".fc1.", ".mlp.up_proj."),
    (".fc2.", ".mlp.down_proj."),
)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Published files have `decoder.` before the names of the trunk, or `model.decoder.`."""
    return respelled(without_spares(config, weights), _NAMES, trunk="model.")


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(Checkpoint(modules=(("decoder.", "model.decoder."),))),
)
