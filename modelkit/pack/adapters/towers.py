"""What an adapter does to parts of a model that nothing here runs: towers for images and sound, and what
stands beside an encoder for other tasks.
"""

from collections.abc import Callable
from dataclasses import replace

from modelkit.errors import SourceError
from modelkit.source.adapters.value import AdapterSource
from runtime.models.architecture import Described


def without_towers(adapter: AdapterSource, described: Described) -> tuple[AdapterSource, tuple[str, ...]]:
    """The adapter of what runs, and notes where there was more.

    Raises SourceError for one that changes nothing else.
    """
    checkpoint, notes = described.checkpoint, list[str]()
    parts = (
        (checkpoint.towers.has, "for images and sound", "models run on text here"),
        (checkpoint.never_read, "for other tasks", "embeddings are made of hidden states alone"),
    )
    for has, what, why in parts:
        left = _without(adapter, has)
        count = len(adapter.pairs) - len(left.pairs) + len(adapter.whole) - len(left.whole)
        if count and not (left.pairs or left.whole or left.rows):
            raise SourceError(f"{adapter.label} changes what is {what} alone, and {why}")
        notes += [f"{count} of its changes are {what}, and are left out"] if count else []
        adapter = left
    return adapter, tuple(notes)


def _without(adapter: AdapterSource, has: Callable[[str], bool]) -> AdapterSource:
    return replace(
        adapter,
        pairs=tuple(pair for pair in adapter.pairs if not has(pair.names[0])),
        whole={name: tensor for name, tensor in adapter.whole.items() if not has(name)},
        saved={name: tensor for name, tensor in adapter.saved.items() if not has(name)},
    )
