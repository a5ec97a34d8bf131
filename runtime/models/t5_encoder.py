"""T5's encoder by itself, for embeddings (`T5EncoderModel`: Sentence-T5, GTR), and those of mT5 and UMT5.

Sources: arXiv 2108.08877, 2112.07899; transformers modeling_t5.py.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec, Stateless
from runtime.cache.protocol import Caches
from runtime.models.family import Family
from runtime.models.t5 import COPIES, ROWS, Encoder
from runtime.models.t5 import adapt as adapt_both
from runtime.models.t5_config import Config
from runtime.models.t5_config import parse as parse_both
from runtime.nn.linear import embed
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.trunks.encoder import Encoder as Whole


def parse(raw: Mapping[str, Any]) -> Config:
    """It counts as tied: there is no module for a head."""
    return replace(parse_both(raw), tied=True)


def layout(config: Config) -> list[LayerSpec]:
    return [Stateless() for _ in range(config.encoder_layers)]


class T5Encoder(Whole):
    shifts: ClassVar[tuple[()]] = ()

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.shared = nn.Embedding(config.vocab_size, config.hidden_size)
        self.encoder = Encoder(config)

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        step.refuse_positions("this network counts how many tokens lie between two")
        return self.encoder(step, step.embedded(self.embed))

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return embed(self.shared, ids, step)


def build(config: Config) -> T5Encoder:
    return T5Encoder(config)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Of a file of the whole model, the encoder."""
    named = adapt_both(config, weights)
    return {name: x for name, x in named.items() if not name.startswith("decoder.")}


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    writes=False,
    checkpoint=always(
        Checkpoint(rows=ROWS, copies=("shared.weight", COPIES), unread=("decoder", "lm_head", "dense"))
    ),
)
