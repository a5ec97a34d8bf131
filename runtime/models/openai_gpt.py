"""The first GPT: GPT-2's sublayers, with a norm behind each of them and none before the head.

Sources: Radford et al., "Improving Language Understanding by Generative Pre-Training" (2018); transformers
modeling_openai.py.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.config.fields import Fields
from runtime.models import gpt2
from runtime.models.family import Family
from runtime.models.gpt2 import Config
from runtime.models.opt import NormedSums
from runtime.nn.attention.fused_attention import FusedAttention
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.names import respelled
from runtime.trunks.decoder import layer_norms, plain_mlp
from runtime.trunks.headed import untied_head
from runtime.trunks.position_table import PositionTableLM, PositionTableTrunk

_ACTIVATIONS = {"gelu": "gelu_new", "gelu_new": "gelu_new", "relu": "relu", "silu": "silu", "swish": "silu"}
"""By `afn`: its class's GELU is the approximate one, whichever is asked for."""
_NOT_ITS = "activation_function", "n_inner", "scale_attn_weights", "scale_attn_by_inverse_layer_idx"


def parse(raw: Mapping[str, Any]) -> Config:
    """Fields of GPT-2's that its class does not look at count for nothing."""
    fields = Fields(raw)
    fields.choice("model_type", ("openai-gpt",))
    afn = fields.choice("afn", tuple(_ACTIVATIONS), "gelu")
    own = {name: value for name, value in fields.raw.items() if name not in _NOT_ITS}
    sizes = {"n_positions": fields.count("n_positions", 512, high=1 << 24)}
    vocab = {"vocab_size": fields.count("vocab_size", 40478, high=1 << 24)}
    return gpt2.parse({**own, **sizes, **vocab, "activation_function": _ACTIVATIONS[afn]})


def build(config: Config) -> PositionTableLM:
    norm = layer_norms(config)
    layers = [
        NormedSums(FusedAttention(config, None, bias=True, scale=scale), plain_mlp(config, bias=True), norm)
        for scale in config.scales
    ]
    return PositionTableLM(PositionTableTrunk(config, layers, nn.Identity()), untied_head(config))


_NAMES = (("tokens_embed.", "wte."), ("positions_embed.", "wpe."))


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return gpt2.adapt(config, respelled(weights, _NAMES))


FAMILY = Family(
    parse=parse,
    layout=gpt2.layout,
    build=build,
    adapt=adapt,
    checkpoint=always(
        Checkpoint(input_first=(".c_attn.weight", ".c_proj.weight", ".c_fc.weight"), spare=(".attn.bias",))
    ),
)
