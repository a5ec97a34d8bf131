"""Values as Go writes them: what an action prints, and JSON as its encoder makes it."""

import json
import math
import re
from typing import Any

from modelkit.chat.go.values import NilList, PrintedList, PrintedMap, Record, TypeNames

_ESCAPED = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_SPECIAL = re.compile("[<>&\u2028\u2029]")


def printed(value: Any, missing: str = "<no value>") -> str:
    """What `{{ value }}` writes."""
    if value is None:
        return missing
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, PrintedMap | PrintedList):
        return to_json(value)
    if isinstance(value, TypeNames) and len(value) < 2:
        return "".join(value)
    if isinstance(value, Record):
        if value.kind.prints_json:
            return to_json(value)
        return "{" + " ".join(printed(one, "<nil>") for one in value.values()) + "}"
    if isinstance(value, dict):
        pairs = (f"{printed(key)}:{printed(value[key], '<nil>')}" for key in sorted(value, key=str))
        return f"map[{' '.join(pairs)}]"
    if isinstance(value, list | tuple):
        return f"[{' '.join(printed(one, '<nil>') for one in value)}]"
    return str(value)


def to_json(value: Any) -> str:
    """As Go's encoder: structs in the order of their fields, maps by key, no blanks, and three characters of
    HTML escaped.
    """
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False).replace("\\b", "\\u0008").replace("\\f", "\\u000c")
        return _SPECIAL.sub(lambda found: _ESCAPED[found[0]], text)
    if value is None or isinstance(value, NilList):
        return "null"
    if isinstance(value, bool | int):
        return json.dumps(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, TypeNames) and len(value) == 1:
        return to_json(value[0])
    if isinstance(value, Record):
        return _joined(_members(value))
    if isinstance(value, dict):
        return _joined([(str(key), value[key]) for key in sorted(value, key=str)])
    return f"[{','.join(map(to_json, value))}]"


def _members(value: Record) -> list[tuple[str, Any]]:
    own = [(key, value[field]) for field, key in value.kind.keys.items()]
    shown = [(key.removeprefix("?"), one) for key, one in own if key[0] != "?" or one]
    return [*shown, *sorted(value.more.items())]


def _joined(pairs: list[tuple[str, Any]]) -> str:
    return "{" + ",".join(f"{to_json(key)}:{to_json(one)}" for key, one in pairs) + "}"


def _number(value: float) -> str:
    if not math.isfinite(value):
        raise ValueError("JSON has no such number")
    size = abs(value)
    if size and not 1e-6 <= size < 1e21:
        return _exponent(value).replace("e-0", "e-")
    return _plain(value)


def _float(value: float) -> str:
    """The shortest digits that are this number again."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    exponent = int(f"{value:e}".partition("e")[2])
    return _plain(value) if value == 0 or -4 <= exponent < 21 else _exponent(value)


def _exponent(value: float) -> str:
    digits, _, exponent = repr(value).partition("e")
    if not exponent:
        tries = (f"{value:.{count}e}" for count in range(17))
        digits, _, exponent = next(text for text in tries if float(text) == value).partition("e")
    return f"{digits.removesuffix('.0')}e{int(exponent):+03d}"


def _plain(value: float) -> str:
    """Without an exponent."""
    text = repr(value)
    if "e" in text:
        text = f"{value:.25f}".rstrip("0") if abs(value) < 1 else f"{value:.0f}"
    return text.removesuffix(".0")
