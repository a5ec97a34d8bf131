"""Architectures: each file holds one family's config, modules, memory layout and checkpoint names.

To add one: write the file with its `FAMILY` (`family.Family`), add its names to `names.ARCHITECTURES`.
"""

from runtime.models.architecture import Described, describe, find_family
from runtime.models.family import Family, Network
from runtime.models.names import ARCHITECTURES, architecture_name

__all__ = [
    "ARCHITECTURES",
    "Described",
    "Family",
    "Network",
    "architecture_name",
    "describe",
    "find_family",
]
