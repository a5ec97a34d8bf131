"""Arguments one by one in marks of their own, held to the tool's schema: texts raw, other values JSON."""

from collections.abc import Mapping
from typing import Any

from modelkit.chat.styles.style import Tag
from modelkit.grammars.rules import Rules, either
from modelkit.grammars.values import (
    DEEPEST,
    NAME,
    Read,
    Schema,
    bounds,
    choices,
    kind_of,
    properties,
    raw,
)


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
        parts = self._parts(schema)
        if tag.type is None:
            opened = f"{rules.said(tag.open + name)} {rules.said(tag.name_end)}"
            return f"{opened} ({self._value(parts, close, depth)})"
        ways = list[str]()
        for kind in sorted({kind for kind, _ in parts}):
            word = tag.type.text if kind == "string" else tag.type.other or kind
            head = rules.said(tag.open + name + tag.type.open + word + tag.name_end)
            own = [part for part in parts if part[0] == kind]
            ways.append(f"{head} ({self._value(own, close, depth)})")
        return either(ways)

    def _parts(self, schema: Any, depth: int = 0) -> list[tuple[str, Any]]:
        """The schema as choices, each of one type."""
        schema = self._read.resolved(schema)
        if not isinstance(schema, Mapping) or depth > DEEPEST:
            return [(kind, {} if schema is True else {"type": kind}) for kind in self._read.kinds(schema)]
        listed = choices(schema)
        if listed is not None:
            kinds = dict.fromkeys(kind_of(one) for one in listed)
            return [(kind, {"enum": [one for one in listed if kind_of(one) == kind]}) for kind in kinds]
        for key in ("anyOf", "oneOf"):
            if isinstance(schema.get(key), list):
                return [part for one in schema[key] for part in self._parts(one, depth + 1)]
        kinds = sorted(self._read.kinds(schema))
        return [
            (kind, schema if len(kinds) == 1 else {**schema, "type": self._type(schema, kind)})
            for kind in kinds
        ]

    @staticmethod
    def _type(schema: Mapping[str, Any], kind: str) -> str:
        said = schema.get("type")
        whole = isinstance(said, list) and "integer" in said and "number" not in said
        return "integer" if kind == "number" and whole else kind

    def _value(self, parts: list[tuple[str, Any]], close: str, depth: int) -> str:
        """One of the parts, and the mark behind it. A text that may be anything may be all of them."""
        free = [its for kind, its in parts if kind == "string" and _is_free(its)]
        if free:
            return raw(self._rules, free[0], close)
        return either(self._part(kind, its, close, depth) for kind, its in parts)

    def _part(self, kind: str, schema: Any, close: str, depth: int) -> str:
        rules = self._rules
        if kind == "string":
            if (values := choices(schema)) is None:
                return raw(rules, schema, close)
            return f"({either(rules.said(one) for one in values)}) {rules.said(close)}"
        if self._tag.nested and kind in ("object", "array") and depth < DEEPEST:
            return f"{self._nested(schema, frozenset({kind}), depth)} {rules.said(close)}"
        return f"{rules.json(self._read.alone(schema))} {rules.said(close)}"

    def _nested(self, schema: Any, kinds: frozenset[str], depth: int) -> str:
        if kinds == frozenset({"array"}) and isinstance(items := schema.get("items", {}), Mapping):
            one = self._one(self._tag.item, items, depth + 1)
            most = schema.get("maxItems", "")
            if most == 0:
                return '""'
            return self._rules.rule(f"({one}){{{schema.get('minItems', 0)},{most}}}")
        return self._rules.rule(self.members(schema if kinds == frozenset({"object"}) else {}, depth + 1))

    def _any(self) -> str:
        """An argument that no schema names: its value is any text."""
        tag, rules = self._tag, self._rules
        if tag.type is not None or "{name}" in tag.close:
            return self._one("value", {"type": "string"}, 0)
        return f"{rules.said(tag.open)} {NAME} {rules.said(tag.name_end)} {raw(rules, {}, tag.close)}"


def _is_free(schema: Any) -> bool:
    return choices(schema) is None and bounds(schema) is None
