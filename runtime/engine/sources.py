"""Prompts that an encoder reads: brought to a row with the step that it begins with.

A prompt is read whole, in the one step that begins its row. What is kept of it has a store of its own
(`runtime.cache.prompts`), of the same kind as that of prefixes.

Relies on rows that hold nothing else: `Request.ids` is what the decoder begins with, `Request.source` the
prompt.
"""

from collections.abc import Callable

import mlx.core as mx

from runtime.cache.disk_pages import DiskPages, Stored
from runtime.cache.layout import bytes_per_token, reads_prompt
from runtime.cache.memory import LayerMemory
from runtime.cache.prefix import Entry, PrefixStore
from runtime.cache.prompts import END, KeptPrompts, is_of_prompt, of_prompts, prompt_keys
from runtime.engine.fetching import Fetch
from runtime.engine.options import Options
from runtime.engine.row import Row
from runtime.loaded import LoadedModel
from runtime.step import Inputs, Step


class Sources:
    """For models whose prompts an encoder reads. kept None: nothing is kept."""

    @classmethod
    def of(
        cls,
        model: LoadedModel,
        memory: LayerMemory,
        options: Options,
        limit_bytes: int | None,
        keeping: Callable[[LayerMemory, PrefixStore], KeptPrompts] = KeptPrompts,
    ) -> "Sources":
        """What the options ask for. limit_bytes: the target's part of options.prefix_bytes. keeping: makes
        what keeps prompts.
        """
        if limit_bytes is None or not reads_prompt(memory.layout):
            return cls(model, memory, None, None)
        folder, layout = options.prefix_folder, of_prompts(memory.layout)
        disk = None
        if folder is not None:
            disk = DiskPages(folder, layout, model.dtype, elsewhere=memory.elsewhere)
        return cls(model, memory, keeping(memory, PrefixStore(layout, limit_bytes)), disk)

    def __init__(
        self, model: LoadedModel, memory: LayerMemory, kept: KeptPrompts | None, disk: DiskPages | None
    ) -> None:
        self._network, self._memory = model.network, memory
        self._kept, self._disk = kept, disk
        its = [spec for spec in memory.layout if is_of_prompt(spec)]
        self._token_bytes = sum(bytes_per_token(spec, model.dtype.size) for spec in its)

    def fetch(self, row: Row, when_over: Callable[[], object]) -> Fetch | None:
        """What the disk alone knows of the prompt of a row that waits, to be read; None where that is
        nothing. when_over: as in Reading.
        """
        if self._disk is None or self._kept is None:
            return None
        keys = prompt_keys(row.request.source, row.space)
        if self._kept.find(keys) is not None:
            return None
        limit_bytes = self._kept.store.limit_bytes
        reading = self._disk.find((*keys, END), above=0, limit_bytes=limit_bytes, when_over=when_over)
        return None if reading is None else Fetch(self._kept, self._disk, reading)

    def bring(self, row: Row, step: Step) -> None:
        """Give the row, which this step begins, what the encoder makes of its prompt. CacheFull before
        anything is computed.
        """
        source = row.request.source
        self._make_room(len(source), step)
        if self._kept is not None:
            keys = prompt_keys(source, row.space)
            known = self._kept.find(keys)
            if known is not None:
                row.cached = len(source)
                self._kept.give(step, keys, known)
                return
        self._network.encode(Inputs(mx.array([source], dtype=mx.int32)), step, self._memory)

    def keep(self, row: Row, place: int) -> None:
        """The row has begun: keep what the encoder made of its prompt."""
        if self._kept is None or row.cached:
            return
        keys = prompt_keys(row.request.source, row.space)
        page = self._kept.keep(place, keys)
        if page is not None and self._disk is not None:
            self._disk.save(keys, [Stored(0, len(keys), page)])

    def describe(self) -> list[Entry]:
        """What is kept of prompts: see KeptPrompts."""
        return [] if self._kept is None else self._kept.describe()

    def clear(self) -> None:
        """Forget all of it."""
        if self._kept is not None:
            self._kept.clear()

    def resize(self, limit_bytes: int) -> None:
        """Keep so much from now on."""
        if self._kept is not None:
            self._kept.resize(limit_bytes)

    @property
    def kept_bytes(self) -> int:
        return 0 if self._kept is None else self._kept.store.nbytes

    def close(self) -> None:
        """Finish what goes to disk."""
        if self._disk is not None:
            self._disk.close()

    def _make_room(self, tokens: int, step: Step) -> None:
        """For a prompt of so many tokens, and then for the step: what that has to spare is no more than fits
        beside the prompt.
        """
        more, budget = tokens * self._token_bytes, self._memory.budget
        if not budget.make_room(more) and not any(any(one.lengths) for one in self._memory.caches):
            rows = self._memory.rows
            self._memory.resize(0)  # buffers as long as an earlier answer
            self._memory.resize(rows)
        budget.claim(more)  # CacheFull, which says what all would take
        try:
            self._memory.prepare(step)
        finally:
            budget.claim(-more)
