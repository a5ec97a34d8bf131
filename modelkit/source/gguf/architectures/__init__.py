"""Architectures of llama.cpp as checkpoints of transformers, and the other way round.

`read_architecture` says what a GGUF file is in the words of a checkpoint, `describe_for_gguf` what a
checkpoint is in the words of a GGUF file. Both read one table: a row is an architecture with settings
(metadata and config) and rules (names of tensors, and how rows move). All of it is values; `apply.apply`
computes them.

    read, describe           the two directions; `exchange`: metadata and config meanwhile
    table, architecture      all rows; one row
    settings, rules          what a row consists of; `parts`: what many rows share
    facts                    what rules ask about a model's config
    moves, changes           how rows of tensors are moved, and how their numbers are changed
    kinds, numbers           types of metadata keys; floats as people wrote them
    apply, pairs             moves computed on arrays; adapters in GGUF
    ollama                   files that Ollama's own converter has made
    rope, windows, moe, latent_heads, delta_nets, state, hybrid    what several architectures have in common

Every other file has the rows of one architecture, or of a few that are alike.

The table is imported with the first of these names that needs it: what is loaded is a GGUF file but rarely.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from modelkit.source.gguf.architectures.moves import Origin, Run

if TYPE_CHECKING:
    from modelkit.source.gguf.architectures.describe import Described, describe_for_gguf, unplaced
    from modelkit.source.gguf.architectures.pairs import AdapterParts, apply_to_pair, halves, read_adapter
    from modelkit.source.gguf.architectures.read import Imported, read_architecture
    from modelkit.source.gguf.architectures.table import NAMES, ROWS

__all__ = [
    "NAMES",
    "ROWS",
    "AdapterParts",
    "Described",
    "Imported",
    "Origin",
    "Run",
    "apply_to_pair",
    "describe_for_gguf",
    "halves",
    "read_adapter",
    "read_architecture",
    "unplaced",
]

_HOMES = {
    "NAMES": "table",
    "ROWS": "table",
    "AdapterParts": "pairs",
    "Described": "describe",
    "Imported": "read",
    "apply_to_pair": "pairs",
    "describe_for_gguf": "describe",
    "halves": "pairs",
    "read_adapter": "pairs",
    "read_architecture": "read",
    "unplaced": "describe",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
