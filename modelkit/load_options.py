"""What `AsyncModel.load` takes, for type checkers: they see through `Unpack` where people see `**options`."""

import os
from collections.abc import Callable, Sequence

from modelkit.memory import Memory
from modelkit.modelfile.keywords import LoadParameters


class LoadOptions(LoadParameters, total=False):
    """Keywords of `modelkit.load`, for type checkers; a test compares the two."""

    home: str | os.PathLike[str] | None
    cache_memory: str | int | None
    cache_disk: str | int | None
    max_waiting: int
    ranks: int | None
    shards: int | None
    adapters: Sequence[str | os.PathLike[str]]
    on_memory: Callable[[Memory, str | None], None] | None
    on_weights: Callable[[int], object] | None
