"""What encoders make of prompts: brought to a row with the step that it begins with, and kept for whoever
asks the same again.

An encoder looks both ways, so what it makes of any token depends on all others: a prompt is read whole, in
the one step that begins its row, and two prompts share nothing unless they are equal. So what is kept has a
store of its own, of the same kind as that of prefixes: a sequence there is a whole prompt, told apart from
longer ones by its first key, and its one page holds the encoder's layers alone. Answers are not kept: each
begins with the same token, and nothing else is known before it.

Relies on rows that hold nothing else: `Request.ids` is what the decoder begins with, `Request.source` the
prompt.
"""

from collections.abc import Sequence
from dataclasses import replace

import mlx.core as mx

from runtime.cache.build import LayerMemory
from runtime.cache.disk_pages import DiskPages, Stored
from runtime.cache.encoder import EncoderCache
from runtime.cache.layout import Encoder, LayerSpec, Stateless, bytes_per_token
from runtime.cache.prefix import Entry, Match, PrefixStore
from runtime.cache.snapshot import Checkpoint
from runtime.cache.trie import Keys
from runtime.engine.options import Options
from runtime.engine.row import Row
from runtime.loaded import LoadedModel
from runtime.step import Inputs, Step

SOURCE, END = "source", "end"


class Sources:
    """For models whose prompts an encoder reads. store None: nothing is kept."""

    @classmethod
    def of(
        cls, model: LoadedModel, memory: LayerMemory, options: Options, limit_bytes: int | None
    ) -> "Sources":
        """What the options ask for. limit_bytes: the target's part of options.prefix_bytes."""
        folder = options.prefix_folder
        read = _encoders(memory.layout)
        store = None if limit_bytes is None else PrefixStore(read, limit_bytes)
        disk = None if folder is None or store is None else DiskPages(folder, read, model.dtype)
        return cls(model, memory, store, disk)

    def __init__(
        self, model: LoadedModel, memory: LayerMemory, store: PrefixStore | None, disk: DiskPages | None
    ) -> None:
        self._network, self._memory = model.network, memory
        self._store, self._disk = store, disk
        self._layers = [i for i, spec in enumerate(memory.layout) if _of_prompt(spec)]
        self._token_bytes = sum(bytes_per_token(memory.layout[i], model.dtype.size) for i in self._layers)

    def bring(self, row: Row, step: Step) -> None:
        """Give the row, which this step begins, what the encoder makes of its prompt. CacheFull before
        anything is computed.
        """
        source, space = row.request.source, row.space
        self._memory.prepare(step)
        self._check_room(len(source))
        known = self._known(_keys(source, space))
        if known is None:
            self._network.encode(Inputs(mx.array([source], dtype=mx.int32)), step, self._memory)
            return
        row.cached = len(source)
        for layer, (keys, values) in zip(self._layers, known, strict=True):
            self._encoder(layer).append(step, keys, values)

    def keep(self, row: Row, place: int) -> None:
        """The row has begun: keep what the encoder made of its prompt."""
        source, store = row.request.source, self._store
        if store is None or row.cached:
            return
        size = len(source)
        page = tuple(
            Checkpoint(0, size, self._encoder(i).snapshot(place, 0).arrays) if i in self._layers else None
            for i in range(len(self._memory.layout))
        )
        keys = _keys(source, row.space)
        node = store.insert(keys, 0, page)
        mx.eval(store.changed())
        if node is not None and self._disk is not None:
            self._disk.save(keys, [Stored(0, size, page)])

    def describe(self) -> list[Entry]:
        """What is kept: one entry for each prompt."""
        return [] if self._store is None else [_readable(entry) for entry in self._store.describe()]

    def clear(self) -> None:
        """Forget all of it."""
        if self._store is not None:
            self._store.clear()

    def resize(self, limit_bytes: int) -> None:
        """Keep so much from now on."""
        if self._store is not None:
            self._store.resize(limit_bytes)

    @property
    def kept_bytes(self) -> int:
        return 0 if self._store is None else self._store.nbytes

    def close(self) -> None:
        """Finish what goes to disk."""
        if self._disk is not None:
            self._disk.close()

    def _encoder(self, layer: int) -> EncoderCache:
        cache = self._memory[layer]
        assert isinstance(cache, EncoderCache)
        return cache

    def _check_room(self, tokens: int) -> None:
        more, budget = tokens * self._token_bytes, self._memory.budget
        if not budget.make_room(more):
            budget.claim(more)  # refused, and says what all would take

    def _known(self, source: Keys) -> list[tuple[mx.array, ...]] | None:
        """Keys and values for each of the encoder's layers, if this very prompt was read before."""
        if self._store is None:
            return None
        keys = (*source, END)  # a match is always shorter than what is asked for
        match = self._store.lookup(keys)
        if match.offset < len(source) and self._disk is not None:
            match = self._from_disk(keys, self._store, self._disk)
        if match.offset < len(source):
            return None
        self._store.hold(match.node)  # counts as use
        self._store.release(match.node)
        return [_arrays(match, layer) for layer in self._layers]

    @staticmethod
    def _from_disk(keys: Keys, store: PrefixStore, disk: DiskPages) -> Match:
        for stored in disk.find(keys, above=0, limit_bytes=store.limit_bytes):
            store.insert(keys[: stored.stop], stored.start, stored.page)
        mx.eval(store.changed())
        return store.lookup(keys)


def _of_prompt(spec: LayerSpec) -> bool:
    return isinstance(spec, Encoder) and spec.of_prompt


def _encoders(layout: Sequence[LayerSpec]) -> tuple[LayerSpec, ...]:
    """The layout as far as it concerns prompts: the other layers hold nothing of them."""
    return tuple(spec if _of_prompt(spec) else Stateless() for spec in layout)


def _keys(source: Sequence[int], space: str) -> Keys:
    """Prompts of different lengths part at the first key, so nothing but the whole of one is ever found. So
    do those that are read with different adapters.
    """
    apart = (SOURCE, len(source), space) if space else (SOURCE, len(source))
    return ((*apart, source[0]), *source[1:])


def _arrays(match: Match, layer: int) -> tuple[mx.array, ...]:
    snapshot = match.pages[-1][layer]
    assert snapshot is not None
    return snapshot.arrays


def _readable(entry: Entry) -> Entry:
    """Its keys as ids."""
    first = entry.keys[0]
    if not isinstance(first, tuple):
        return entry
    return replace(entry, keys=(first[-1], *entry.keys[1:]))
