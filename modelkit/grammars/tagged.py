"""Arguments one by one in marks of their own, held to the tool's schema: texts raw, other values JSON."""

from collections.abc import Mapping
from typing import Any

from modelkit.chat.styles.style import Tag
from modelkit.grammars.rules import Rules, either
from modelkit.grammars.values import DEEPEST, NAME, Read, Schema, choices, kind_of, properties, raw


def tagged_arguments(rules: Rules, schema: Schema, tag: Tag) -> str:
    """Each argument in marks of its own."""
    return _Tagged(rules, Read(schema), tag).members(schema, 0)


class _Tagged:
    def __init__(self, rules: Rules, read: Read, tag: Tag) -> None:
        self._rules, self._read, self._tag = rules, read, tag

    def members(self, schema: Any, depth: int) -> str:
        named = properties(schema)
        if named is None:
            return self._rules.rule(f"({self._any()})*")
        return (
            " ".join(f"({self._one(name, its, depth)}){'' if must else '?'}" for name, its, must in named)
            or '""'
        )

    def _one(self, name: str, schema: Any, depth: int) -> str:
        tag, rules = self._tag, self._rules
        close = tag.close.replace("{name}", name)
        kinds = self._read.kinds(schema)
        opened = rules.said(tag.open + name) if tag.type is None else ""
        if tag.type is None:
            return f"{opened} {rules.said(tag.name_end)} {self._value(schema, kinds, close, depth)}"
        ways = list[str]()
        for kind in sorted(kinds):
            word = tag.type.text if kind == "string" else tag.type.other or kind
            head = rules.said(tag.open + name + tag.type.open + word + tag.name_end)
            only = schema if kinds == frozenset({kind}) else self._only(schema, kind)
            ways.append(f"{head} {self._value(only, frozenset({kind}), close, depth)}")
        return either(ways)

    def _only(self, schema: Any, kind: str) -> Any:
        """The part of the schema for values of one type."""
        schema = self._read.resolved(schema)
        for key in ("anyOf", "oneOf"):
            if isinstance(schema, Mapping) and isinstance(schema.get(key), list):
                return {
                    "anyOf": [one for one in schema[key] if self._read.kinds(one) == frozenset({kind})]
                    or [{"type": kind}]
                }
        listed = choices(schema) if isinstance(schema, Mapping) else None
        return (
            {"enum": [one for one in listed if kind_of(one) == kind]} if listed else {**schema, "type": kind}
        )

    def _value(self, schema: Any, kinds: frozenset[str], close: str, depth: int) -> str:
        rules, inner = self._rules, self._read.resolved(schema)
        if "string" in kinds:
            values = choices(inner) if kinds == frozenset({"string"}) and isinstance(inner, Mapping) else None
            if values is not None:
                return f"({either(rules.said(one) for one in values)}) {rules.said(close)}"
            return raw(rules, inner if kinds == frozenset({"string"}) else {}, close)
        if self._tag.nested and kinds & {"object", "array"} and depth < DEEPEST:
            return f"{self._nested(inner, kinds, depth)} {rules.said(close)}"
        return f"{rules.json(self._read.alone(schema))} {rules.said(close)}"

    def _nested(self, schema: Any, kinds: frozenset[str], depth: int) -> str:
        if kinds == frozenset({"array"}) and isinstance(items := schema.get("items", {}), Mapping):
            one = self._one(self._tag.item, items, depth + 1)
            most = schema.get("maxItems", "")
            return self._rules.rule(f"({one}){{{schema.get('minItems', 0)},{most}}}")
        return self._rules.rule(self.members(schema if kinds == frozenset({"object"}) else {}, depth + 1))

    def _any(self) -> str:
        """An argument that no schema names: its value is any text."""
        tag, rules = self._tag, self._rules
        if tag.type is not None or "{name}" in tag.close:
            return self._one("value", {"type": "string"}, 0)
        return f"{rules.said(tag.open)} {NAME} {rules.said(tag.name_end)} {raw(rules, {}, tag.close)}"
