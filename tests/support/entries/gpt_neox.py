"""GPT-NeoX: both wirings, heads interleaved in one matrix, partial rotation."""

from typing import Any

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt_neox": (
        "gpt_neox",
        {"num_hidden_layers": 3, "rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 5000.0}},
    ),
    "gpt_neox_sequential": (
        "gpt_neox",
        {
            "num_hidden_layers": 3,
            "use_parallel_residual": False,
            "attention_bias": False,
            "tie_word_embeddings": True,
        },
    ),
}
