"""Architectures of llama.cpp as checkpoints of transformers, and the other way round.

`read_architecture` says what a GGUF file is in the words of a checkpoint, `describe_for_gguf` what a
checkpoint is in the words of a GGUF file. Both read one table: a row is an architecture with settings
(metadata and config) and rules (names of tensors, and how rows move). All of it is values; `apply` computes
them.
"""

from modelkit.source.gguf.architectures.apply import apply
from modelkit.source.gguf.architectures.describe import Described, describe_for_gguf, unplaced
from modelkit.source.gguf.architectures.moves import Origin, Run
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
    "apply",
    "apply_to_pair",
    "describe_for_gguf",
    "halves",
    "read_adapter",
    "read_architecture",
    "unplaced",
]
