"""Schemas that describe values without an end: one that requires itself, at once or in a circle.

    {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}

A model that begins such a value can only go deeper until it is cut off, so the schema is refused before. A
value has an end where one of the ways to write it needs only values that have one; which values these are is
found from the leaves up.
"""

from collections import deque
from collections.abc import Sequence

from modelkit.grammars.schemas.value_graph import ANY_NAME, Need, Schema, Value, ValueGraph, leaf
from runtime.quoting import shown

MOST_PARTS = 200_000  # of all values together: what looking through them takes
MOST_LOOKS = 500_000  # for what one value has inside, of which each takes a microsecond

_Key = tuple[frozenset[int], frozenset[int]]
_Way = list[Need]


class Values:
    """All values that a schema describes, in the order in which they are reached; too_many: not all; crowded:
    nor what this one has inside.
    """

    def __init__(self, root: Schema) -> None:
        self._described = ValueGraph(root)
        start = self._described.start()
        self.ways: dict[_Key, list[_Way]] = {}
        """How each may be written, and what each way needs. A leaf is not there."""
        self.reached: dict[_Key, tuple[_Key, str] | None] = {start.key: None}
        """From where, and by which name."""
        self.all: list[Value] = [start]
        self.too_many = False
        self.crowded: Value | None = None
        left, parts = deque([start]), 0
        while left and not self.too_many:
            value = left.popleft()
            if self._described.looks(value) > MOST_LOOKS:
                self.crowded = value
                return
            ways, inner = self._looked_into(value)
            self.ways[value.key] = ways
            for need in inner:
                parts += len(need.value.parts)
                if need.value.key not in self.reached:
                    self.reached[need.value.key] = value.key, need.name
                    self.all.append(need.value)
                    if not leaf(need.value):
                        left.append(need.value)
            self.too_many = parts > MOST_PARTS

    def _looked_into(self, value: Value) -> tuple[list[_Way], list[Need]]:
        """(the ways to write it, all that it has inside)."""
        choices = self._described.choices(value)
        if choices is not None:
            needs = [Need("", one) for one in choices]
            return [[one] for one in needs], needs
        kinds, ways, inner = self._described.kinds(value), list[_Way](), list[Need]()
        if kinds - {"object", "array"} or not kinds:  # the library says that nothing is left
            ways.append([])
        if "object" in kinds:
            required, others, least = self._described.of_object(value)
            enough = (
                least <= len(required) or not others
            )  # without others the library says that it has too few
            ways += [required] if enough else [[*required, one] for one in others]
            inner += [*required, *others]
        if "array" in kinds:
            first, others = self._described.of_array(value)
            ways.append(first)
            inner += [*first, *others]
        return ways, inner

    def endless(self) -> str | None:
        """The way to the first value without an end, and its circle."""
        ended = self._ended()
        for value in self.all:
            if value.key in self.ways and value.key not in ended:
                return self._circle(value.key, ended)
        return None

    def _ended(self) -> set[_Key]:
        """Values that have an end."""
        ended = {value.key for value in self.all if value.key not in self.ways}
        open_needs: list[int] = []
        holders: list[_Key] = []
        waiting: dict[_Key, list[int]] = {}
        left = deque(ended)
        for key, ways in self.ways.items():
            for way in ways:
                keys = {need.value.key for need in way}
                for one in keys:
                    waiting.setdefault(one, []).append(len(holders))
                open_needs.append(len(keys))
                holders.append(key)
                if not keys and key not in ended:
                    ended.add(key)
                    left.append(key)
        while left:
            for way in waiting.get(left.popleft(), ()):
                open_needs[way] -= 1
                if not open_needs[way] and holders[way] not in ended:
                    ended.add(holders[way])
                    left.append(holders[way])
        return ended

    def unnamed(self) -> str | None:
        """Where an object first stands that must have more than one property of any name: nothing keeps a
        model from writing one name twice, and then it has too few.
        """
        for value in self.all:
            if self._described.choices(value) is None and "object" in self._described.kinds(value):
                required, others, least = self._described.of_object(value)
                free = any(one.name == ANY_NAME for one in others)
                if least > len(required) + 1 and (free or self._by_pattern(value)):
                    return self.path(value)
        return None

    def _by_pattern(self, value: Value) -> bool:
        """May it have properties of which the names are only described?"""
        return any(part.get("patternProperties") for part in value.parts)

    def path(self, value: Value) -> str:
        """Where it stands first."""
        return _path(self._way_to(value.key))

    def _circle(self, start: _Key, ended: set[_Key]) -> str:
        seen: dict[_Key, int] = {}
        names, key = list[str](), start
        while key not in seen:
            seen[key] = len(names)
            need = next(need for way in self.ways[key] for need in way if need.value.key not in ended)
            names.append(need.name)
            key = need.value.key
        head = [*self._way_to(start), *names[: seen[key]]]
        inside = [name for name in names[seen[key] :] if name]
        if not inside:
            return f"{_path(head)} stands for itself and for nothing else"
        circle = " -> ".join(_path([*head, *inside[:place]]) for place in range(len(inside) + 1))
        return (
            f"{_path(head)} requires itself without end ({circle} -> ...); let one place of this "
            "circle be left out, be empty or be null"
        )

    def _way_to(self, key: _Key) -> list[str]:
        names, step = list[str](), self.reached[key]
        while step is not None:
            key, name = step
            names.append(name)
            step = self.reached[key]
        return names[::-1]


def _path(names: Sequence[str]) -> str:
    """As `$.people[0].name`."""
    return "$" + "".join(_step(name) for name in names if name)


def _step(name: str) -> str:
    return shown(name) if name.startswith("[") else f".{shown(name)}"
