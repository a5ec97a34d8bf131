"""xLSTM (7B): no attention; every layer has an mLSTM (`runtime.nn.recurrent.mlstm`) and a gated MLP.

Sources: arXiv 2503.13427; transformers modeling_xlstm.py.
"""

from collections.abc import Mapping
from typing import Any

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.models.rwkv7 import UNBOUNDED
from runtime.nn.recurrent.mlstm import MLSTM, LstmSpec
from runtime.nn.residual.block import PreNormRecurrent
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights
from runtime.tensors.names import respelled, without_spares
from runtime.tensors.quantizing import SOURCE, Row
from runtime.trunks.decoder import CausalLM, gated_mlp, rms_norms


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    lstm: LstmSpec
    logit_softcap: float


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("xlstm",))
    fields.only({"use_bias": False})
    fields.choice("weight_mode", ("single",), "single")
    fields.choice("mode", ("inference",), "inference")
    fields.choice("inference_state_dtype", ("float32",), "float32")
    layers = _either(fields, "num_hidden_layers", "num_blocks", 32, high=4096)
    lstm = _lstm(fields)
    return Config(
        **_shape(fields, lstm),
        windows=(None,) * layers,
        ropes=(None,) * layers,
        lstm=lstm,
        logit_softcap=fields.number("output_logit_soft_cap", 30.0, low=1e-6),
    )


def _lstm(fields: Fields) -> LstmSpec:
    hidden = _either(fields, "hidden_size", "embedding_dim", 4096)
    heads = fields.count("num_heads", 8, high=4096)
    key, value = (
        int(hidden * fields.number(f"{part}_dim_factor", by, low=1e-3, high=64)) for part, by in _FACTORS
    )
    for name, size in (("qk_dim_factor", key), ("v_dim_factor", value)):
        if not size or size % heads:
            fields.refuse(name, f"one by which {hidden} is divided among {heads} heads")
    return LstmSpec(
        hidden=hidden,
        heads=heads,
        key=key // heads,
        value=value // heads,
        cap=fields.number("gate_soft_cap", 15.0, low=1e-6, high=60),
        norm_eps=fields.number("norm_eps", 1e-6, low=1e-30),
        eps=fields.number("eps", 1e-6, low=1e-30),
    )


def _shape(fields: Fields, lstm: LstmSpec) -> dict[str, Any]:
    meant = {
        "hidden_size": lstm.hidden,
        "intermediate_size": _inner(fields, lstm.hidden),
        "hidden_act": "silu",
        "num_attention_heads": lstm.heads,
        "num_key_value_heads": lstm.heads,
        "head_dim": lstm.value,
        "tie_word_embeddings": False,  # whatever a file says
    }
    return read_shape(
        Fields({**fields.raw, **meant}),
        eps_field="norm_eps",
        vocab_size=50304,
        max_position_embeddings=UNBOUNDED,
    )


_FACTORS = ("qk", 0.5), ("v", 1.0)


def _either(fields: Fields, name: str, other: str, default: int, *, high: int = 1 << 20) -> int:
    """Files say the same number under two names."""
    told = fields.count(name, fields.count(other, default, high=high), high=high)
    if fields.count(other, told, high=high) != told:
        fields.refuse(other, f"{told}, as {name} is")
    return told


def _inner(fields: Fields, hidden: int) -> int:
    each = fields.count("ffn_round_up_to_multiple_of", 64, high=1 << 16)
    wide = hidden * fields.number("ffn_proj_factor", 2.667, low=1e-3, high=1000)
    return int((wide + each - 1) // each) * each


def layout(config: Config) -> list[LayerSpec]:
    return [config.lstm.memory] * config.layers


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)
    layers = [PreNormRecurrent(MLSTM(config.lstm), gated_mlp(config), norm) for _ in range(config.layers)]
    return CausalLM(config, layers, norm(), logit_softcap=config.logit_softcap)


_NAMES = (
    ("backbone.embeddings.", "model.embed_tokens."),
    ("backbone.blocks.", "model.layers."),
    ("backbone.out_norm.", "model.norm."),
    (".norm_mlstm.", ".input_layernorm."),
    (".mlstm_layer.", ".linear_attn."),
    (".norm_ffn.", ".post_attention_layernorm."),
    (".ffn.proj_up_gate.", ".mlp.gate_proj."),
    (".ffn.proj_up.", ".mlp.up_proj."),
    (".ffn.proj_down.", ".mlp.down_proj."),
)


def adapt(config: Config, weights: Weights) -> Weights:
    return without_spares(config, respelled(weights, _NAMES, trunk="backbone."))


_GATES = Row(lambda t, _: t.ends("igate_preact.weight", "fgate_preact.weight"), SOURCE, "gate of a state")
FAMILY = Family(
    parse=parse, layout=layout, build=build, adapt=adapt, checkpoint=always(Checkpoint(rows=(_GATES,)))
)
