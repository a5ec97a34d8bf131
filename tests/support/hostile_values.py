"""Values that no field of a config.json should ever hold, and every place where one could stand."""

import ast
import math
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

Path = tuple[str, ...]
VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    3,
    0.5,
    1e-300,
    1e9,
    1e300,
    math.nan,
    math.inf,
    2**31,
    10**5000,
    "",
    "x" * 100_000,
    [],
    [0] * 5000,
    {},
    {"x": {"y": [1, 2]}},
)


def places(config: Mapping[str, Any], under: Path = ()) -> Iterator[Path]:
    """The path of every field, blocks and what is in them."""
    for name, value in config.items():
        if name in ("vision_config", "audio_config"):
            continue
        yield (*under, name)
        if isinstance(value, Mapping):
            yield from places(value, (*under, name))


def put(config: Mapping[str, Any], path: Path, value: Any) -> dict[str, Any]:
    """The config with this value in this place."""
    name, rest = path[0], path[1:]
    return {**config, name: put(config[name], rest, value) if rest else value}


def names_in(source: pathlib.Path) -> set[str]:
    """Every word in a family's file that could be the name of a field."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    words = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return {word for word in words if isinstance(word, str) and re.fullmatch(r"[a-z][a-z0-9_]{3,}", word)}
