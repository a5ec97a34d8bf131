"""Architectures: each file holds one family's config, modules, memory layout and checkpoint names.

To add one: write the file with the four functions of `architecture.Architecture`, add its names to
`ARCHITECTURES`.
"""

from runtime.models.architecture import (
    ARCHITECTURES,
    Architecture,
    Described,
    Network,
    architecture_name,
    describe,
    find_architecture,
)

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "Described",
    "Network",
    "architecture_name",
    "describe",
    "find_architecture",
]
