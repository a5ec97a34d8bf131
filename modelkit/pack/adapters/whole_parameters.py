"""Layers of the base that PEFT saved beside an adapter, and tables and heads that adapters bring whole.

Mostly they are what the base has, and say nothing. Where training had other numbers (added tokens, a base of
another revision), those count, as in PEFT; a base of another size cannot be meant.
"""

from dataclasses import replace

import numpy as np

from modelkit.errors import SourceError
from modelkit.pack.adapters.words import read_words
from modelkit.pack.sources import Source
from modelkit.pack.tying import HEADS, table_of_head
from modelkit.pack.writing.reader import Reader
from modelkit.source.adapters.value import AdapterSource
from modelkit.source.tensor import FLOATS, TensorInfo
from runtime.nn.adapters.low_rank import HEAD
from runtime.quoting import shown
from runtime.tensors.towers import unwrapped

TOKENS_HINT = "Take the base that the adapter was trained on, with the tokens that were added to it."


def settle_saved(adapter: AdapterSource, base: Source) -> tuple[AdapterSource, tuple[str, ...]]:
    """The adapter with those layers that are not the base's as whole tensors, and notes. Reads both.

    Raises SourceError for one of another shape.
    """
    whole, notes = dict(adapter.whole), list[str]()
    # Either may be in a wrapper, whose names have changed, or of a model without its head.
    known = {unwrapped(name): one for name, one in base.inventory.tensors.items()}
    table = table_of_head(base.inventory)
    for name, saved in adapter.saved.items():
        tied = table if name.endswith(HEADS) else None
        own = known.get(unwrapped(name), tied)
        if own is None or own.dtype not in FLOATS:
            notes.append(
                f"{shown(name)} was saved beside the adapter, and is not compared: the base has it packed, "
                "or not by that name"
            )
            continue
        if own.shape != saved.shape:
            raise SourceError(
                f"{adapter.label}: {shown(name)} was {size(saved.shape)} in training, and is "
                f"{size(own.shape)} here",
                hint=TOKENS_HINT,
            )
        if not _equal(adapter, saved, base, own):
            whole[name] = saved
            if own is tied:
                whole[own.name] = saved  # one array in PEFT, which reads the head's name last
            notes.append(f"{shown(name)} was saved beside the adapter, differs from the base's, and counts")
    return replace(adapter, whole=whole, saved={}), tuple(notes)


def settle_tied(adapter: AdapterSource) -> tuple[AdapterSource, tuple[str, ...]]:
    """One with a whole head and a whole table that should be one: without the head where it only repeats the
    table, else as one that tells the two apart, and a note. Reads both.
    """
    others = dict(adapter.whole)
    head = others.pop(f"{HEAD}.weight", None)
    table = next((name for name, one in others.items() if head and one.shape == head.shape), None)
    if head is None or table is None or adapter.unties:
        return adapter, ()
    with Reader([adapter.file]) as reader:
        one, other = read_words(reader, head), read_words(reader, others[table])
    if one.dtype == other.dtype and np.array_equal(one.array, other.array):
        return replace(adapter, whole=others), ()
    note = f"{HEAD}.weight differs from {shown(table)}: each counts, though the two are one in the base"
    return replace(adapter, unties=True), (note,)


def _equal(adapter: AdapterSource, saved: TensorInfo, base: Source, own: TensorInfo) -> bool:
    """In value, as the narrower of the two types says it."""
    with Reader([adapter.file]) as theirs, Reader(base.inventory.weights) as ours:
        one, other = read_words(theirs, saved), read_words(ours, own)
    if one.dtype == other.dtype:
        return bool(np.array_equal(one.array, other.array))
    return bool(np.allclose(one.floats(), other.floats(), rtol=2**-7, atol=1e-6))


def size(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "one number"
