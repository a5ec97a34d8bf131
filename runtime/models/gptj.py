"""GPT-J and CodeGen: attention and MLP side by side behind one LayerNorm, part of each head rotated by
neighbouring pairs, a head with biases.

CodeGen has one matrix for q, k and v, which was cut for training: of each quarter of the heads the queries,
the values and the keys. CodeGen2's 1B and 3.7B were cut into eight, which only the code beside them knows;
their configs alone have `head_dim`. transformers takes them for quarters, and writes nonsense with them.

Sources: transformers modeling_gptj.py, modeling_codegen.py; OpenNMT/CTranslate2 converters/transformers.py.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, read_older_shape
from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel
from runtime.models.family import Family
from runtime.nn.attention.fused_attention import FusedAttention
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.layer import Mixer
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import read_rope
from runtime.nn.residual.block import Parallel
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.names import GPT_TRUNK, respelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, layer_norms, layer_ropes, plain_mlp


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    cuts: int
    """Parts that the one matrix for queries, keys and values was cut into (CodeGen); 0: there are three."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fused = fields.choice("model_type", ("gptj", "codegen")) == "codegen"
    shape = read_older_shape(
        fields,
        inner="n_inner",
        length="n_positions",
        activation_field="activation_function",
        activation="gelu_new",
    )
    if shape["tied"]:
        raise UnsupportedModel("config.json: tie_word_embeddings is true, and this head has biases")
    cuts = 0 if not fused else 8 if fields.raw.get("head_dim") == shape["head_dim"] else 4
    if fused and shape["hidden_size"] % cuts:
        fields.refuse("hidden_size", f"a multiple of {cuts}")
    absent = None if "rotary_dim" in fields.raw else 64  # a null was whole heads once, and is refused since
    turned = fields.count("rotary_dim", absent, high=shape["head_dim"])
    if turned % 2:
        fields.refuse("rotary_dim", "an even number")
    layers = layer_count(fields, 28)
    plain, length = {"rope_type": "default", "rope_theta": 10000.0}, shape["context_length"]
    rope = read_rope(plain, head_dim=turned, max_positions=length, traditional=True)
    return Config(**shape, windows=(None,) * layers, ropes=(rope,) * layers, cuts=cuts)


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> CausalLM:
    norm = layer_norms(config)

    def attention(rope: Rope | None) -> Mixer:
        return FusedAttention(config, rope) if config.cuts else SelfAttention(config, rope)

    layers = [Parallel(attention(rope), plain_mlp(config, bias=True), norm) for rope in layer_ropes(config)]
    return CausalLM(config, layers, norm(), head_bias=True)


_SPARE = (".attn.bias", ".attn.masked_bias", ".attn.causal_mask")
_NAMES = (
    *GPT_TRUNK,
    (".attn.out_proj.", ".self_attn.o_proj."),
    (".attn.", ".self_attn."),
    (".mlp.fc_in.", ".mlp.up_proj."),
    (".mlp.fc_out.", ".mlp.down_proj."),
)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """mlx-lm's class calls the trunk model."""
    kept = {
        name.replace("model.", "transformer.") if name.startswith("model.") else name: array
        for name, array in weights.items()
    }
    named = respelled(without_spares(config, kept), _NAMES, trunk="transformer.")
    return {name: _in_order(x, config.cuts) if ".qkv_proj." in name else x for name, x in named.items()}


def _in_order(matrix: mx.array, cuts: int) -> mx.array:
    """[cut][query, value, key] rows -> all queries', all keys', all values'."""
    parts = matrix.reshape(cuts, 3, -1, *matrix.shape[1:])
    return mx.concatenate([parts[:, part].reshape(-1, *matrix.shape[1:]) for part in (0, 2, 1)])


CHECKPOINT = Checkpoint(spare=_SPARE, modules=(("model.", "transformer."),))

FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt, checkpoint=always(CHECKPOINT))
