"""What an adapter does to parts of a model that nothing here runs: towers for images and sound, experts and
gates that no text meets, and what stands beside an encoder for other tasks.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from modelkit.errors import SourceError
from modelkit.source.adapters.value import AdapterSource
from runtime.models.multimodal.towers import ALL_TOWERS
from runtime.models.registry.described import Described
from runtime.tensors.towers import USUAL, text_name


def without_towers(
    adapter: AdapterSource, described: Described, stored: Iterable[str]
) -> tuple[AdapterSource, tuple[str, ...]]:
    """The adapter of what runs, and notes where there was more. stored: the base's own tensors. What was
    trained in a wrapper, of a base that is the text model alone (a GGUF file), has that one's names.

    Raises SourceError for one that changes nothing else.
    """
    checkpoint, notes = described.checkpoint, list[str]()
    apart = _in_wrapper(adapter.names) and not _in_wrapper(stored)
    towers = ALL_TOWERS if apart else checkpoint.towers

    def sees(name: str) -> bool:
        return towers.has(name) or USUAL.has(name)

    def spares(name: str) -> bool:
        return bool(checkpoint.spare) and name.endswith(checkpoint.spare)

    parts = (
        (sees, "for images and sound", "models run on text here"),
        (spares, "for what no text here meets", "nothing would come of it"),
        (checkpoint.never_read, "for other tasks", "embeddings are made of hidden states alone"),
    )
    for has, what, why in parts:
        left = _without(adapter, has)
        count = len(adapter.names - left.names)
        if count and not left.names:
            raise SourceError(f"{adapter.label} changes what is {what} alone, and {why}")
        notes += [f"{count} of its changes are {what}, and are left out"] if count else []
        adapter = left
    return adapter.renamed(text_name) if apart else adapter, tuple(notes)


def _in_wrapper(names: Iterable[str]) -> bool:
    return any(text_name(name) != name for name in names)


def _without(adapter: AdapterSource, has: Callable[[str], bool]) -> AdapterSource:
    return replace(
        adapter,
        pairs=tuple(pair for pair in adapter.pairs if not has(pair.names[0])),
        whole={name: tensor for name, tensor in adapter.whole.items() if not has(name)},
        kernels=tuple(name for name in adapter.kernels if not has(name)),
        saved={name: tensor for name, tensor in adapter.saved.items() if not has(name)},
    )
