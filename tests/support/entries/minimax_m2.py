"""MiniMax M2: part of each head rotated, by a share and by `rotary_dim`."""

from typing import Any

_MIXTURE: dict[str, Any] = {
    "intermediate_size": 32,
    "num_local_experts": 8,
    "num_experts_per_tok": 3,
    "num_hidden_layers": 3,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "minimax_m2": ("minimax_m2", {**_MIXTURE, "head_dim": 32, "rotary_dim": 16}),
    "minimax_m2_whole": ("minimax_m2", {**_MIXTURE, "head_dim": 16, "tie_word_embeddings": True}),
}
