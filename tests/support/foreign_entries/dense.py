"""Kinds without experts."""

from typing import Any

from tests.support.foreign_entries import ropes

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "helium": ("helium", {"head_dim": 16}),
}
CHANGES: dict[str, dict[str, dict[str, Any]]] = {
    "helium": {
        **ropes(),
        "hidden_size and head_dim": {"hidden_size": 128, "head_dim": 32},
        "heads and head_dim": {"num_attention_heads": 8, "head_dim": 8},
        "head_dim null": {"head_dim": None},
    },
}
