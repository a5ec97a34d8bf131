"""Go's functions for templates, on the data of `values`. Their errors are Go's: what fails there fails here.

In jinja they are called `go_` and their name, beside those that stand for what Go's syntax does: `go_field`,
`go_true`, `go_pairs`, `go_print`. All work on plain data, make little of much, and bound what they make.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from modelkit.chat.go.printing import printed, to_json
from modelkit.chat.go.values import PROPERTY, Record, modern, turns
from runtime.quoting import quoted

MOST_RANGE = 100_000
MOST_WIDTH = 64
_VERB = re.compile(r"%(?P<flags>[-+ 0#]*)(?P<width>[0-9]*)(?:\.(?P<precision>[0-9]*))?(?P<verb>.)", re.DOTALL)
_TYPES = {
    "string": "string",
    "number": "number",
    "integer": "number",
    "boolean": "boolean",
    "array": "any[]",
    "object": "Record<string, any>",
    "null": "null",
}


class GoError(Exception):
    """What Go would have stopped at."""


def field(value: Any, *names: str) -> Any:
    """`.A.B` of a value."""
    for name in names:
        if isinstance(value, Record):
            if name not in value:
                raise GoError(f"can't evaluate field {name} in type {value.kind.name}")
            value = value[name]
        elif isinstance(value, Mapping):
            value = value.get(name)
        elif value is None:
            raise GoError(f"nil pointer evaluating interface {{}}.{name}")
        else:
            raise GoError(f"can't evaluate field {name} in type {_type(value)}")
    return value


def true(value: Any) -> bool:
    """What `if` takes for true: a struct always is."""
    return isinstance(value, Record) or bool(value)


def pairs(value: Any) -> list[tuple[Any, Any]]:
    """What `range` goes through: numbers or keys, and elements."""
    if value is None:
        return []
    if isinstance(value, int) and not isinstance(value, bool):
        if value > MOST_RANGE:
            raise GoError(f"range over more than {MOST_RANGE:,} numbers")
        return [(number, number) for number in range(value)]
    if isinstance(value, Record) or not isinstance(value, Mapping | list | tuple):
        raise GoError(f"range can't iterate over a {_type(value)}")
    if isinstance(value, Mapping):
        return [(key, value[key]) for key in sorted(value, key=str)]
    return list(enumerate(value))


def equal(first: Any, *others: Any) -> bool:
    """`eq`: is the first equal to any other?"""
    if not others:
        raise GoError("missing argument for comparison")
    return any(_same(first, other) for other in others)


def unequal(first: Any, other: Any) -> bool:
    return not _same(first, other)


def less(first: Any, other: Any) -> bool:
    kind = _kind(first)
    if kind != _kind(other):
        raise GoError("incompatible types for comparison")
    if kind not in ("string", "int", "float"):
        raise GoError("invalid type for comparison")
    return first < other


def length(value: Any) -> int:
    """Of a text in bytes."""
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, Record) or not isinstance(value, Mapping | list | tuple):
        raise GoError(f"len of type {_type(value)}")
    return len(value)


def index(value: Any, *keys: Any) -> Any:
    for key in keys:
        if isinstance(value, Mapping) and not isinstance(value, Record):
            value = value.get(key)
            continue
        inside = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        if not isinstance(inside, bytes | list | tuple):
            raise GoError(f"can't index item of type {_type(value)}")
        value = inside[_within(key, len(inside) - 1)]
    return value


def cut(value: Any, *ends: Any) -> Any:
    """`slice`: of a text by bytes."""
    if len(ends) > 2:
        raise GoError("a slice with three indices is not supported")
    inside = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    if not isinstance(inside, bytes | list | tuple):
        raise GoError(f"can't slice item of type {_type(value)}")
    start = _within(ends[0], len(inside)) if ends else 0
    stop = _within(ends[1], len(inside)) if len(ends) > 1 else len(inside)
    if start > stop:
        raise GoError(f"invalid slice index: {start} > {stop}")
    made = inside[start:stop]
    return made.decode("utf-8", "replace") if isinstance(made, bytes) else list(made)


def print_values(*values: Any) -> str:
    """`print`: a blank between two values of which none is a text."""
    text = ""
    for place, value in enumerate(values):
        alone = place and not isinstance(value, str) and not isinstance(values[place - 1], str)
        text += (" " if alone else "") + printed(value, "<nil>")
    return text


def lined(*values: Any) -> str:
    """`println`"""
    return " ".join(printed(value, "<nil>") for value in values) + "\n"


def formatted(form: Any, *values: Any) -> str:
    """`printf`, with the verbs s, d, v, q, t, f and %, and widths up to MOST_WIDTH."""
    if not isinstance(form, str):
        raise GoError("printf wants a format first")
    left = list(values)

    def written(found: re.Match[str]) -> str:
        if found["verb"] == "%":
            return "%"
        if not left:
            return f"%!{found['verb']}(MISSING)"
        return _verb(found, left.pop(0))

    text = _VERB.sub(written, form)
    if left:
        raise GoError("printf has more values than verbs")
    return text


def check_format(form: str) -> str | None:
    """What of a format is not supported; None for nothing."""
    for found in _VERB.finditer(form):
        sizes = (found["width"] or "0", found["precision"] or "0")
        if found["verb"] not in "sdvqtf%" or set(found["flags"]) - {"-", "0", "+"}:
            return f"printf knows {quoted(found[0])} in Go, and %s, %d, %v, %q, %t, %f here"
        if any(len(size) > 3 or int(size) > MOST_WIDTH for size in sizes):
            return f"a width or precision of printf is at most {MOST_WIDTH} here"
    return None


def type_script(value: Any) -> str:
    """`toTypeScriptType` of a property."""
    if not isinstance(value, Record) or value.kind is not PROPERTY:
        return "any"
    if value["AnyOf"]:
        return " | ".join(type_script(one) for one in value["AnyOf"])
    return " | ".join(_TYPES.get(name, "any") for name in value["Type"]) or "any"


def day_before(today: str) -> str:
    """`yesterdayDate`"""
    return (date.fromisoformat(today) - timedelta(days=1)).isoformat()


# By their names in Go; and, or, and the two dates have no function here: the emitter writes them out.
FUNCTIONS: Mapping[str, Callable[..., Any] | None] = {
    "and": None,
    "or": None,
    "currentDate": None,
    "yesterdayDate": None,
    "not": lambda value: not true(value),
    "eq": equal,
    "ne": unequal,
    "lt": less,
    "le": lambda first, other: less(first, other) or _same(first, other),
    "gt": lambda first, other: not less(first, other) and not _same(first, other),
    "ge": lambda first, other: not less(first, other),
    "len": length,
    "index": index,
    "slice": cut,
    "print": print_values,
    "printf": formatted,
    "println": lined,
    "json": to_json,
    "toTypeScriptType": type_script,
}

# What jinja templates that were Go's are given.
GLOBALS: Mapping[str, Callable[..., Any]] = {
    **{f"go_{name}": function for name, function in FUNCTIONS.items() if function is not None},
    "go_field": field,
    "go_true": true,
    "go_pairs": pairs,
    "go_text": printed,
    "go_day_before": day_before,
    "go_data": modern,
    "go_turns": turns,
}


def _same(first: Any, other: Any) -> bool:
    kind, its = _kind(first), _kind(other)
    if kind != its:
        if first is None or other is None:
            return False
        raise GoError("incompatible types for comparison")
    if kind in ("map", "slice", "struct"):
        raise GoError(f"non-comparable type {_type(first)}")
    return first == other


def _kind(value: Any) -> str:
    if isinstance(value, Record):
        return "struct"
    kinds: Sequence[tuple[Any, str]] = (
        (bool, "bool"),
        (str, "string"),
        (int, "int"),
        (float, "float"),
        (Mapping, "map"),
        (list | tuple, "slice"),
    )
    return next((kind for one, kind in kinds if isinstance(value, one)), "nil")


def _type(value: Any) -> str:
    return value.kind.name if isinstance(value, Record) else _kind(value)


def _within(key: Any, most: int) -> int:
    if isinstance(key, bool) or not isinstance(key, int):
        raise GoError(f"cannot index slice/array with type {_type(key)}")
    if not 0 <= key <= most:
        raise GoError(f"index out of range: {key}")
    return key


def _verb(found: re.Match[str], value: Any) -> str:
    if problem := check_format(found[0]):
        raise GoError(problem)
    fits = {"d": int, "t": bool, "f": float, "q": str}.get(found["verb"], object)
    if not isinstance(value, fits) or (found["verb"] == "d" and isinstance(value, bool)):
        return f"%!{found['verb']}({_type(value)}={printed(value)})"
    precision = int(found["precision"] or 0) if found["precision"] is not None else None
    match found["verb"]:
        case "q":
            text = to_json(value).replace("\\u003c", "<").replace("\\u003e", ">").replace("\\u0026", "&")
        case "f":
            text = f"{value:.{6 if precision is None else precision}f}"
        case _:
            text = printed(value, "<nil>")
            text = text[:precision] if found["verb"] in "sv" and isinstance(value, str) else text
    if "+" in found["flags"] and found["verb"] in "df" and text[0] != "-":
        text = f"+{text}"
    width = int(found["width"] or 0)
    if "-" in found["flags"]:
        return text.ljust(width)
    return text.zfill(width) if "0" in found["flags"] and found["verb"] in "df" else text.rjust(width)
