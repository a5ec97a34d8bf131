"""StableLM: both wirings, norms per head, biases."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "stablelm": ("stablelm", {"use_qkv_bias": True, "rope_parameters": {"partial_rotary_factor": 0.5}}),
    "stablelm_parallel": (
        "stablelm",
        {
            "use_parallel_residual": True,
            "qk_layernorm": True,
            "tie_word_embeddings": True,
        },
    ),
}
