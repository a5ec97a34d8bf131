"""A call's arguments as each style writes them, held to the tool's schema.

JSON is llguidance's own. Elsewhere the schema is walked, by the variants that each value has (`Variants`):
types, listed values, properties in their order, lists, and what is said of a text or a number. What a
notation has no way to enforce is said: `Rules.leave`.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from modelkit.grammars.calls.members import (
    KEYED,
    NAME,
    QUOTED,
    items_of,
    joined,
    listed,
    members_of,
    repeated,
)
from modelkit.grammars.rules.raw_text import listed_values, raw_text
from modelkit.grammars.rules.rules import Rules, either, literal
from modelkit.grammars.schemas.satisfiability import satisfiable_types
from modelkit.grammars.schemas.variant import NotExpressible, Schema, Variant, of_type, types_of
from modelkit.grammars.schemas.variants import Variants
from runtime.records import dataclass


def variants_of(rules: Rules, variants: Variants, schema: Any, at: str) -> list[Variant]:
    """The variants of a value; of one that is not taken apart, any."""
    try:
        return variants.of(schema)
    except NotExpressible as error:
        rules.leave(f"{at}: {error}")
        return [{}]


@dataclass(frozen=True, slots=True)
class Notation:
    """How a style writes what is no number."""

    text: Callable[[Schema, str], str]
    """The rule of texts that have no list of values, by their schema and their place."""
    literal: Callable[[str], str]
    """Of one text."""
    word: Mapping[str, str]
    """True, false and null."""
    key: Callable[[str | None, str], str]
    """Of a name in an object; None for those that are none of the schema's, given as a terminal's body."""
    names: str
    """The terminal's body of any such name."""
    comma: str


class ValueRules:
    """The rules of values in a notation. root: the whole schema."""

    def __init__(self, rules: Rules, root: Schema, notation: Notation) -> None:
        self._rules, self._variants, self._notation = rules, Variants(root), notation
        self._known: dict[str, str] = {}

    def of(self, schema: Any, at: str) -> str:
        """The rule of its values. A schema inside itself is a rule inside itself. at: where it stands."""
        key = json.dumps(schema, sort_keys=True)
        if key not in self._known:
            self._known[key] = self._rules.ahead()
            parts = [
                self._variant(kind, of_type(variant, kind), at)
                for variant in variants_of(self._rules, self._variants, schema, at)
                for kind in satisfiable_types(self._rules, self._variants, variant)
            ]
            self._rules.define(self._known[key], either(part for part in parts if part) or self._any(at))
        return self._known[key]

    def _any(self, at: str) -> str:
        self._rules.leave(f"{at}: no value was found that it has")
        return self.of({}, at)

    def objects(self, schema: Any, key: Callable[[str | None, str], str] | None = None) -> str:
        """What stands between the brackets of the objects of a schema. key: of these alone."""
        variants = variants_of(self._rules, self._variants, schema, "$")
        able = [
            variant
            for variant in variants
            if "object" in satisfiable_types(self._rules, self._variants, variant)
        ]
        # Where there is none, what is wrong is said of its members.
        objects = [
            of_type(variant, "object") for variant in able or variants if "object" in types_of(variant)
        ]
        members = (
            self._members(one, "$", key or self._notation.key, NAME if key else self._notation.names)
            for one in objects
        )
        return self._rules.rule(either(members))

    def _members(self, schema: Schema, at: str, key: Callable[[str | None, str], str], names: str) -> str:
        its = members_of(self._rules, self._variants, schema, at, names)
        parts = [(f"{key(name, '')} {self.of(said, f'{at}.{name}')}", must) for name, said, must in its.named]
        others = either(f"{key(None, one.name)} {self.of(one.schema, f'{at}.*')}" for one in its.others)
        if others:
            more = repeated(self._rules.rule(others), self._notation.comma, max(its.least, 1), its.most)
            parts.append((self._rules.rule(more), its.least > 0))
        return listed(self._rules, parts, self._notation.comma)

    def _variant(self, kind: str, schema: Schema, at: str) -> str:
        if "enum" in schema:
            return either(self._value(value) for value in listed_values(self._rules, schema, at))
        match kind:
            case "string":
                return self._notation.text(schema, at)
            case "number" | "integer":
                return self._rules.json(schema)
            case "boolean":
                return f"{literal(self._notation.word['true'])} | {literal(self._notation.word['false'])}"
            case "null":
                return literal(self._notation.word["null"])
            case "object":
                return f'"{{" {self._members(schema, at, self._notation.key, self._notation.names)} "}}"'
            case _:
                return f'"[" {self._list(schema, at)} "]"'

    def _list(self, schema: Schema, at: str) -> str:
        its = items_of(self._rules, self._variants, schema)
        front = [self.of(one, f"{at}[{place}]") for place, one in enumerate(its.front)]
        rest = "" if its.rest is False else self.of(its.rest, f"{at}[]")
        return joined(self._rules, its, front, rest, self._notation.comma)

    def _value(self, value: Any) -> str:
        match value:
            case None | bool():
                return literal(self._notation.word[json.dumps(value)])
            case str():
                return self._notation.literal(value)
            case list():
                inner = f" {literal(self._notation.comma)} ".join(self._value(one) for one in value)
                return f'"[" {inner} "]"'
            case dict():
                pairs = [f"{self._notation.key(name, '')} {self._value(one)}" for name, one in value.items()]
                return f'"{{" {f" {literal(self._notation.comma)} ".join(pairs)} "}}"'
            case _:
                return literal(json.dumps(value))


def python_arguments(rules: Rules, schema: Schema) -> str:
    """`a="x", n=1`, without the brackets."""

    def key(name: str | None, of: str) -> str:
        if name is None:
            return f'"\\"" {rules.terminal(of)} "\\": "'
        return literal(f"{json.dumps(name, ensure_ascii=False)}: ")

    def argument(name: str | None, of: str) -> str:
        return literal(name + "=") if name is not None else f'{rules.terminal(of)} "="'

    notation = Notation(
        text=lambda its, _: rules.json(its),
        literal=lambda value: rules.json({"const": value}),
        word={"true": "True", "false": "False", "null": "None"},
        key=key,
        names=QUOTED,
        comma=", ",
    )
    return ValueRules(rules, schema, notation).objects(schema, argument)


def dict_arguments(rules: Rules, schema: Schema, quote: str) -> str:
    """`{key:value,...}` with texts between two quotes."""
    said = rules.literal(quote)

    def key(name: str | None, of: str) -> str:
        return f'{rules.terminal(of)} ":"' if name is None else rules.literal(f"{name}:")

    notation = Notation(
        text=lambda its, at: f"{said} {raw_text(rules, [its], quote, at)}",
        literal=lambda value: f"{said} {rules.literal(value)} {said}",
        word={one: one for one in ("true", "false", "null")},
        key=key,
        names=KEYED,
        comma=",",
    )
    return f'"{{" {ValueRules(rules, schema, notation).objects(schema)} "}}"'
