"""Architectures: each file holds one family's config, modules, memory layout and checkpoint names.

To add one: write the file with its `FAMILY` (`family.Family`), add its names to `registry.names`. A long
config has a file beside it, called after it (`gemma4_config`), and so has any other part.

family        what a family is: the record with which each file ends
registry      which family runs a config.json
multimodal    models whose text model is one of the other families'
"""

from runtime.models.family import Family, Network
from runtime.models.registry.described import Described, describe, find_family
from runtime.models.registry.names import ARCHITECTURES, architecture_name

__all__ = [
    "ARCHITECTURES",
    "Described",
    "Family",
    "Network",
    "architecture_name",
    "describe",
    "find_family",
]
