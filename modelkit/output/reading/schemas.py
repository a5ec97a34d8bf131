"""What a tool's schema says of one argument: whether it is a text, and what it may be besides.

Only types matter here. What is not understood may be anything.
"""

from collections.abc import Callable, Mapping
from typing import Any

from modelkit.output.reading.validation import fits
from modelkit.schema import named_types

Types = frozenset[str] | None
"""Names of JSON's types; None for any."""

TEXT: Types = frozenset({"string"})
_ALL = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_DEEPEST = 16
KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


def arguments_of(tools: object) -> dict[str, Mapping[str, Any]]:
    """The schemas of the tools' arguments, by name: OpenAI's shape, or the function alone. What has no name
    is left out, and what has no schema takes anything.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for tool in tools if isinstance(tools, list | tuple) else ():
        inner = tool.get("function", tool) if isinstance(tool, Mapping) else None
        name = inner.get("name") if isinstance(inner, Mapping) else None
        if isinstance(inner, Mapping) and isinstance(name, str):
            schema = inner.get("parameters", inner.get("input_schema"))
            found[name] = schema if isinstance(schema, Mapping) else {}
    return found


class Schema:
    """A schema, or a part of one."""

    def __init__(self, given: object, root: Mapping[str, Any] | None = None) -> None:
        self._given: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        self._root = root if root is not None else self._given

    def member(self, name: str, *, typed: bool = False) -> "Schema":
        """Of an object's member of that name. typed: whoever wrote it says of which type it is, so a way of a
        choice that takes anything there counts beside those that name it; else the names tell what is meant.
        """

        def of(given: Mapping[str, Any]) -> object:
            members, others = given.get("properties"), given.get("patternProperties")
            if isinstance(members, Mapping) and name in members:
                return members[name]
            more = given.get("additionalProperties")
            if not isinstance(others, Mapping) or not others:
                return {} if typed and more is True else more
            # Any of them: a stranger's pattern is not tried, for it may take longer than anybody waits.
            return {"anyOf": [*others.values(), *([] if more is False else [more or {}])]}

        return Schema(self._within(self._given, of, 0), self._root)

    def element(self, place: int) -> "Schema":
        """Of a list's element in this place."""

        def of(given: Mapping[str, Any]) -> object:
            rest = given.get("items")
            front = rest if isinstance(rest, list) else given.get("prefixItems")
            if isinstance(front, list) and place < len(front):
                return front[place]
            return given.get("additionalItems") if isinstance(rest, list) else rest

        return Schema(self._within(self._given, of, 0), self._root)

    def _within(
        self, given: Mapping[str, Any], of: Callable[[Mapping[str, Any]], object], depth: int
    ) -> Mapping[str, Any] | None:
        """What all parts together say of a part of their values; of a choice, those that say something."""

        def within_each(ways: object) -> list[Mapping[str, Any]]:
            known = [one for one in ways[:64] if isinstance(one, Mapping)] if isinstance(ways, list) else []
            return [way for one in known if (way := self._within(one, of, depth + 4)) is not None]

        if depth > _DEEPEST:
            return None
        own, there = of(given), self._referred(given)
        found = [own] if isinstance(own, Mapping) else []
        if there is not None and (way := self._within(there, of, depth + 1)) is not None:
            found.append(way)
        found += within_each(given.get("allOf"))
        for key in ("anyOf", "oneOf"):
            if ways := within_each(given.get(key)):
                found.append(ways[0] if len(ways) == 1 else {"anyOf": ways})
        if not found and (ways := within_each(_conditional(given))):  # elsewhere they only say more of it
            found = [{"anyOf": ways}]
        return found[0] if len(found) == 1 else {"allOf": found} if found else None

    def names(self) -> list[str]:
        """Of an object's members."""
        parts = [part.get("properties") for part in self._parts(self._given, 0)]
        return [name for part in parts if isinstance(part, Mapping) for name in part]

    def fits(self, value: object) -> bool:
        """Is it a value of this schema, as far as that tells readings apart?"""
        return fits(value, self._given, self._root)

    @property
    def types(self) -> Types:
        return self._types(self._given, 0)

    def _types(self, given: Mapping[str, Any], depth: int) -> Types:
        """Those of all parts together, as far as they say; a choice may be any of its parts."""
        said = self._types_of(given, depth)
        return self._implied(given, depth) if said is None else said

    def _types_of(self, given: Mapping[str, Any], depth: int) -> Types:
        if depth > _DEEPEST:
            return None
        found: set[str] | None = None
        for said in self._sayings(given, depth):
            if said is not None:
                found = set(said) if found is None else found & said
        return None if found is None else frozenset(found)

    def _sayings(self, given: Mapping[str, Any], depth: int) -> list[Types]:
        sayings: list[Types] = [_named(given), _listed(given)]
        if (there := self._referred(given)) is not None:
            sayings.append(self._types_of(there, depth + 1))
        for key in ("anyOf", "oneOf"):
            if isinstance(given.get(key), list):
                kinds = [
                    self._types(one, depth + 1) if isinstance(one, Mapping) else None for one in given[key]
                ]
                known = [kind for kind in kinds if kind is not None]
                sayings.append(frozenset().union(*known) if kinds and len(known) == len(kinds) else None)
        if isinstance(given.get("allOf"), list):
            sayings += [self._types_of(one, depth + 1) for one in given["allOf"] if isinstance(one, Mapping)]
        return sayings

    def _implied(self, given: Mapping[str, Any], depth: int) -> Types:
        """Of keywords that only one type has, where nothing says a type."""
        if depth > _DEEPEST:
            return None
        parts = [
            self._referred(given),
            *(given["allOf"][:64] if isinstance(given.get("allOf"), list) else []),
        ]
        inner = (self._implied(one, depth + 4) for one in parts if isinstance(one, Mapping))
        return _of_keywords(given) or next((kinds for kinds in inner if kinds), None)

    def _parts(self, given: Mapping[str, Any], depth: int) -> list[Mapping[str, Any]]:
        """The schema itself and everything that it is put together from."""
        parts = [given]
        if depth > _DEEPEST:
            return parts
        if (there := self._referred(given)) is not None:
            parts += self._parts(there, depth + 1)
        for key in ("allOf", "anyOf", "oneOf"):
            if isinstance(given.get(key), list):
                for one in given[key][:64]:
                    parts += self._parts(one, depth + 4) if isinstance(one, Mapping) else []
        for one in _conditional(given)[:64]:
            parts += self._parts(one, depth + 4)
        return parts

    def _referred(self, given: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Where a `$ref` within the schema points to."""
        path = given.get("$ref")
        if not isinstance(path, str) or not path.startswith("#"):
            return None
        there: Any = self._root
        for step in path[1:].split("/")[1:]:
            there = (
                there.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(there, Mapping) else None
            )
        return there if isinstance(there, Mapping) else None


def _conditional(given: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What a schema says of its value where something else holds."""
    found = [given.get("then"), given.get("else")]
    for key in ("dependentSchemas", "dependencies"):
        said = given.get(key)
        found += said.values() if isinstance(said, Mapping) else []
    return [one for one in found if isinstance(one, Mapping)]


def _named(given: Mapping[str, Any]) -> Types:
    kinds = frozenset(named_types(given)) & _ALL
    return (kinds | {"integer"} if "number" in kinds else kinds) or None


def _listed(given: Mapping[str, Any]) -> Types:
    """Of the values that an enum or a const lists."""
    values = given.get("enum")
    values = values if isinstance(values, list) else [given["const"]] if "const" in given else []
    return frozenset(KINDS.get(type(value), "null") for value in values) or None


def _of_keywords(given: Mapping[str, Any]) -> Types:
    for key, kind in (("properties", "object"), ("items", "array"), ("pattern", "string")):
        if key in given:
            return frozenset({kind})
    return None
