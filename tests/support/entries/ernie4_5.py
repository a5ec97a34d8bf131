"""ERNIE 4.5: dense, with every bias; mixtures in every other layer from a first to a last one, corrected."""

from typing import Any

_MIXTURE: dict[str, Any] = {
    "moe_intermediate_size": 32,
    "moe_k": 3,
    "moe_num_experts": 8,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "ernie4_5": ("ernie4_5", {"head_dim": 16, "num_hidden_layers": 3}),
    "ernie4_5_biases": (
        "ernie4_5",
        {"head_dim": 32, "num_hidden_layers": 3, "use_bias": True, "tie_word_embeddings": False},
    ),
    "ernie4_5_moe": ("ernie4_5_moe", {**_MIXTURE, "num_hidden_layers": 3}),
    "ernie4_5_moe_biases": (
        "ernie4_5_moe",
        {
            **_MIXTURE,
            "num_hidden_layers": 6,
            "use_bias": True,
            "tie_word_embeddings": False,
            "moe_num_shared_experts": 1,
            "moe_layer_start_index": 1,
            "moe_layer_end_index": 3,
            "moe_layer_interval": 2,
            "moe_norm_min": 0.5,
        },
    ),
    "ernie4_5_moe_unshared": (
        "ernie4_5_moe",
        {**_MIXTURE, "num_hidden_layers": 3, "moe_num_shared_experts": 0, "moe_layer_start_index": 0},
    ),
}
