"""Kinds with experts."""

from typing import Any

from tests.support.foreign_entries import THETA, ropes

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "dbrx": (
        "dbrx",
        {
            "attn_config": {"kv_n_heads": 2, "clip_qkv": 2.0, "rope_theta": 10000.0},
            "ffn_config": {"ffn_hidden_size": 48, "hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2},
        },
    ),
}
_DBRX = ENTRIES["dbrx"][1]


def _attn(**fields: Any) -> dict[str, Any]:
    return {"attn_config": {**_DBRX["attn_config"], **fields}}


def _ffn(**fields: Any) -> dict[str, Any]:
    return {"ffn_config": {**_DBRX["ffn_config"], **fields}}


CHANGES: dict[str, dict[str, dict[str, Any]]] = {
    "dbrx": {
        **ropes(),
        "clip_qkv null": _attn(clip_qkv=None),
        "clip_qkv": _attn(clip_qkv=1.0),
        "kv_n_heads": _attn(kv_n_heads=4),
        "attn rope_theta": _attn(rope_theta=500.0),
        "both rope_theta": {**_attn(rope_theta=500.0), "rope_parameters": THETA},
        "ffn_hidden_size": _ffn(ffn_hidden_size=32),
        "moe_num_experts": _ffn(moe_num_experts=6),
        "moe_top_k": _ffn(moe_top_k=1),
        "moe_normalize null": _ffn(moe_normalize_expert_weights=None),
        "moe_normalize 2": _ffn(moe_normalize_expert_weights=2.0),
        "moe_jitter": _ffn(moe_jitter_eps=0.1),
        "ffn gelu": _ffn(ffn_act_fn={"name": "gelu"}),
        "ffn silu": _ffn(ffn_act_fn={"name": "silu"}),
    },
}
