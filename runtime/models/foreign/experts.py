"""Kinds with experts: AFMoE (Trinity), DBRX."""

from runtime.errors import UnsupportedModel
from runtime.models.checkpoint import Checkpoint
from runtime.models.foreign.fields import Count, Flag, Number, Only, Words
from runtime.models.foreign.kinds import (
    LAYERS,
    Kind,
    Values,
    older_rope,
    per_layer,
    same,
    sizes,
)
from runtime.models.foreign.rope import Ropes
from runtime.models.quantizing import SOURCE, Row

_EXPERTS = 1 << 16
_FULL, _SLIDING = "full_attention", "sliding_attention"


def _spell_afmoe(values: Values) -> Values:
    every = values["global_attn_every_n_layers"]
    default = [_SLIDING if (i + 1) % every else _FULL for i in range(values["num_hidden_layers"])]
    kinds = _some_full(per_layer(values, "layer_types", default), "afmoe")
    return {**older_rope(values), "layer_types": kinds}


def _some_full(kinds: list[str], file: str) -> list[str]:
    if _FULL not in kinds:
        raise UnsupportedModel(
            f"config.json: layer_types has no {_FULL}, and mlx-lm's {file} looks for the first one"
        )
    return kinds


def _spell_dbrx(values: Values) -> Values:
    attention = {name: values[f"attn_config.{name}"] for name in ("kv_n_heads", "clip_qkv", "rope_theta")}
    inner = {
        name: values[f"ffn_config.{name}"] for name in ("ffn_hidden_size", "moe_num_experts", "moe_top_k")
    }
    told = values["rope"]["rope_theta"]
    same(values, "attn_config.rope_theta", told, "transformers goes by rope_parameters")
    return {"attn_config": attention, "ffn_config": inner}


KINDS = (
    Kind(
        "afmoe",
        ("afmoe",),
        ("AfmoeForCausalLM",),
        {
            **sizes(2048, 6144, 32, 16, 16, 200192, 16384),
            "moe_intermediate_size": Count(1408),
            "num_dense_layers": Count(1, low=0, high=LAYERS),
            "head_dim": Count(128),
            "rms_norm_eps": Number(1e-5),
            "tie_word_embeddings": Flag(False),
            "attention_bias": Only(False),
            "num_experts": Count(64, high=_EXPERTS),
            "num_experts_per_tok": Count(6, low=2),  # the weight of a single one would not become 1
            "num_shared_experts": Count(2),
            "route_scale": Number(1.0),
            "score_func": Only("sigmoid"),
            "route_norm": Only(True),
            "global_attn_every_n_layers": Count(4),
            "sliding_window": Count(1024),
            "layer_types": Words((_FULL, _SLIDING)),
            "mup_enabled": Flag(False),
        },
        Ropes(types=("default", "linear", "llama3", "yarn")),
        spell=_spell_afmoe,
        checkpoint=Checkpoint(experts="experts"),
    ),
    Kind(
        "dbrx",
        ("dbrx",),
        ("DbrxForCausalLM",),
        {
            "d_model": Count(2048),
            "n_heads": Count(16),
            "n_layers": Count(24, high=256),  # its experts are modules of their own
            "max_seq_len": Count(2048),
            "vocab_size": Count(32000),
            "tie_word_embeddings": Only(False),
            "attn_config.kv_n_heads": Count(1),
            "attn_config.clip_qkv": Number(None),
            "attn_config.rope_theta": Number(10000.0),
            "ffn_config.ffn_act_fn": Only({"name": "silu"}),
            "ffn_config.ffn_hidden_size": Count(3584),
            "ffn_config.moe_num_experts": Count(4, high=64),
            "ffn_config.moe_top_k": Count(1),
            "ffn_config.moe_normalize_expert_weights": Only(1.0),
        },
        Ropes(),
        aliases={
            "num_attention_heads": "n_heads",
            "hidden_size": "d_model",
            "num_hidden_layers": "n_layers",
            "max_position_embeddings": "max_seq_len",
        },
        length="max_seq_len",
        spell=_spell_dbrx,
        checkpoint=Checkpoint(
            rows=(
                Row(
                    lambda t, _: t.has(".experts.mlp."),
                    SOURCE,
                    "experts on top of each other, which mlx-lm takes apart",
                ),
            )
        ),
    ),
)
