"""Names of arguments that a style cannot write: they stand there without quotes, up to a mark."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from modelkit.chat.styles.style import MarkedCall, PythonCall, Style
from runtime.quoting import quoted

_PYTHON = re.compile(r"[\w.\-]{1,256}")
_LONGEST = 256
_DEEPEST = 24  # levels of schemas in schemas


def unwritable_name(style: Style, schema: Any) -> str | None:
    """A sentence about a name in a tool's schema that calls of this style cannot have."""
    form = style.form
    if isinstance(form, PythonCall):
        wrong = [name for name in _names(schema, 0) if not _PYTHON.fullmatch(name)]
    elif isinstance(form, MarkedCall) and form.arguments == "dict":
        wrong = [name for name in _names(schema, _DEEPEST) if not _plain(name, (":", "}", '"', form.quote))]
    elif isinstance(form, MarkedCall) and (tag := form.tag):
        ends = [
            tag.name_end.split()[0],
            *([tag.type.open] if tag.type else []),
            *(["/"] if tag.nested else []),
        ]
        deep = _DEEPEST if tag.nested else 0
        wrong = [name for name in _names(schema, deep) if not _plain(name, ends)]
    else:
        wrong = []
    return f"calls of this model cannot have an argument with the name {quoted(wrong[0])}" if wrong else None


def _plain(name: str, lacks: tuple[str, ...] | list[str]) -> bool:
    return 0 < len(name) <= _LONGEST and name == name.strip() and not any(one in name for one in lacks)


def _names(schema: Any, deep: int) -> Iterator[str]:
    """Of the properties of the schema, and of those that are so many levels inside."""
    if isinstance(schema, list):
        for one in schema:
            yield from _names(one, deep)
    if not isinstance(schema, Mapping):
        return
    properties = schema.get("properties")
    for name, inner in properties.items() if isinstance(properties, Mapping) else ():
        yield name
        if deep:
            yield from _names(inner, deep - 1)
    for key in ("anyOf", "oneOf", "allOf"):
        yield from _names(schema.get(key), deep)
    for key in ("items", "$defs", "definitions") if deep else ():
        inner = schema.get(key)
        parts = inner if key == "items" or not isinstance(inner, Mapping) else list(inner.values())
        yield from _names(parts, deep - 1)
