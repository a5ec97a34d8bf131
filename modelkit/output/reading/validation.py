"""Does a value that was read fit a schema? Asked where what a model wrote may be a text as well as something
else: `3` is the text "3" where no number 3 is allowed.

Keywords that say nothing of such a choice (patterns, formats, conditions) count as kept: what is asked is
which of two readings is meant, not whether an answer is right. Of the empty text, which may as well be a list
or an object without members, patterns and formats are asked, too.
"""

import re
from collections.abc import Mapping, Sequence
from math import fmod
from typing import Any

from modelkit.json_text import is_number
from modelkit.regexes import ways
from modelkit.schema import named_types, target

_DEEPEST, _MOST = 64, 20_000  # of parts that are looked at, and of patterns' characters
_MOST_WAYS = 1 << 20  # through a stranger's pattern, on no text: a fraction of a second
_PASSED_OVER = re.compile(r"[*{]|\)\+")  # repetitions that no text may take or not
_OTHERS_SET = re.compile(r"\[[^\]]*(\[|--|&&|~~|\|\|)")  # sets in sets, of which `re` warns
_NEVER_EMPTY = frozenset(
    {
        "date",
        "time",
        "date-time",
        "duration",
        "email",
        "hostname",
        "ipv4",
        "ipv6",
        "ipvanyaddress",
        "uri",
        "uuid",
    }
    | {f"uuid{version}" for version in range(1, 9)}
)


def fits(value: object, schema: object, root: Mapping[str, Any]) -> bool:
    """root: where references lead to. True where the schema is too involved to tell."""
    try:
        return _Fitting(root).whole(value, schema, 0)
    except (_Involved, RecursionError):  # a listed value may be as deep as what was read
        return True


class _Involved(Exception):
    """Parts inside parts: a choice of references to itself doubles with each of them."""


class _Fitting:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root, self._left = root, _MOST

    def whole(self, value: object, schema: object, depth: int) -> bool:
        self._left -= 1
        if depth > _DEEPEST or self._left <= 0:
            raise _Involved
        if not isinstance(schema, Mapping):
            return schema is not False
        return (
            _listed(value, schema)
            and _typed(value, named_types(schema))
            and self._composed(value, schema, depth + 1)
            and _sized(value, schema)
            and (value != "" or self._may_be_empty(schema))
            and self._filled(value, schema, depth + 1)
        )

    def _may_be_empty(self, schema: Mapping[str, Any]) -> bool:
        pattern = schema.get("pattern")
        if isinstance(pattern, str) and not _OTHERS_SET.search(pattern):
            self._left -= len(pattern)
            passed = len(_PASSED_OVER.findall(pattern))
            if self._left <= 0 or ways(pattern) << min(passed, 64) > _MOST_WAYS:
                return True
            try:  # one of another dialect counts as kept
                return re.search(pattern, "") is not None
            except (re.error, RecursionError, OverflowError):
                return True
        return schema.get("format") not in _NEVER_EMPTY

    def _composed(self, value: object, schema: Mapping[str, Any], depth: int) -> bool:
        if "$ref" in schema and not self.whole(value, target(schema["$ref"], self._root), depth):
            return False
        for key, enough in (("anyOf", any), ("oneOf", any), ("allOf", all)):
            ways = schema.get(key)
            if isinstance(ways, list) and ways and not enough(self.whole(value, one, depth) for one in ways):
                return False
        return True

    def _filled(self, value: Any, schema: Mapping[str, Any], depth: int) -> bool:
        if isinstance(value, list):
            items = schema.get("items", True)
            return all(self.whole(one, items, depth) for one in value)
        if not isinstance(value, dict):
            return True
        named, required = schema.get("properties"), schema.get("required")
        named = named if isinstance(named, Mapping) else {}
        if isinstance(required, list) and any(
            isinstance(name, str) and name not in value for name in required
        ):
            return False
        others = True if "patternProperties" in schema else schema.get("additionalProperties", True)
        return all(self.whole(one, named.get(name, others), depth) for name, one in value.items())


def _listed(value: object, schema: Mapping[str, Any]) -> bool:
    among = schema.get("enum")
    listed = not isinstance(among, list) or any(same(value, one) for one in among)
    return listed and ("const" not in schema or same(value, schema["const"]))


def same(one: object, other: object) -> bool:
    """As JSON has it: true is no 1, and 1.0 is."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return one == other


def _typed(value: object, names: Sequence[str]) -> bool:
    return not names or any(_is(value, name) for name in names)


def _is(value: object, name: str) -> bool:
    match name:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
        case "number":
            return is_number(value)
        case "integer":
            return is_number(value) and (isinstance(value, int) or value.is_integer())
        case _:
            return True  # no type of JSON's: it says nothing


def _sized(value: Any, schema: Mapping[str, Any]) -> bool:
    def bound(key: str) -> Any:
        return limit if is_number(limit := schema.get(key)) else None

    if is_number(value):
        least, most, above, below, step = map(
            bound, ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
        )
        within = (least is None or value >= least) and (most is None or value <= most)
        between = (above is None or value > above) and (below is None or value < below)
        return within and between and (not step or _is_multiple(value, step))
    kind = {str: "Length", list: "Items", dict: "Properties"}.get(type(value))
    if kind is None:
        return True
    least, most = bound(f"min{kind}"), bound(f"max{kind}")
    return (least is None or len(value) >= least) and (most is None or len(value) <= most)


def _is_multiple(value: float, step: float) -> bool:
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    try:
        return fmod(value, step) == 0 or abs(value / step - round(value / step)) < 1e-9
    except (OverflowError, ValueError, ZeroDivisionError):
        return True
