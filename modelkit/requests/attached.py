"""The adapters of a package as requests choose them: which there are, and which answer, at what scales.

A request that says nothing has all of them, in the package's order, at scale 1. What one may say: names, or
names with scales; none at all is the model alone. A scale is a share of what the adapter adds.
"""

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from modelkit import arguments
from modelkit.errors import RequestError
from modelkit.pack.adapters.package_adapters import Carried
from runtime.engine.adapters import AdapterSource
from runtime.models import Described
from runtime.quoting import quoted

_GREATEST_SCALE = 1_000_000
_DIGEST = re.compile(r"[0-9a-f]{64}")

Chosen = tuple[tuple[str, float], ...]
"""Names in order, each with its scale."""


def sources(adapters: Sequence[Carried], described: Described) -> tuple[AdapterSource, ...]:
    """For the engine, which reads each when a request first asks for it."""

    def source(one: Carried) -> AdapterSource:
        return AdapterSource(
            one.name, " ".join(map(_identity, one.files.values())), lambda: one.load(described)
        )

    return tuple(map(source, adapters))


def held_bytes(adapters: Sequence[Carried], element_bytes: int) -> int:
    """What they take in memory. element_bytes: of an activation."""
    return sum(_numbers(one) for one in adapters) * element_bytes


def shapes(adapters: Sequence[Carried]) -> list[tuple[str, tuple[int, ...]]]:
    """Of tensors that a package has of them, by the names that they have in its network."""
    stored = [one.stored for one in adapters if one.stored is not None]
    return [(tensor.name, tensor.shape) for one in stored for tensor in one.header.tensors]


def contents(adapters: Sequence[Carried]) -> str:
    """What tells these from others on another machine: names, and digests of all that is in their files."""
    state = hashlib.sha256()
    for one in adapters:
        state.update(f"{one.name}\n".encode())
        for path in one.files.values():
            if _DIGEST.fullmatch(path.name):
                digest = path.name
            else:
                with path.open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
            state.update(f"{digest}\n".encode())
    return f"sha256:{state.hexdigest()}"


def _numbers(one: Carried) -> int:
    if one.stored is not None:
        return sum(math.prod(tensor.shape) for tensor in one.stored.header.tensors)
    return one.nbytes // 2  # of a file that is yet to be brought to the network; most are of 16 bits


def _identity(path: Path) -> str:
    """Of a file's content: the digest that a stored one is named by, else what changes when it is written."""
    if _DIGEST.fullmatch(path.name):
        return path.name
    facts = path.stat()
    return f"{path.resolve()} {facts.st_size} {facts.st_mtime_ns}"


def read_adapters(value: object, names: Sequence[str]) -> Chosen:
    """The argument of a request. names: those that there are. Raises RequestError."""
    if value is None:
        return tuple((name, 1.0) for name in names)
    if isinstance(value, Mapping):
        pairs: list[tuple[Any, Any]] = list(arguments.mapping(value, "adapters").items())
    else:
        pairs = [(name, 1.0) for name in arguments.elements(value, "adapters", "names of adapters")]
    chosen = tuple(
        (_name(name, names, "adapters: "), _scale(scale, f"adapters[{quoted(name)}]"))
        for name, scale in pairs
    )
    twice = [name for i, (name, _) in enumerate(chosen) if name in dict(chosen[:i])]
    if twice:
        raise RequestError(f"adapters names {twice[0]} twice")
    return chosen


def read_texts(texts: Sequence[str], names: Sequence[str]) -> Chosen:
    """NAME or NAME=SCALE, as people type them. Raises RequestError."""
    found: dict[str, float] = {}
    for text in texts:
        name, equals, scale = text.strip().partition("=")
        name = _name(name.strip(), names)
        if name in found:
            raise RequestError(f"the adapter {name} is named twice")
        found[name] = _scale(_number(scale) if equals else 1.0, f"the scale of {name}")
    return tuple(found.items())


def texts_of(chosen: Chosen) -> str:
    """As people type them."""
    return " ".join(name if scale == 1 else f"{name}={scale:g}" for name, scale in chosen)


def _name(value: object, names: Sequence[str], where: str = "") -> str:
    """where: the argument, which its errors begin with."""
    if not isinstance(value, str):
        raise arguments.refused(f"{where}a name", value, "a text")
    if value not in names:
        have = f"It has {', '.join(names)}." if names else "It has none; ADAPTER in a Modelfile brings one."
        raise RequestError(f"{where}the model has no adapter {quoted(value)}", hint=have)
    return value


def _number(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text


def _scale(value: object, where: str) -> float:
    found = arguments.as_number(value)
    if found is None or not abs(found) <= _GREATEST_SCALE:  # NaN is not
        most = f"{_GREATEST_SCALE:,}"
        raise arguments.refused(where, value, f"a number from -{most} to {most}, 1 for the adapter as it is")
    return found
