"""A tool's schema that the library does not take, with as little left out as makes it usable.

The schema is gone through from the leaves up. A part that is not taken by itself loses those of its keywords
without which it is; one that is not taken without them either may be anything. What was left out is said. A
schema with so many such parts that finding them takes too long may be any object.
"""

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from modelkit.grammars.patterns.full_match import full_expression
from modelkit.grammars.patterns.syntax import UnsupportedPattern
from modelkit.grammars.schemas.variants import Variants
from runtime.quoting import quoted

Schema = dict[str, Any]
WhyNot = Callable[[Schema], str | None]
Loosened = tuple[Schema, tuple[str, ...]]
"""(a schema without what is not taken, what that is)."""

_MOST_TRIED = 300
_HELD_AT = re.compile(r"\$\.x\b")
"""Where a part stands that is looked at by itself."""
_UNUSABLE = re.compile(r"^\w+ is not a usable JSON schema: ")
_HUNDREDS = re.compile(r"\{\d*,?\d{3,}\}")
_KEPT = frozenset(
    {"type", "properties", "required", "items", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"}
)
"""Tried last, as a part means little without them."""
_SILENT = frozenset({"$schema", "$id", "$defs", "definitions", "title", "description", "default", "examples"})
_NAMED = ("$defs", "definitions", "properties", "patternProperties")
_SINGLE = ("items", "additionalProperties", "additionalItems")
_LISTED = ("prefixItems", "anyOf", "oneOf", "allOf", "items")


class _TooMuch(Exception):
    """So many parts are not taken that it takes too long to find them."""


class Loosenings:
    """The last so many are known: finding what to leave out takes many looks. Safe to use from several
    threads. why_not: a sentence about a schema that is not taken.
    """

    def __init__(self, why_not: WhyNot, most: int) -> None:
        self._why_not, self._most, self._lock = why_not, most, threading.Lock()
        self._known: OrderedDict[str, Loosened | None] = OrderedDict()

    def of(self, schema: Schema) -> Loosened | None:
        """None where nothing usable was found."""
        key = json.dumps(schema)
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
        found = _loosened(json.loads(key), self._why_not)
        with self._lock:
            self._known[key] = found
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return found


def _loosened(schema: Schema, why_not: WhyNot) -> Loosened | None:
    loosening = _Loosening(schema, why_not)
    try:
        loosening.part(schema, "$", must=True)
    except (_TooMuch, RecursionError):
        return None
    return None if why_not(schema) else (schema, tuple(loosening.said))


class _Loosening:
    def __init__(self, root: Schema, why_not: WhyNot) -> None:
        self.root, self.said = root, list[str]()
        self._why_not, self._left = why_not, _MOST_TRIED

    def part(self, schema: Schema, at: str, *, must: bool) -> None:
        """Make one part usable, in place. must: it needs a value."""
        why = self._why(schema, must=must)
        if why is None:
            return
        for name, inner, needed in parts_of(schema):
            self.part(inner, f"{at}{name}", must=must and needed)
        if (why := self._why(schema, must=must)) is None:
            return
        why = self._without_unknown(schema, at, why, must=must)
        if why is None:
            return
        keys = [key for key in schema if key not in _SILENT]
        for key in sorted(keys, key=lambda key: key in _KEPT):
            held = schema.pop(key)
            without = self._why(schema, must=must)
            if without is None or without != why:
                self.said.append(f"{key} of {at}: {self._placed(_in_words(key, held, why), schema, at)}")
                if without is None:
                    return
                why = without
            else:
                schema[key] = held
        schema.clear()
        self.said.append(f"{at} may be anything: {self._placed(why, schema, at)}")

    def _without_unknown(self, schema: Schema, at: str, why: str, *, must: bool) -> str | None:
        """Without required names that a closed object does not have, where that is what is wrong; why it is
        not taken still.
        """
        required, named = schema.get("required"), schema.get("properties", {})
        if not isinstance(required, list) or not isinstance(named, dict):
            return why
        known = [one for one in required if isinstance(one, str) and one in named]
        closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
        if not closed or len(known) == len(required):
            return why
        schema["required"] = known
        without = self._why(schema, must=must)
        if without == why:
            schema["required"] = required
        else:
            unknown = next(one for one in required if one not in known)
            self.said.append(f"required of {at}: {quoted(unknown)} is none of its properties")
        return without

    def _placed(self, why: str, schema: Schema, at: str) -> str:
        """What is said of a part that was looked at by itself, with the places that it has in the whole."""
        why = _UNUSABLE.sub("", why)
        return why if schema is self.root else _HELD_AT.sub(lambda _: at, why)

    def _why(self, schema: Schema, *, must: bool) -> str | None:
        """Why this part is not taken by itself."""
        self._left -= 1
        if self._left < 0:
            raise _TooMuch
        if schema is self.root:
            return self._why_not(self.root)
        # Around the part and not in it: references lead from there.
        held = {"type": "object", "properties": {"x": schema}, **({"required": ["x"]} if must else {})}
        why = self._why_not({**Variants(self.root).alone(held)})
        return "no value has it" if why is not None and "property 'x' is unsatisfiable" in why else why


def _in_words(key: str, value: Any, why: str) -> str:
    """Why a keyword is not taken, in our words where we have some."""
    try:
        if key == "pattern" and isinstance(value, str):
            full_expression(value)
    except UnsupportedPattern as error:
        return str(error)
    return "no grammar holds it" if f'Unimplemented keys: ["{key}"]' in why else why


def counted(text: str) -> list[str]:
    """The patterns in a schema that repeat something hundreds of times."""
    if not _HUNDREDS.search(text):
        return []
    found, left = dict[str, None](), [json.loads(text)]
    while left:
        schema = left.pop()
        if isinstance(pattern := schema.get("pattern"), str) and _HUNDREDS.search(pattern):
            found[pattern] = None
        left += [inner for _, inner, _ in parts_of(schema)]
    return list(found)


def parts_of(schema: Mapping[str, Any]) -> Iterator[tuple[str, Schema, bool]]:
    """Schemas within one: (what it is called behind the outer's own name, the schema, whether that needs a
    value).
    """
    required = schema.get("required")
    must = {one for one in required if isinstance(one, str)} if isinstance(required, list) else set[str]()
    for key in _NAMED:
        named = schema.get(key)
        prefix = "" if key == "properties" else f".{key}"
        for name, inner in named.items() if isinstance(named, dict) else ():
            if isinstance(inner, dict):
                yield f"{prefix}.{name}", inner, key == "properties" and name in must
    for key in _SINGLE:
        if isinstance(schema.get(key), dict):
            yield "[]" if key == "items" else ".*", schema[key], key == "items" and "minItems" in schema
    for key in _LISTED:
        listed = schema.get(key)
        for place, inner in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(inner, dict):
                many = key in ("prefixItems", "items")
                yield f"[{place}]" if many else f".{key}[{place}]", inner, key not in ("anyOf", "oneOf")
