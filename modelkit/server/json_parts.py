"""JSON a part at a time.

The writer of JSON holds the interpreter's lock until a value is written, in whatever thread it runs: for 2048
vectors of 1024 numbers that is most of a second, in which no stream goes on.
"""

import json
from collections.abc import Iterator
from typing import Any

_PART = 4096  # values: written in a millisecond or two


def large(value: Any) -> bool:
    """Is it written in more than one part?"""
    return _weight(value) > _PART


def in_parts(value: Any) -> bytes:
    """The JSON text of a value."""
    return "".join(_parts(value)).encode()


def _parts(value: Any) -> Iterator[str]:
    if _weight(value) <= _PART:
        yield _text(value)
    elif isinstance(value, dict):
        for place, (field, inner) in enumerate(value.items()):
            yield f"{',' if place else '{'}{_text(field)}:"
            yield from _parts(inner)
        yield "}"
    else:
        before = "["
        for group in _groups(value):
            yield before
            if len(group) == 1 and isinstance(group[0], dict | list):
                yield from _parts(group[0])
            else:
                yield _text(group)[1:-1]
            before = ","
        yield "]"


def _groups(values: list[Any]) -> Iterator[list[Any]]:
    """Neighbours that are written together; what is large is alone."""
    if not isinstance(values[0], dict | list):  # nor are others: these lists are of one kind
        yield from (values[at : at + _PART] for at in range(0, len(values), _PART))
        return
    group, weight = list[Any](), 0
    for one in values:
        more = 1 + _weight(one)
        if group and weight + more > _PART:
            yield group
            group, weight = [], 0
        group.append(one)
        weight += more
    if group:
        yield group


def _weight(value: Any) -> int:
    """How many values are in it; of a large one, some number above _PART."""
    count, left = 0, [value]
    while left and count <= _PART:
        one = left.pop()
        if isinstance(one, dict):
            one = one.values()
        elif not isinstance(one, list):
            continue
        count += len(one)
        if count <= _PART:
            left += [inner for inner in one if isinstance(inner, dict | list)]
    return count


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
