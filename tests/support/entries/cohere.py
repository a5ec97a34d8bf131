"""Cohere and Cohere 2: parallel sublayers, neighbouring pairs, norms per head, sliding and NoPE layers."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "cohere": ("cohere", {"logit_scale": 0.25, "use_qk_norm": True}),
    "cohere_biases": ("cohere", {"attention_bias": True, "tie_word_embeddings": False}),
    "cohere2": ("cohere2", {"sliding_window": 12, "sliding_window_pattern": 3}),
    "cohere_compass_text": (
        "cohere_compass_text",
        {
            "sliding_window": 9,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
            "rope_parameters": {
                "full_attention": None,
                "sliding_attention": {
                    "rope_type": "default",
                    "rope_theta": 5000.0,
                    "mrope_section": [4, 2, 2],
                },
            },
            "attention_bias": True,
            "logit_scale": 0.5,
        },
    ),
}
