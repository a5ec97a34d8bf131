"""Frozen records from JSON's values, strictly: the fields' own types say what may stand there."""

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from runtime.quoting import quoted


def record(kind: type[Any], value: object, where: str) -> object:
    """A dataclass from an object with some of its fields as keys. Raises ValueError."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} is {quoted(value)}, expected an object")
    hints = _hints(kind)
    known = {field.name: field for field in fields(kind)}
    for key in value:
        if key not in known:
            raise ValueError(f"{where} has an unknown key {quoted(key)}; known: {', '.join(known)}")
    for name, field in known.items():
        if name not in value and field.default is MISSING:
            raise ValueError(f"{where} has no {name}")
    return kind(**{key: _value(hints[key], given, f"{where}.{key}") for key, given in value.items()})


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    """Of a dataclass: each time they are asked for, the texts of its fields' types are evaluated anew."""
    return get_type_hints(kind)


def _value(hint: Any, value: object, where: str) -> object:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _one_of(get_args(hint), value, where)
    if origin is Literal:
        if value not in get_args(hint) or not isinstance(value, str):
            raise ValueError(f"{where} is {quoted(value)}, expected one of {', '.join(get_args(hint))}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ValueError(f"{where} is {quoted(value)}, expected a list")
        return tuple(_value(get_args(hint)[0], one, f"{where}[{at}]") for at, one in enumerate(value))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise ValueError(f"{where} is {quoted(value)}, expected an object")
        return value
    if isinstance(hint, type) and is_dataclass(hint):
        return record(hint, value, where)
    if type(value) is not hint:
        raise ValueError(f"{where} is {quoted(value)}, expected {_NAMES[hint]}")
    return value


_NAMES = {str: "a text", bool: "true or false", int: "a whole number"}


def _one_of(hints: tuple[Any, ...], value: object, where: str) -> object:
    """Records that may stand in one place are told apart by their `kind`."""
    if value is None and type(None) in hints:
        return None
    given = [hint for hint in hints if hint is not type(None)]
    if len(given) == 1:
        return _value(given[0], value, where)
    kinds = {get_args(_hints(hint)["kind"])[0]: hint for hint in given}
    kind = value.get("kind") if isinstance(value, Mapping) else None
    if kind not in kinds:
        raise ValueError(f"{where}.kind is {quoted(kind)}, expected one of {', '.join(kinds)}")
    return record(kinds[kind], value, where)
