"""The adapters that rows of an engine may have: by name, brought into memory when the first row asks for one.

A row's adapters, in order and with scales, decide what its layers remember, so their contents and scales name
the space in which that is kept and found again (`space`). Equal sets share one, whatever they are called.

Everything here but `space`, `readable` and `check` runs on the engine's thread.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from runtime.errors import WeightMismatch
from runtime.loaded import LoadedModel
from runtime.nn.adapters.adapter import Adapter
from runtime.nn.adapters.low_rank import LowRanks
from runtime.nn.adapters.rows import Members, RowAdapters
from runtime.nn.adapters.stacks import AdapterStacks
from runtime.quoting import quoted
from runtime.records import dataclass

if TYPE_CHECKING:
    from runtime.engine.row import Row

Asked = tuple[tuple[str, float], ...]
"""Names of adapters, in order, each with its scale."""

PREFIX = "adapters-"

KNOWN_STEPS = 64
"""For so many sets of rows, what their steps need is kept."""
KNOWN_LABELS = 1024
"""Of so many sets of adapters and scales, the names are kept for people to read."""


@dataclass(frozen=True, slots=True)
class AdapterSource:
    """An adapter that may be asked for."""

    name: str
    digest: str
    """Of all that decides its numbers."""
    read: Callable[[], LowRanks]
    """Called once, on the engine's thread, when it starts: lazy arrays, whose files may go away then without
    harm. Raises WeightMismatch, OSError.
    """


class Adapters:
    """Of one loaded model. Raises what reading them raises."""

    def __init__(self, model: LoadedModel, sources: Sequence[AdapterSource] = ()) -> None:
        self._network: Any = model.network
        self._dtype = model.dtype
        self._sources: Mapping[str, AdapterSource] = {source.name: source for source in sources}
        self._loaded: dict[str, Adapter] = dict(model.adapters)
        self._stacks = AdapterStacks(self._loaded.values())
        others = [source for source in sources if source.name not in self._loaded]
        self._brought = {source.name: source.read() for source in others}
        self._steps: dict[tuple[Asked, ...], RowAdapters] = {}
        self._labels: dict[str, str] = {}

    @property
    def nbytes(self) -> int:
        """Of those that are in memory."""
        return sum(adapter.nbytes for adapter in self._loaded.values())

    def check(self, asked: Asked) -> None:
        """ValueError for a name that there is not."""
        unknown = [name for name, _ in asked if name not in self._sources]
        if unknown:
            have = ", ".join(self._sources) or "none"
            raise ValueError(f"there is no adapter {quoted(unknown[0])}; there is {have}")

    def space(self, asked: Asked) -> str:
        """What sets apart what is remembered with these adapters; "" for the model alone."""
        some = [(name, float(scale)) for name, scale in asked if scale]
        if not some:
            return ""
        parts = [(self._sources[name].digest, scale) for name, scale in some]
        space = PREFIX + hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
        if len(self._labels) >= KNOWN_LABELS:
            self._labels.clear()
        self._labels[space] = "+".join(name if scale == 1 else f"{name}={scale:g}" for name, scale in some)
        return space

    def readable(self, space: str) -> str:
        """Words of which one may be such a space, with the adapters' names in its place."""
        words = (
            self._labels.get(word, word[: len(PREFIX) + 8] if word.startswith(PREFIX) else word)
            for word in space.split(" ")
        )
        return " ".join(words)

    def bring(self, asked: Asked) -> None:
        """Have these in memory. Raises WeightMismatch; then nothing has changed."""
        for name, scale in asked:
            if not scale or name in self._loaded:
                continue
            try:
                adapter = Adapter(self._network, self._brought[name], self._dtype)
            except WeightMismatch as error:
                raise WeightMismatch([f"adapter {name}: {problem}" for problem in error.problems]) from error
            self._stacks, self._loaded[name] = self._stacks.having(adapter), adapter
            del self._brought[name]
            self._steps.clear()

    def of(self, rows: "Sequence[Row]") -> RowAdapters | None:
        """For a step over these rows; None where none has one."""
        return self._rows([row.request.adapters if row.space else () for row in rows])

    def alone(self, asked: Asked, rows: int = 1) -> RowAdapters | None:
        """For rows that are read outside the engine's steps, all with the same; None where they have none.
        Raises as `check` and `bring`.
        """
        self.check(asked)
        self.bring(asked)
        return self._rows([asked if self.space(asked) else ()] * rows)

    def let_go(self) -> None:
        """Of all but the names: whoever asks a closed engine is told that it is closed, not that it has no
        such adapter.
        """
        del self._network
        self._loaded, self._stacks, self._steps, self._brought = {}, AdapterStacks(), {}, {}

    def _rows(self, asked: Sequence[Asked]) -> RowAdapters | None:
        if not any(asked):
            return None
        key = tuple(asked)
        known = self._steps.get(key)
        if known is None:
            if len(self._steps) >= KNOWN_STEPS:
                del self._steps[next(iter(self._steps))]
            known = self._steps[key] = RowAdapters(self._stacks, [self._members(its) for its in key])
        return known

    def _members(self, asked: Asked) -> Members:
        return tuple((self._loaded[name], scale) for name, scale in asked if scale)
