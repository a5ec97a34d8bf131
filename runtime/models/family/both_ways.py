"""Decoders in which every token sees those behind it, too: embedding models that were made of them.

The rest of the network is the family's, and so are its files. Nothing is remembered, and there is no next
token. transformers does so for every family whose config says `is_causal: false`; here it is done for those
that say they can (`Family.both_ways`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from runtime.cache.layout import LayerSpec, Stateless
from runtime.errors import UnsupportedModel
from runtime.models.family import Family
from runtime.tensors.checkpoint import TRUNK, Checkpoint, always
from runtime.trunks.decoder import CausalLM


def both_ways(network: CausalLM, windows: Sequence[int | None]) -> CausalLM:
    """windows: of each layer, how many tokens are seen to either side; None: all."""
    for layer, window in zip(network.trunk.layers, windows, strict=True):
        layer.self_attn.look_ahead(window)
    return network


def layout(config: Any) -> list[LayerSpec]:
    return [Stateless() for _ in config.windows]


@cache
def looking_ahead(family: Family) -> Family:
    """The family, for configs that say so. They count as tied: there is no module for a head."""

    def parse(raw: Mapping[str, Any]) -> Any:
        config = family.parse(raw)
        if any(window is not None for window in config.windows):
            raise UnsupportedModel(
                "config.json: is_causal is false, and layers that look both ways are computed without windows"
            )
        return replace(config, tied=True)

    def build(config: Any) -> CausalLM:
        return both_ways(family.build(config), config.windows)

    return replace(
        family,
        parse=parse,
        layout=layout,
        build=build,
        variant=None,
        writes=False,
        checkpoint=always(Checkpoint(prefix=TRUNK)),
    )
