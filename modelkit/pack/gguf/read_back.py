"""Would an import of a planned file compute the same model? Asked before a byte of it is written.

A row of the table says what it knows of a config; what it does not look at (an activation, a field of a
scaled rotation) would be lost in silence. So the file's metadata are read as an import reads them, both
configs are parsed as the runtime parses them, and every value that would come back otherwise is named.
"""

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, cast

import numpy as np

from modelkit.errors import ModelkitError, UnsupportedSource
from modelkit.pack.gguf.plan import Written
from modelkit.pack.gguf.rows import values
from modelkit.pack.gguf.tensors import Stored
from modelkit.pack.writing.reader import Reader
from modelkit.source.gguf.architectures import Described, read_architecture
from modelkit.source.gguf.architectures.apply import apply
from runtime.errors import UnsupportedModel
from runtime.models import find_family
from runtime.quoting import quoted

_CLOSE = 2e-6
"""Numbers of a file are float32."""
_TOLD_BY_TENSORS = frozenset(
    {"draft_heads", "head_layers", "head_dim", "intermediate_size", "dense_size", "vocab_size", "places",
     "per_layer_vocab"}
)  # fmt: skip
"""Sizes of matrices: of those that are used the shapes tell, and both configs were held to them. Heads that a
file has no place for are noted where they are left out.
"""
_ALIKE = {"swish": "silu", "gelu_new": "gelu_pytorch_tanh", "gelu_fast": "gelu_pytorch_tanh"}
"""Words for one function."""


def check_read_back(
    config: Mapping[str, Any],
    described: Described,
    metadata: Mapping[str, Any],
    written: list[Written],
    tensors: Mapping[str, Stored],
    reader: Reader,
    label: str,
) -> None:
    """config: the checkpoint's. metadata: of the whole file. Raises UnsupportedSource for a config that an
    import of the file would not give back.
    """
    shapes = {one.entry.name: one.entry.shape for one in written}
    origins = {one.entry.name: one.origin for one in written}
    extra = described.extra

    def numbers(name: str) -> list[float]:
        if name in extra:
            return list(extra[name])
        read = apply(origins[name], lambda one: np.array(values(tensors[one], reader), np.float32), np)
        return read.ravel().tolist()

    try:
        whole = shapes | {name: (len(told),) for name, told in extra.items()}
        imported = read_architecture(metadata, whole, numbers, label)
        again = find_family(imported.config).parse(imported.config)
    except (ModelkitError, UnsupportedModel) as error:
        said = error.message if isinstance(error, ModelkitError) else str(error)
        raise UnsupportedSource(f"the file could not be read again: {said}") from None
    allowed = _TOLD_BY_TENSORS | {*described.otherwise}
    for place, here, there in differences(find_family(config).parse(config), again, allowed):
        raise UnsupportedSource(
            f"{label}: `{place}` is {quoted(here)}, which a GGUF file of a {described.architecture} "
            f"model does not say: it would be read as {quoted(there)}",
            hint="`modelkit export NAME DIR` lays it out as a folder.",
        )


def differences(here: Any, there: Any, allowed: Collection[str] = ()) -> Iterator[tuple[str, Any, Any]]:
    """Places of two parsed configs that are not the same, up to float32, with both values.

    allowed: names of fields that may differ, with all that is in them.
    """
    for place, one, other in _walk(here, there, ""):
        if not {*re.findall(r"\w+", place)} & {*allowed}:
            yield place.removeprefix("."), one, other


def _walk(here: Any, there: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    if is_dataclass(here) and is_dataclass(there):
        both = {field.name for field in fields(there)}  # a wrapper's text model may have another class
        for name in (field.name for field in fields(here) if field.name in both):
            yield from _walk(getattr(here, name), getattr(there, name), f"{place}.{name}")
    elif isinstance(here, tuple) and isinstance(there, tuple):
        ours, theirs = cast("tuple[Any, ...]", here), cast("tuple[Any, ...]", there)
        if len(ours) != len(theirs):
            yield place, here, there
        for number, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            yield from _walk(one, other, f"{place}[{number}]")
    elif not _same(here, there):
        yield place, here, there


def _same(here: Any, there: Any) -> bool:
    if type(here) is float or type(there) is float:
        number = isinstance(here, int | float) and isinstance(there, int | float)
        return number and (here == there or math.isclose(here, there, rel_tol=_CLOSE))
    if isinstance(here, str) and isinstance(there, str):
        return _ALIKE.get(here, here) == _ALIKE.get(there, there)
    return bool(here == there)
