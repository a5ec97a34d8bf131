"""References in a circle that something stands beside, as references that stand alone.

    {"properties": {"next": {"$ref": "#", "type": "object"}}}

The library puts a reference and what stands beside it together, and needs what the reference leads to for
that: in a circle in which each reference has something beside it, if only a word that no draft has, it never
comes to an end, and refuses the schema. So such a schema becomes a definition, with what it refers to written
out in it, and is referred to.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from modelkit.grammars.forms import MOST_CHARACTERS
from modelkit.grammars.rewriting.keywords import ASSERTS
from modelkit.grammars.schemas.traversal import Schema, subschemas
from modelkit.schema import target

_AROUND = frozenset({"$schema", "$id", "id", "$anchor", "$defs", "definitions"})
_CHOICES = ("anyOf", "oneOf")
_PARTS = frozenset({"$ref", "allOf", *_CHOICES})


def without_circles(text: str) -> str:
    """The schema with such references apart. A text that is not a JSON object comes back as it is."""
    if '"$ref"' not in text:
        return text
    root = json.loads(text)
    if not isinstance(root, dict) or not _Writing(root).write_out():
        return text
    written = json.dumps(root)
    return written if len(written) <= MOST_CHARACTERS["schema"] else text


class _Writing:
    """Changes schemas within `root`, in place."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._known: dict[str, str] = {}
        self._apart: dict[str, Schema] = {}
        self._left = MOST_CHARACTERS["schema"]

    def write_out(self) -> bool:
        """Is each reference as good as before, and any another one?"""
        schemas = [schema for _, schema in subschemas(self._root)]
        left_out = [*map(_without_remarks, schemas)]
        joined = [schema for schema in schemas if any(_beside(schema))]
        circles = _circles(schemas, self._root) if joined else {}
        for schema in joined:
            there = (target(led, self._root) for led in _beside(schema))
            if any(circles.get(id(one)) == circles[id(schema)] for one in there):
                self._move(schema)
        for name, schema in self._apart.items():
            self._apart[name] = self._whole(schema, (name,))
        if self._left < 0:
            return False
        if not self._apart:
            return any(left_out)
        self._root["$defs"] = {**self._root.get("$defs", {}), **self._apart}
        return all(target(led, self._root) is not None for led in self._references())

    def _references(self) -> Iterator[str]:
        for _, schema in subschemas(self._root):
            if isinstance(led := schema.get("$ref"), str) and led.startswith("#"):
                yield led

    def _move(self, schema: Schema) -> None:
        """Into a definition, equal ones into one."""
        said = {key: value for key, value in schema.items() if key not in _AROUND}
        key = json.dumps(said, sort_keys=True)
        if key not in self._known:
            taken = self._root.get("$defs", {})
            number = len(self._known)
            while (name := f"circle-{number}") in taken or name in self._apart:
                number += 1
            self._known[key], self._apart[name] = name, said
        for word in said:
            del schema[word]
        schema["$ref"] = f"#/$defs/{self._known[key]}"

    def _whole(self, schema: Any, passed: tuple[str, ...]) -> Any:
        """With what it refers to in place of references, as far as it is the same value's."""
        if not isinstance(schema, Mapping):
            return schema
        found: Schema = {key: value for key, value in schema.items() if key != "$ref"}
        for key in ("allOf", *_CHOICES):
            if isinstance(listed := found.get(key), list):
                found[key] = [self._whole(one, passed) for one in listed]
        led = schema.get("$ref")
        if isinstance(led, str):
            inner = self._led(led, passed)
            if not found.keys() & ASSERTS and isinstance(inner, Mapping):
                return inner
            found["allOf"] = [inner, *found.get("allOf", ())]
        return found

    def _led(self, led: str, passed: tuple[str, ...]) -> Any:
        name = led.removeprefix("#/$defs/")
        there = self._apart[name] if name in self._apart else target(led, self._root)
        if led in passed or name in passed or self._left < 0:  # it stands for itself: the library says so
            return {"$ref": led}
        self._left -= len(json.dumps(there))
        return self._whole(there, (*passed, led))


def _without_remarks(schema: Schema) -> bool:
    """Leave out remarks beside a reference or a choice: the library takes some for more. Were there any?"""
    said = schema.keys() & ASSERTS
    if len(said) != 1 or not said <= _PARTS:
        return False
    remarks = schema.keys() - _AROUND - said
    for key in remarks:
        del schema[key]
    return bool(remarks)


def _beside(schema: Schema) -> Iterator[str]:
    """References of the same value that something stands beside."""
    said = schema.keys() & ASSERTS
    if len(said) < 2 and not (said == {"allOf"} and len(schema["allOf"]) > 1):
        return
    left: list[Any] = [schema]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            if isinstance(led := part.get("$ref"), str):
                yield led
            for key in ("allOf", *_CHOICES):
                left += listed if isinstance(listed := part.get(key), list) else []


def _circles(schemas: list[Schema], root: Schema) -> dict[int, int]:
    """Which circle each schema is in, by its identity: those that lead to each other."""
    onward = {id(schema): [*_onward(schema, root)] for schema in schemas}
    order, seen = list[int](), set[int]()
    for start in onward:
        calls = [] if start in seen else [(start, iter(onward[start]))]
        seen.add(start)
        while calls:
            node, left = calls[-1]
            following = next((one for one in left if one in onward and one not in seen), None)
            if following is None:
                order.append(node)
                calls.pop()
            else:
                seen.add(following)
                calls.append((following, iter(onward[following])))
    back = dict[int, list[int]]()
    for node, led in onward.items():
        for one in led:
            back.setdefault(one, []).append(node)
    found = dict[int, int]()
    for start in reversed(order):
        left = [start]
        while left:
            node = left.pop()
            if node in onward and node not in found:
                found[node] = start
                left += back.get(node, ())
    return found


def _onward(schema: Schema, root: Schema) -> Iterator[int]:
    """Schemas that one refers to, and that stand in it."""
    if isinstance(there := target(schema.get("$ref"), root), dict):
        yield id(there)
    for key, value in schema.items():
        if key in ("$defs", "definitions"):
            continue
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        yield from (id(one) for one in (value, *inner) if isinstance(one, dict))
