"""Beam: layers that slide and turn, whole ones whose queries grow, mixtures in groups behind dense layers."""

from typing import Any

_SIZES: dict[str, Any] = {
    "head_dim": 16,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
    "n_group": 4,
    "topk_group": 2,
    "sliding_window": 9,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "beam": ("beam", {**_SIZES, "num_hidden_layers": 7}),
    "beam_turned": (
        "beam",
        {
            **_SIZES,
            "num_hidden_layers": 3,
            "layer_types": ["full_attention", "sliding_attention", "full_attention"],
            "mlp_layer_types": ["sparse", "dense", "sparse"],
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 500.0},
                "sliding_attention": None,
            },
            "norm_topk_prob": False,
            "attention_bias": True,
            "tie_word_embeddings": True,
            "final_logit_softcapping": None,
        },
    ),
}
