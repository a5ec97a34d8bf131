"""A whole network as one operation computes it."""

from collections.abc import Sequence
from typing import Any, NamedTuple


class DecoderParts(NamedTuple):
    """A network from ids to logits: head(norm(layers(scale * table[ids]))) * times, and a softcap."""

    table: Any
    scale: float | None
    layers: Sequence[Any]
    norm: Any
    head: Any
    times: float = 1.0
    softcap: float | None = None
    """Logits become cap * tanh(x / cap); None: they stay."""
    memories: int = 1
    """Memories of each layer, side by side in the layout."""


def decoder_parts_of(network: Any) -> DecoderParts | None:
    """How this network describes itself; not a description of one that it stands for."""
    parts = getattr(type(network), "decoder_parts", None)
    return None if parts is None else parts(network)
