"""Hunyuan: norms after rotation, the alpha base; experts, as many as a layer asks for."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "hunyuan": (
        "hunyuan_v1_dense",
        {
            "head_dim": 32,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 50.0, "factor": 1.0},
        },
    ),
    "hunyuan_moe": (
        "hunyuan_v1_moe",
        {
            "head_dim": 32,
            "num_experts": 8,
            "moe_topk": [3, 2, 4, 1],
            "intermediate_size": 48,
            "tie_word_embeddings": True,
        },
    ),
    "hunyuan_biases": ("hunyuan_v1_dense", {"head_dim": 16, "attention_bias": True}),
}
