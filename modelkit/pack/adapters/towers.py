"""What an adapter does to towers for images and sound, of models that run on text alone here."""

from dataclasses import replace

from modelkit.errors import SourceError
from modelkit.source.adapters.value import AdapterSource
from runtime.models.architecture import Described


def without_towers(adapter: AdapterSource, described: Described) -> tuple[AdapterSource, tuple[str, ...]]:
    """The adapter of the text model, and a note where there was more.

    Raises SourceError for one that changes nothing else.
    """
    has = described.checkpoint.towers.has
    left = replace(
        adapter,
        pairs=tuple(pair for pair in adapter.pairs if not has(pair.names[0])),
        whole={name: tensor for name, tensor in adapter.whole.items() if not has(name)},
        saved={name: tensor for name, tensor in adapter.saved.items() if not has(name)},
    )
    count = len(adapter.pairs) - len(left.pairs) + len(adapter.whole) - len(left.whole)
    if not count:
        return left, ()
    if not (left.pairs or left.whole or left.rows):
        raise SourceError(
            f"{adapter.label} changes what is for images and sound alone, and models run on text here"
        )
    return left, (f"{count} of its changes are for images and sound, and are left out",)
