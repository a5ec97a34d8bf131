"""JSON as the store needs it: written in exactly one way, and read strictly.

Out: keys sorted, no blanks, UTF-8, so equal values have equal bytes and therefore equal digests. In: the text
may come from anywhere. Size is bounded before parsing; duplicate keys, NaN, endless depth and numbers of
thousands of digits are errors, not surprises.
"""

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from modelkit.errors import StoreError
from modelkit.python_faults import fault

JsonObject = dict[str, Any]


def canonical(value: Mapping[str, Any]) -> bytes:
    """The one spelling of a JSON object."""
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode()
    except (TypeError, ValueError, RecursionError) as error:  # lone surrogates, NaN, depth, no JSON type
        raise StoreError(f"a value that JSON cannot hold: {fault(error)}") from error


def parse_object(raw: bytes, what: str, limit_bytes: int) -> JsonObject:
    """The JSON object in `raw`. `what` names it in the StoreError that everything else raises."""
    if len(raw) > limit_bytes:
        raise StoreError(f"{what} is {len(raw):,} bytes long; at most {limit_bytes:,} are expected")
    try:
        value = json.loads(raw, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{what} is not sound JSON: {fault(error)}") from error
    if not isinstance(value, dict):
        raise StoreError(f"{what} is not a JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> JsonObject:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return value


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")
