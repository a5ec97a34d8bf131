"""Gemma 3 that looks both ways, for embeddings (EmbeddingGemma): `use_bidirectional_attention` in its config.

The same tensors as the decoder's. Layers that see everything see what stands behind a token, too; sliding
ones see half of `sliding_window` to either side, as transformers halves it. Nothing is remembered, and there
is no next token. Sources: arXiv 2509.20354; transformers modeling_gemma3.py, configuration_gemma3.py.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.config.fields import Fields
from runtime.models.family.both_ways import both_ways, layout
from runtime.models.gemma import FAMILY as DECODER
from runtime.models.gemma import Config, Gemma, parse_causal
from runtime.tensors.checkpoint import TRUNK, Checkpoint, always
from runtime.trunks.decoder import CausalLM


def parse(raw: Mapping[str, Any]) -> Config:
    """`windows` are what is seen to either side. It counts as tied: there is no module for a head."""
    fields = Fields(raw)
    if fields.has("is_causal") and not fields.flag("is_causal"):  # transformers widens windows by one then
        fields.refuse("is_causal", "left out: use_bidirectional_attention says it all")
    config = parse_causal(raw)
    sides = tuple(None if window is None else window // 2 for window in config.windows)
    return replace(config, windows=sides, tied=True)


def build(config: Config) -> CausalLM:
    return both_ways(Gemma(config), config.windows)


FAMILY = replace(
    DECODER,
    parse=parse,
    layout=layout,
    build=build,
    variant=None,
    writes=False,
    checkpoint=always(Checkpoint(prefix=TRUNK)),
)
