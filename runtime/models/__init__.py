"""Architectures: each file holds one family's config, modules, memory layout and checkpoint names.

To add one: write the file with its `FAMILY` (`family.Family`), add its names to `names.ARCHITECTURES`. A
config that is long has a file beside it (`gemma4_config`).

What all families share:
    family          the record with which a family's file ends
    names           names in config.json -> the file that runs them
    architecture    a config -> its family, parsed config and layout (`Described`)
    headless        a family's network without its output head, for embeddings
    both_ways       a family's network with attention in both directions, for embeddings
    multimodal      the text model of a multimodal checkpoint
    unused          tensors of a checkpoint that are kept and not run
    row_trace       where the rows of a checkpoint's tensors arrive in the network
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
