"""Tensors of a package under the names that the table of architectures knows.

A checkpoint's tensors have had other names in other years and other programs, and a family's `adapt` takes
all of them. The table knows one or two. So the family is asked: two names are spellings of one tensor where
`adapt` puts every row of it in the same place of the network, in the same way. A name that the table does not
know is replaced by one that it knows, is not taken, and means the same; what has no such name keeps its own.

Layers are alike: the first layer that has a name answers for all.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from modelkit.pack.gguf.tensors import Stored
from modelkit.source.gguf.architectures import unplaced
from runtime.errors import RuntimeFault, WeightMismatch
from runtime.loading.row_trace import trace
from runtime.loading.shapes import Form, Shape
from runtime.models.registry.described import Described, describe, whole_config

_NUMBER = re.compile(r"\.(\d{1,6})\.", re.ASCII)
Places = frozenset[tuple[str, bytes]]
"""Parameters of the network, with what arrives in each row of theirs, how."""


def respelled(config: Mapping[str, Any], tensors: Mapping[str, Stored], label: str) -> dict[str, Stored]:
    """The same tensors in the same order. config: the whole one. label: how messages call the package.

    Raises UnsupportedSource for a model that GGUF has no architecture for.
    """
    shapes = {name: one.shape for name, one in tensors.items()}
    found = unplaced(whole_config(config), shapes, label)
    if not found.names:
        return dict(tensors)
    try:
        words = _Family(describe(config), shapes).names_for(found.names, found.free)
    except RuntimeFault:  # whoever cannot load it is told what has no place
        words = {}
    free, names = set(found.free), {name: name for name in tensors}
    for name in found.names:
        template, number = _template(name)
        other = words[template].replace("{}", number) if template in words else name
        if other in free:
            names[name] = other
            free.remove(other)
    return {other: replace(tensors[name], name=other) for name, other in names.items()}


class _Family:
    """What a family is asked about names."""

    def __init__(self, described: Described, shapes: Mapping[str, Shape]) -> None:
        self._described = described
        self._shapes = shapes
        filters = (shape for name, shape in shapes.items() if name.endswith("conv1d.weight"))
        self._form: Form = "mlx" if any(shape[-1] == 1 for shape in filters) else "published"

    def names_for(self, names: Iterable[str], free: Collection[str]) -> dict[str, str]:
        """Templates of the names -> templates of what they mean among those that are free.

        Raises RuntimeFault for tensors that the family does not take.
        """
        first: dict[str, str] = {}
        for name in names:
            first.setdefault(_template(name)[0], name)
        asked = self._places({name: self._shapes[name] for name in first.values()})
        wanted = {name: places for name, places in asked.items() if places}
        own = {
            place: self._shapes[name]
            for name, places in wanted.items()
            for place, _ in places
            if place in free
        }
        direct = self._each_placed(own)  # the network's own names answer for most
        found: dict[str, str] = {}
        for name, places in wanted.items():
            template, number = _template(name)
            near = [other for other, _ in places if direct.get(other) == places]
            others = [other for other in free if _template(other)[1] == number]
            alike = near[0] if near else self._alike(places, self._shapes[name], others)
            found |= {} if alike is None else {template: _template(alike)[0]}
        return found

    def _alike(self, wanted: Places, shape: Shape, names: list[str]) -> str | None:
        """The name under which a tensor of that shape goes to these places."""
        asked = self._each_placed(dict.fromkeys(names, shape))
        return next((name for name, places in asked.items() if places == wanted), None)

    def _each_placed(self, tensors: Mapping[str, Shape]) -> dict[str, Places]:
        """Where each tensor goes; one after the other where they cannot be asked about together."""
        try:
            return self._places(tensors)
        except WeightMismatch:
            if len(tensors) < 2:
                return {}
            each = (self._each_placed({name: shape}) for name, shape in tensors.items())
            return {name: places for found in each for name, places in found.items()}

    def _places(self, tensors: Mapping[str, Shape]) -> dict[str, Places]:
        """Where each tensor goes."""
        if not tensors:
            return {}
        traced = trace(self._described, tensors, self._shapes, self._form)
        found: dict[str, set[tuple[str, bytes]]] = {name: set() for name in tensors}
        for arrival in traced.arrivals:
            for place, name in enumerate(arrival.sources):
                theirs = arrival.source == place
                parts = (theirs, arrival.row[theirs], arrival.times[theirs], arrival.plus[theirs])
                found[name].add((arrival.name, b"".join(part.tobytes() for part in parts)))
        return {name: frozenset(places) for name, places in found.items()}


def _template(name: str) -> tuple[str, str]:
    """The name with `{}` for the number of its layer, and that number; "" without one."""
    number = _NUMBER.search(name)
    if number is None:
        return name, ""
    return f"{name[: number.start(1)]}{{}}{name[number.end(1) :]}", number[1]
