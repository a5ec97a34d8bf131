"""What encoders make of prompts, kept for whoever asks the same again.

An encoder looks both ways, so what it makes of any token depends on all others: two prompts share nothing
unless they are equal. So a sequence in this store is a whole prompt, told apart from longer ones by its first
key, and its one page holds the layers alone that remember prompts. Answers are not kept: each begins with the
same token, and nothing else is known before it.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace

import mlx.core as mx

from runtime.cache.encoder import EncoderCache
from runtime.cache.layout import Encoder, LayerSpec, Stateless
from runtime.cache.memory import LayerMemory
from runtime.cache.pages import Page
from runtime.cache.prefix import Entry, Match, PrefixStore
from runtime.cache.snapshot import Checkpoint
from runtime.cache.trie import Keys, in_namespace, split_namespace
from runtime.step import Step

SOURCE, END = "source", "end"


class KeptPrompts:
    """Between `memory` and a store of the pages that `of_prompts` lays out."""

    def __init__(self, memory: LayerMemory, store: PrefixStore) -> None:
        self.store, self._memory = store, memory
        self._layers = [i for i, spec in enumerate(memory.layout) if is_of_prompt(spec)]

    def find(self, keys: Sequence[Hashable]) -> Match | None:
        """What is kept of this very prompt. Changes nothing."""
        match = self.store.lookup((*keys, END))  # a match is always shorter than what is asked for
        return None if match.offset < len(keys) else match

    def expect(self, keys: Sequence[Hashable], ranges: Sequence[tuple[int, int]]) -> None:
        """As `Sharing.expect`."""

    def readable(self, keys: Sequence[Hashable], ranges: Sequence[tuple[int, int]]) -> int:
        """As `Sharing.readable`."""
        del keys
        return len(ranges)

    def give(self, step: Step, keys: Sequence[Hashable], match: Match) -> None:
        """The row that this step begins has what was found for its prompt."""
        del keys
        self.store.hold(match.node)  # counts as use
        self.store.release(match.node)
        for layer in self._layers:
            snapshot = match.pages[-1][layer]
            assert snapshot is not None
            self._cache(layer).append(step, *snapshot.arrays)

    def keep(self, place: int, keys: Sequence[Hashable]) -> Page | None:
        """The row at this place has begun: keep what the encoder made of its prompt. None: it is not kept."""
        size = len(keys)
        page = tuple(
            Checkpoint(0, size, self._cache(i).snapshot(place, 0).arrays) if i in self._layers else None
            for i in range(len(self._memory.layout))
        )
        node = self.store.insert(keys, 0, page)
        mx.eval(self.store.changed())
        return None if node is None else page

    def describe(self) -> list[Entry]:
        """What is kept: nodes of a tree, as prompts of one length that begin alike share some. Their space is
        that of the adapters that they were read with.
        """
        return [_readable(entry) for entry in self.store.describe()]

    def clear(self) -> None:
        """Forget all of it."""
        self.store.clear()

    def resize(self, limit_bytes: int) -> None:
        """Keep so much from now on."""
        self.store.resize(limit_bytes)

    def _cache(self, layer: int) -> EncoderCache:
        cache = self._memory[layer]
        assert isinstance(cache, EncoderCache)
        return cache


def is_of_prompt(spec: LayerSpec) -> bool:
    """Does this layer remember the prompt that an encoder has read?"""
    return isinstance(spec, Encoder) and spec.of_prompt


def of_prompts(layout: Sequence[LayerSpec]) -> tuple[LayerSpec, ...]:
    """The layout as far as it concerns prompts: the other layers hold nothing of them."""
    return tuple(spec if is_of_prompt(spec) else Stateless() for spec in layout)


def prompt_keys(source: Sequence[int], space: str) -> Keys:
    """Prompts of different lengths part at the first key, so nothing but the whole of one is ever found. So
    do those that are read with different adapters.
    """
    return in_namespace(tuple(source), SOURCE, len(source), space)


def _readable(entry: Entry) -> Entry:
    keys, words = split_namespace(entry.keys)
    return replace(entry, keys=keys, space=" ".join(map(str, words[2:])))
