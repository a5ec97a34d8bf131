"""JSON as the store needs it: written in exactly one way, and read strictly.

Out: keys sorted, no blanks, UTF-8, so equal values have equal bytes and therefore equal digests. In: the text
may come from anywhere, so its size is bounded before it is parsed, strictly (`modelkit.json_text`).
"""

import json
from collections.abc import Mapping
from typing import Any

from modelkit.errors import StoreError
from modelkit.json_text import parse_strictly
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
        value = parse_strictly(raw)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{what} is not valid JSON: {fault(error)}") from error
    if not isinstance(value, dict):
        raise StoreError(f"{what} is not a JSON object")
    return value
