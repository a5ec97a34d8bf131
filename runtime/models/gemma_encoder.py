"""Gemma 3 that looks both ways, for embeddings (EmbeddingGemma): `use_bidirectional_attention` in its config.

The same tensors as the decoder's. Layers that see everything see what stands behind a token, too; sliding
ones see half of `sliding_window` to either side, as transformers halves it. Nothing is remembered, and there
is no next token. Sources: arXiv 2509.20354; transformers modeling_gemma3.py, configuration_gemma3.py.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec, Stateless
from runtime.cache.protocol import AttentionCache, Rotate
from runtime.errors import NotSupported
from runtime.models.checkpoint import TRUNK, Checkpoint, always
from runtime.models.config import Fields
from runtime.models.decoder import head_norms
from runtime.models.gemma import FAMILY as DECODER
from runtime.models.gemma import Config, Gemma, parse_causal
from runtime.nn.bidirectional import attend_both_ways
from runtime.nn.rope import Rope
from runtime.nn.self_attention import HeadNormAttention
from runtime.step import Step


def parse(raw: Mapping[str, Any]) -> Config:
    """`windows` are what is seen to either side. It counts as tied: there is no module for a head."""
    fields = Fields(raw)
    if fields.has("is_causal") and not fields.flag("is_causal"):  # transformers widens windows by one then
        fields.refuse("is_causal", "left out: use_bidirectional_attention says it all")
    config = parse_causal(raw)
    sides = tuple(None if window is None else window // 2 for window in config.windows)
    return replace(config, windows=sides, tied=True)


def layout(config: Config) -> list[LayerSpec]:
    return [Stateless() for _ in config.windows]


class Attention(HeadNormAttention):
    """window: tokens that are seen to either side; None: all."""

    def __init__(self, config: Config, rope: Rope | None, window: int | None) -> None:
        super().__init__(
            config,
            rope,
            head_norms(config),
            qkv_bias=config.bias,
            output_bias=config.bias,
            scale=config.scale,
        )
        self._window = window

    def seen(self, x: mx.array, step: Step, cache: AttentionCache | None) -> mx.array:
        queries, keys, values = self.project(x, step)
        queries, keys = self.place(queries, keys, step)
        return attend_both_ways(
            queries, keys, values, scale=self._scale, window=self._window, counts=step.counts
        )


class GemmaEncoder(Gemma):
    """It reads texts whole: every step begins at 0 and brings all of them."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, Attention)

    @property
    def shifts(self) -> list[Rotate | None]:
        return []

    def logits(self, hidden: mx.array, step: Step | None = None) -> mx.array:
        raise NotSupported("this network makes embeddings: there is no token that follows")


def build(config: Config) -> GemmaEncoder:
    return GemmaEncoder(config)


FAMILY = replace(
    DECODER,
    parse=parse,
    layout=layout,
    build=build,
    variant=None,
    writes=False,
    checkpoint=always(Checkpoint(prefix=TRUNK)),
)
