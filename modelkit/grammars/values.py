"""A call's arguments as each style writes them, held to the tool's schema.

JSON is llguidance's own. Elsewhere the schema is walked: types, properties in their order, required ones,
choices, lists. What a schema says beyond that holds for values that are JSON inside, and for texts length
and choices hold; a schema that is beyond this leaves any value of the style.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from modelkit.grammars.rules import Free, Rules, either, quoted
from modelkit.schema import target

_TYPES = ("string", "number", "integer", "boolean", "null", "object", "array")
_ALL = frozenset(_TYPES) - {"integer"}
NAME = r"/[A-Za-z0-9_.\-]{1,64}/"
DEEPEST = 24
_LONGEST = 4096  # characters, up to which a text's bounds are kept

Schema = Mapping[str, Any]


class Read:
    """Questions about one tool's schema."""

    def __init__(self, root: Schema) -> None:
        self.root = root
        self._shared = {key: root[key] for key in ("$defs", "definitions") if key in root}

    def alone(self, schema: Any) -> Any:
        """A part of the schema that can stand by itself."""
        return {**self._shared, **schema} if isinstance(schema, Mapping) else schema

    def resolved(self, schema: Any) -> Any:
        """The schema that a reference leads to."""
        for _ in range(DEEPEST):
            if not isinstance(schema, Mapping):
                return schema
            whole = schema.get("allOf")
            if "$ref" in schema:
                found = target(schema["$ref"], self.root)
                schema = {} if found is None else found
            elif isinstance(whole, list) and len(whole) == 1 and "properties" not in schema:
                schema = whole[0]
            else:
                return schema
        return {}

    def kinds(self, schema: Any, depth: int = 0) -> frozenset[str]:
        """The JSON types that its values may have; numbers are "number"."""
        schema = self.resolved(schema)
        if not isinstance(schema, Mapping) or depth > DEEPEST:
            return _ALL
        if "const" in schema or isinstance(schema.get("enum"), list):
            return frozenset(kind_of(one) for one in choices(schema) or ())
        for key in ("anyOf", "oneOf"):
            if isinstance(schema.get(key), list):
                return frozenset[str]().union(*(self.kinds(one, depth + 1) for one in schema[key]))
        said = schema.get("type")
        if said is None:
            return frozenset({"object"}) if "properties" in schema else _ALL
        listed = said if isinstance(said, list) else [said]
        return frozenset("number" if one == "integer" else str(one) for one in listed)


def choices(schema: Schema) -> list[Any] | None:
    """The values that a schema lists."""
    if "const" in schema:
        return [schema["const"]]
    return schema["enum"] if isinstance(schema.get("enum"), list) else None


def kind_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def properties(schema: Any) -> list[tuple[str, Any, bool]] | None:
    """(name, schema, required) in their order; None where the schema does not list all of them."""
    if not isinstance(schema, Mapping) or not isinstance(schema.get("properties"), Mapping):
        return None
    if schema.get("additionalProperties", False) is not False or "patternProperties" in schema:
        return None
    named, required = schema["properties"], schema.get("required", ())
    if any(name not in named for name in required):
        return None
    return [(name, its, name in required) for name, its in named.items()]


def listed(rules: Rules, parts: Sequence[tuple[str, bool]], comma: str) -> str:
    """Parts in this order with commas between them, those that are not required left out at will."""
    if not parts:
        return rules.rule('""')
    some = _some(rules, parts, quoted(comma))
    return some if any(must for _, must in parts) else rules.rule(f'{some} | ""')


def _some(rules: Rules, parts: Sequence[tuple[str, bool]], comma: str) -> str:
    """At least one of them. In halves of halves: one rule behind the other would be as deep as there are
    parts, and deeper than the library goes.
    """
    if len(parts) == 1:
        return parts[0][0]
    halves = parts[: len(parts) // 2], parts[len(parts) // 2 :]
    one, other = (_some(rules, half, comma) for half in halves)
    needed = [any(must for _, must in half) for half in halves]
    ways = [f"{one} {comma} {other}"]
    ways += [] if needed[1] else [one]
    ways += [] if needed[0] else [other]
    return rules.rule(either(ways))


class Written:
    """Values in a notation of their own. string: a text's rule by its schema; word: the notation of true,
    false and null; key: of a name in an object.
    """

    def __init__(
        self,
        rules: Rules,
        read: Read,
        string: Callable[[Any], str],
        word: Mapping[str, str],
        key: Callable[[str | None], str],
        comma: str,
    ) -> None:
        self._rules, self._read, self._string = rules, read, string
        self._word, self._key, self._comma = word, key, comma
        self._known: dict[str, str] = {}

    def of(self, schema: Any) -> str:
        """The rule of its values. A schema inside itself is a rule inside itself."""
        schema = self._read.resolved(schema)
        key = json.dumps(schema, sort_keys=True)
        if key not in self._known:
            self._known[key] = self._rules.ahead()
            self._rules.define(self._known[key], either(self._ways(schema)))
        return self._known[key]

    def members(self, schema: Any) -> str:
        """What stands between an object's brackets."""
        named = properties(schema)
        if named is None:
            one = f"{self._key(None)} {self.of({})}"
            return self._rules.rule(f'"" | {one} ({quoted(self._comma)} {one})*')
        parts = [(f"{self._key(name)} {self.of(its)}", required) for name, its, required in named]
        return listed(self._rules, parts, self._comma)

    def _ways(self, schema: Any) -> list[str]:
        if not isinstance(schema, Mapping):
            schema = {}
        if (values := choices(schema)) is not None:
            return [self._literal(value) for value in values]
        for key in ("anyOf", "oneOf"):
            if isinstance(schema.get(key), list) and schema[key]:
                return [self.of(one) for one in schema[key]]
        kinds = self._read.kinds(schema)
        return [self._way(kind, schema) for kind in _TYPES if kind in kinds] or [self.of({})]

    def _way(self, kind: str, schema: Schema) -> str:
        match kind:
            case "string":
                return self._string(schema)
            case "number":
                return self._rules.json(_number(schema))
            case "boolean":
                return f"{quoted(self._word['true'])} | {quoted(self._word['false'])}"
            case "null":
                return quoted(self._word["null"])
            case "object":
                return f'"{{" {self.members(schema)} "}}"'
            case _:
                return self._list(schema)

    def _list(self, schema: Schema) -> str:
        items, least = schema.get("items", {}), schema.get("minItems", 0)
        most = schema.get("maxItems")
        one = self.of(items if isinstance(items, Mapping) else {})
        more = f"{{{max(least - 1, 0)},{'' if most is None else max(most - 1, 0)}}}"
        # The library takes no {0,0}.
        filled = one if most == 1 else f"{one} ({quoted(self._comma)} {one}){more}"
        if most == 0:
            return '"[]"'
        return f'"[" {filled} "]"' if least else f'"[" ({filled})? "]"'

    def _literal(self, value: Any) -> str:
        match value:
            case None | bool():
                return quoted(self._word[json.dumps(value)])
            case str():
                return self._string({"const": value})
            case list():
                inner = f" {quoted(self._comma)} ".join(self._literal(one) for one in value)
                return f'"[" {inner} "]"'
            case dict():
                pairs = [f"{self._key(name)} {self._literal(one)}" for name, one in value.items()]
                return f'"{{" {f" {quoted(self._comma)} ".join(pairs)} "}}"'
            case _:
                return quoted(json.dumps(value))


def python_arguments(rules: Rules, schema: Schema) -> str:
    """`a="x", n=1`, without the brackets."""
    read = Read(schema)
    word = {"true": "True", "false": "False", "null": "None"}
    written = Written(rules, read, lambda its: rules.json(_text(its)), word, _python_key(rules), ", ")
    named = properties(schema)
    if named is None:
        one = f'{NAME} "=" {written.of({})}'
        return rules.rule(f'"" | {one} (", " {one})*')
    return listed(
        rules, [(f"{quoted(name + '=')} {written.of(its)}", must) for name, its, must in named], ", "
    )


def dict_arguments(rules: Rules, schema: Schema, quote: str) -> str:
    """`{key:value,...}` with texts between two quotes."""
    said = rules.said(quote)

    def string(its: Any) -> str:
        if (values := choices(its) if isinstance(its, Mapping) else None) is not None:
            return either(f"{said} {rules.said(value)} {said}" for value in values if isinstance(value, str))
        return f"{said} {raw(rules, its, quote)}"

    def key(name: str | None) -> str:
        return f'{NAME} ":"' if name is None else rules.said(f"{name}:")

    word = {one: one for one in ("true", "false", "null")}
    written = Written(rules, Read(schema), string, word, key, ",")
    return f'"{{" {written.members(schema)} "}}"'


def raw(rules: Rules, schema: Any, close: str) -> str:
    """A text as it is, and then the mark, which the text does not have in it. Blanks at the mark's beginning
    are counted to the text where its length is free.
    """
    core = close.strip()
    lead, tail = close[: close.find(core)], close[close.find(core) + len(core) :]
    said = bounds(schema)
    if said is None:
        return f"{rules.until(core, Free())} {rules.said(tail)}"
    least, most = said
    if most == 0:  # a part of the grammar that is always empty fails at the token behind it
        return rules.said(close)
    return f"{rules.until(core, Free(), f'{{{least},{most}}}', lead)} {rules.said(tail)}"


def bounds(schema: Any) -> tuple[int, int] | None:
    """The least and the most characters of a text, where they can be kept."""
    if not isinstance(schema, Mapping):
        return None
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    if not isinstance(least, int) or not isinstance(most, int) or most > _LONGEST:
        return None
    return least, most


def _number(schema: Schema) -> Schema:
    whole = schema.get("type") == "integer" or (
        isinstance(schema.get("type"), list)
        and "integer" in schema["type"]
        and "number" not in schema["type"]
    )
    kept = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
    return {"type": "integer" if whole else "number", **{key: schema[key] for key in kept if key in schema}}


def _text(schema: Any) -> Schema:
    if not isinstance(schema, Mapping):
        return {"type": "string"}
    if "const" in schema:
        return {"const": schema["const"]}
    kept = ("minLength", "maxLength", "pattern", "format")
    return {"type": "string", **{key: schema[key] for key in kept if key in schema}}


def _python_key(rules: Rules) -> Callable[[str | None], str]:
    def key(name: str | None) -> str:
        if name is None:
            return f'{rules.json({"type": "string"})} ": "'
        return quoted(f"{json.dumps(name, ensure_ascii=False)}: ")

    return key
