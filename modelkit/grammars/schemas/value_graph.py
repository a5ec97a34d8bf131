"""All that a JSON schema says of one value: the schema itself, what it refers to, and the members of its
allOf, with one choice made of each anyOf and oneOf.

A `Value` is such a set. What it asks of its properties and items are values again, so a schema is a graph of
them. Schemas that cannot refer to anything (`leaf`) need no value of their own. References that lead outside
of the schema say nothing here.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from modelkit.schema import target
from runtime.records import dataclass

_INNER = ("$ref", "allOf", "anyOf", "oneOf", "properties", "patternProperties", "additionalProperties")
_LISTS = ("items", "prefixItems", "additionalItems")
_CONTAINERS = frozenset({"object", "array"})
_TYPES = _CONTAINERS | {"string", "number", "integer", "boolean", "null"}

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Value:
    """What describes one value. Equal ones are one: `key` tells them apart."""

    key: tuple[frozenset[int], frozenset[int]]
    """Identities of the schemas, and of the lists of choices of which one has been made."""
    parts: tuple[Schema, ...]
    """The schemas, all of which hold."""


@dataclass(frozen=True, slots=True)
class Need:
    """What must be there so that a value can be."""

    name: str
    """A property's, or an item's place in brackets."""
    value: Value
    """What stands there."""


_ITSELF: Schema = {"$ref": ""}
ANY_NAME = "*"  # of properties that have no name of their own in the schema


class ValueGraph:
    """root: the schema that references are looked up in."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._targets: dict[str, Any] = {}
        self._closures: dict[int, tuple[Schema, ...]] = {}

    def start(self) -> Value:
        return self._value([self._root], frozenset())

    def choices(self, value: Value) -> list[Value] | None:
        """What it may be, by the first list of choices of which none has been made; None without one. Itself
        where a choice leads back to the choice, or it is made of itself.
        """
        if any(part is _ITSELF for part in value.parts):
            return [value]
        for part in value.parts:
            for key in ("anyOf", "oneOf"):
                options = part.get(key)
                if isinstance(options, list) and options and id(options) not in value.key[1]:
                    made = value.key[1] | {id(options)}
                    return [self._chosen(value, part, option, made) for option in options]
        return None

    def looks(self, value: Value) -> int:
        """How many schemas are looked at to know what it has inside."""
        inside = 0
        for part in value.parts:
            inside += len(_mapping(part, "properties")) + len(_prefix(part) or ())
            listed = (part.get(key) for key in ("required", "anyOf", "oneOf"))
            inside += sum(len(one) for one in listed if isinstance(one, list))
        return len(value.parts) * inside

    def kinds(self, value: Value) -> frozenset[str]:
        """Types that it may have; none of the containers where its values are listed."""
        kinds = _TYPES
        for part in value.parts:
            said = part.get("type")
            listed = [said] if isinstance(said, str) else said
            if isinstance(listed, list):
                kinds &= frozenset(one for one in listed if isinstance(one, str))
            if "const" in part or "enum" in part:
                kinds -= _CONTAINERS
                kinds |= {"null"}  # whatever is listed: it ends
        return kinds

    def of_object(self, value: Value) -> tuple[list[Need], list[Need], int]:
        """(what is required, what else it may have, how many of all it must have)."""
        required = list(dict.fromkeys(_names(value.parts, "required")))
        named = dict.fromkeys([*required, *_names(value.parts, "properties")])
        needs = [Need(name, self._property(value, name)) for name in named]
        others = [part["additionalProperties"] for part in value.parts if "additionalProperties" in part]
        others += [one for part in value.parts for one in _mapping(part, "patternProperties").values()]
        if not any(one is False for one in others):  # unsaid, they may be anything
            needs.append(Need(ANY_NAME, self._value(others, frozenset())))
        count = len(required)
        return needs[:count], needs[count:], max([0, *_numbers(value.parts, "minProperties")])

    def of_array(self, value: Value) -> tuple[list[Need], list[Need]]:
        """(items that must be there, those of other kinds)."""
        least = max([0, *_numbers(value.parts, "minItems")])
        first = [len(one) for part in value.parts if (one := _prefix(part)) is not None]
        places = range(max([0, *first]) + 1)  # behind the prefix all are alike
        needs = [Need(f"[{place}]", self._item(value, place)) for place in places]
        return needs[:least], needs[least:]

    def _property(self, value: Value, name: str) -> Value:
        said = list[Any]()
        for part in value.parts:
            own = _mapping(part, "properties")
            if name in own:
                said.append(own[name])
            elif "patternProperties" not in part:  # else nobody knows without trying a stranger's patterns
                said.append(part.get("additionalProperties"))
        return self._value(said, frozenset())

    def _item(self, value: Value, place: int) -> Value:
        said = list[Any]()
        for part in value.parts:
            prefix, items = _prefix(part) or [], part.get("items")
            rest = part.get("additionalItems") if isinstance(items, list) else items
            said.append(prefix[place] if place < len(prefix) else rest)
        return self._value(said, frozenset())

    def _chosen(self, value: Value, holder: Schema, option: Any, made: frozenset[int]) -> Value:
        parts = self._closure(option) if isinstance(option, dict) else ()
        if any(part is holder for part in parts):
            return value
        return _made({id(part): part for part in (*value.parts, *parts)}, made)

    def _value(self, said: Iterable[Any], made: frozenset[int]) -> Value:
        every = (self._closure(one) for one in said if isinstance(one, dict))
        return _made({id(part): part for parts in every for part in parts}, made)

    def _closure(self, schema: Schema) -> tuple[Schema, ...]:
        """With what it refers to and is made of, each once."""
        known = self._closures.get(id(schema))
        if known is None:
            known = self._closures[id(schema)] = (*self._found(schema),)
        return known

    def _found(self, start: Schema) -> list[Schema]:
        """_ITSELF alone where one of them is made of itself."""
        found, begun, ended = list[Schema](), set[int](), set[int]()
        left = [(start, False)]
        while left:
            schema, whole = left.pop()
            if whole:
                ended.add(id(schema))
            elif id(schema) not in begun:
                begun.add(id(schema))
                if "$ref" not in schema or len(schema) > 1:
                    found.append(schema)
                every = schema.get("allOf")
                inner = [*(every if isinstance(every, list) else []), self._target(schema.get("$ref"))]
                left += [(schema, True), *((one, False) for one in inner if isinstance(one, Mapping))]
            elif id(schema) not in ended:
                return [_ITSELF]
        return found

    def _target(self, reference: Any) -> Any:
        if not isinstance(reference, str):
            return None
        if reference not in self._targets:
            self._targets[reference] = target(reference, self._root)
        return self._targets[reference]


def _made(parts: Mapping[int, Schema], made: frozenset[int]) -> Value:
    return Value((frozenset(parts), made), (*parts.values(),))


def leaf(value: Value) -> bool:
    """Has it nothing inside?"""
    return not any(key in part for part in value.parts for key in (*_INNER, *_LISTS))


def _names(parts: Iterable[Schema], key: str) -> Iterator[str]:
    for part in parts:
        said = part.get(key)
        if isinstance(said, list | Mapping):
            yield from (one for one in said if isinstance(one, str))


def _numbers(parts: Iterable[Schema], key: str) -> Iterator[int]:
    for part in parts:
        said = part.get(key)
        if isinstance(said, int | float) and said == said:  # JSON's readers give NaN, too
            yield int(min(max(said, 0), 2**31))


def _mapping(part: Schema, key: str) -> Mapping[str, Any]:
    said = part.get(key)
    return said if isinstance(said, Mapping) else {}


def _prefix(part: Schema) -> list[Any] | None:
    for key in ("prefixItems", "items"):
        if isinstance(part.get(key), list):
            return part[key]
    return None
