"""Decoders whose output head was left out: they make embeddings of their tokens' hidden states.

The rest of the network is the family's, read and remembered as ever.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from runtime.models.family import Family
from runtime.tensors.checkpoint import TRUNK, Checkpoint


@cache
def headless(family: Family) -> Family:
    """The same without text. Its config counts as tied, for then a network has no module for a head."""

    def parse(raw: Mapping[str, Any]) -> Any:
        return replace(family.parse(raw), tied=True)

    def checkpoint(config: Mapping[str, Any]) -> Checkpoint:
        return replace(family.checkpoint(config), prefix=TRUNK)

    return replace(family, parse=parse, head=None, writes=False, checkpoint=checkpoint)
