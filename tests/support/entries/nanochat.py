"""nanochat: norms without weights, heads that turn the other way, bent logits."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "nanochat": ("nanochat", {"final_logit_softcapping": 2.0, "rms_norm_eps": 1e-3}),
    "nanochat_biases": (
        "nanochat",
        {
            "attention_bias": True,
            "tie_word_embeddings": True,
            "final_logit_softcapping": None,
            "hidden_act": "gelu",
            "head_dim": 32,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 32,
            },
        },
    ),
}
