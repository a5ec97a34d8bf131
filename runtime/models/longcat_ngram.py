"""LongCat-Flash-Lite: LongCat-Flash whose tokens enter with what tables have for the last few of them.

Each table has a number of rows of its own; the last n tokens, as digits of a number with as many digits as
there are ids, modulo that is a place in it. What all tables give is brought to the hidden size and averaged
with the token's own row. Tokens up to and with an end of text before a token, and those before the first,
count as id 0.

Source: mlx-lm longcat_flash_ngram.py, which passes over ends of text; read beside its authors' class.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec, Recurrent, State
from runtime.cache.protocol import Caches, ScanningCache, by_layer, by_layout
from runtime.config.fields import Fields
from runtime.models import longcat_flash
from runtime.models.family import Family
from runtime.models.longcat_flash import WIDE, Block, Trunk, checkpoint
from runtime.nn.linear import embed, linear
from runtime.nn.module import Module
from runtime.nn.operations import ops
from runtime.nn.positions.rope import Rope
from runtime.nn.scans.causal_conv import last_inputs
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint
from runtime.tensors.experts import Weights
from runtime.tensors.names import respelled
from runtime.trunks.headed import Headed, untied_head


@dataclass(frozen=True, slots=True)
class Grams:
    """Tables of n-grams, those for two tokens first."""

    longest: int
    """Tokens of the longest."""
    each: int
    """Tables for each length."""
    least: int
    """The first table has one row more; each has two more than the one before."""
    end: int
    """The id of an end of text."""

    @property
    def rows(self) -> list[int]:
        """Of each table."""
        return [self.least + 2 * i + 1 for i in range((self.longest - 1) * self.each)]

    @property
    def memory(self) -> Recurrent:
        """The last ids, each plus 1: 0 is where there was none."""
        return Recurrent({"ids": State((self.longest - 1, 1), "float32")})


@dataclass(frozen=True, slots=True)
class Config(longcat_flash.Config):
    grams: Grams


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape = longcat_flash.read(fields)
    return Config(**shape, grams=_grams(fields, shape))


def _grams(fields: Fields, shape: Mapping[str, Any]) -> Grams:
    longest = fields.count("emb_neighbor_num", 4, low=2, high=64)
    each = fields.count("emb_split_num", 4, high=64)
    if (longest - 1) * each > shape["hidden_size"]:
        fields.refuse("emb_split_num", f"at most hidden_size, {shape['hidden_size']}, tables of all lengths")
    ratio = fields.count("ngram_vocab_size_ratio", 78, high=1 << 12)
    end = fields.count("eos_token_id", 2, low=0, high=shape["vocab_size"] - 1)
    return Grams(longest, each, ratio * shape["vocab_size"], end)


def layout(config: Config) -> list[LayerSpec]:
    return [config.grams.memory, *longcat_flash.layout(config)]


class Tables(Module):
    """[B, L, D] -> [B, L, D]: the mean of what a token is and of what all tables have for it."""

    reads_ids: ClassVar[bool] = True

    def __init__(self, config: Config) -> None:
        super().__init__()
        rows, hidden = config.grams.rows, config.hidden_size
        self.embedders = [nn.Embedding(count, hidden // len(rows)) for count in rows]
        self.post_projs = [nn.Linear(hidden // len(rows), hidden, bias=False) for _ in rows]
        self._shape, self._base = config.grams, config.vocab_size

    def __call__(self, x: mx.array, step: Step, cache: ScanningCache) -> mx.array:
        ids = cache.scan(step, self._followed, step.ids[..., None])
        for index, rows in enumerate(self._shape.rows):
            place, power = ids[..., 0], 1
            for back in range(1, 2 + index // self._shape.each):
                power = power * self._base % rows
                place = place + ids[..., back] * power
            found = embed(self.embedders[index], place % rows, step)
            x = x + linear(self.post_projs[index], found, step)
        return x / (1 + len(self._shape.rows))

    def _followed(
        self, states: dict[str, mx.array], ids: mx.array, *, counts: mx.array | None
    ) -> tuple[mx.array, dict[str, mx.array]]:
        """ids [B, L, 1] -> int64 [B, L, N]: each with the N - 1 before it."""
        width, before = ids.shape[1], self._shape.longest - 1
        window = mx.concatenate([states["ids"].astype(mx.int64), ids.astype(mx.int64) + 1], axis=1)
        found, ended = [window[:, before:] - 1], mx.zeros(ids.shape, mx.bool_)
        for back in range(1, before + 1):
            one = window[:, before - back : before - back + width] - 1
            ended = ended | (one < 0) | (one == self._shape.end)
            found.append(mx.where(ended, 0, one))
        kept = last_inputs(window, before, counts).astype(mx.float32)
        return mx.concatenate(found, axis=-1), {"ids": kept}


class FirstBlock(Block):
    """With the tables in front."""

    def __init__(self, config: Config, rope: Rope) -> None:
        super().__init__(config, rope)
        self.ngram_embeddings = Tables(config)

    def __call__(self, x: mx.array, step: Step, caches: tuple[Any, ...]) -> mx.array:
        """caches: of ids, and of two attentions."""
        ids, first, second = caches
        return super().__call__(self.ngram_embeddings(x, step, ids), step, (first, second))


class GramTrunk(Trunk):
    memories: tuple[int, ...]
    """Of each layer."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.layers[0] = FirstBlock(config, Rope(config.rope))
        self.memories = (3, *(2,) * (config.layers - 1))

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        ids, *rest = by_layout(caches)
        first, *others = by_layer(rest, 2)
        pairs = [(ids, *first), *others]
        return self.norm(ops.table.layers(self.layers, step.embedded(self.embed), step, pairs))


class LongcatNgram(Headed):
    def __init__(self, config: Config) -> None:
        super().__init__(GramTrunk(config), untied_head(config))


def build(config: Config) -> LongcatNgram:
    return LongcatNgram(config)


_NAMES = (
    ("model.ngram_embeddings.word_embeddings.", "model.embed_tokens."),
    ("model.ngram_embeddings.", "model.layers.0.ngram_embeddings."),
)


def adapt(config: Config, weights: Weights) -> Weights:
    return longcat_flash.adapt(config, respelled(weights, _NAMES))


def _checkpoint(config: Mapping[str, Any]) -> Checkpoint:
    return replace(checkpoint(config), singles=True, every=0)


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt, wide=WIDE, checkpoint=_checkpoint)
