"""Kinds with experts: DBRX."""

from runtime.models.checkpoint import Checkpoint
from runtime.models.foreign.fields import Count, Number, Only
from runtime.models.foreign.kinds import (
    Kind,
    Values,
    same,
)
from runtime.models.foreign.rope import Ropes
from runtime.models.quantizing import SOURCE, Row


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
