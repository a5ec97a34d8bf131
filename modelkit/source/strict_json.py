"""JSON of sources: read strictly (`modelkit.json_text`), and bounded in size and depth."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from modelkit.errors import MalformedFile
from modelkit.json_text import Pairs, parse_strictly, unique_keys
from modelkit.python_faults import fault
from modelkit.source.sniff import refuse_stand_in
from modelkit.source.tree import open_regular

LIMIT_BYTES = 10_000_000
DEPTH = 64

_NONFINITE = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


def read_json(
    path: Path,
    *,
    limit: int = LIMIT_BYTES,
    depth: int = DEPTH,
    nonfinite: bool = False,
    label: str | None = None,
) -> dict[str, Any]:
    """The JSON object in the file at `path`; `label` names the file in messages.

    With `nonfinite`, infinities and NaN are read in both spellings that configs use: bare `Infinity` (older
    files, not JSON) and `{"__float__": "Infinity"}` (transformers 5). Without it both are refused or left as
    they stand.

    Raises MalformedFile for anything else than one strict JSON object of at most `limit` bytes and `depth`
    levels.
    """
    label = label or str(path)
    with open_regular(path, label) as file:
        data = file.read(limit + 1)
    refuse_stand_in(data, label)
    if len(data) > limit:
        raise MalformedFile(f"{label} is larger than {limit:,} bytes, the most that is read of such a file")
    value = parse_json(data, label, depth=depth, nonfinite=nonfinite)
    if not isinstance(value, dict):
        raise MalformedFile(f"{label} holds a JSON {_kind(value)}; an object was expected")
    return value


def parse_json(data: bytes, label: str, *, depth: int = DEPTH, nonfinite: bool = False) -> Any:
    """The value that `data` spells in strict JSON. Raises MalformedFile, naming `label`."""

    def pairs(items: Pairs) -> Any:
        if len(items) == 1 and items[0][0] == "__float__":
            return _constant(items[0][1])
        return unique_keys(items)

    try:
        value = parse_strictly(data, pairs=pairs, constant=_constant) if nonfinite else parse_strictly(data)
        if data.count(b"{") + data.count(b"[") > depth:  # else it is too small to be too deep
            _bound(value, depth)
    except RecursionError as error:
        raise MalformedFile(f"{label} is nested more than {depth} levels deep") from error
    except ValueError as error:  # undecodable bytes and JSON errors are ValueErrors too
        raise MalformedFile(f"{label} is not valid JSON: {fault(error)}") from error
    return value


def _constant(spelled: object) -> float:
    if not isinstance(spelled, str) or spelled not in _NONFINITE:
        raise ValueError("`__float__` must be Infinity, -Infinity or NaN")
    return _NONFINITE[spelled]


def _bound(value: object, depth: int) -> None:
    """Raise RecursionError beyond so many levels; with recursion the file would choose the stack's depth."""
    level: list[object] = [value]
    for left in range(depth, -1, -1):
        if left == 0 and any(isinstance(inner, dict | list) for inner in level):
            raise RecursionError
        level = [inner for outer in level for inner in _inside(outer)]


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _kind(value: object) -> str:
    names: dict[type, str] = {list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")
