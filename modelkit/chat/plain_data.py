"""Plain data: what may be handed to a template.

A template can call the methods of whatever it is given, so it is given fresh copies made of JSON's own types
and nothing else.
"""

import math
from collections.abc import Mapping
from typing import Any

from modelkit.arguments import refused
from modelkit.errors import RequestError
from runtime.quoting import quoted

DEPTH = 64
_MOST_BITS = 4096  # Python prints no number of more than 4,300 digits


def plain(value: object, where: str, depth: int = DEPTH) -> Any:
    """A copy of `value` in None, bool, int, float, str, list and dict with text keys.

    Subclasses (enums, numpy's text) come back as their plain type. Raises RequestError, naming `where`, for
    anything else, for NaN and infinities, and for more than `depth` levels.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        if value.bit_length() > _MOST_BITS:
            raise RequestError(f"{where} holds a number of more than {_MOST_BITS:,} bits")
        return int.__int__(value)
    if isinstance(value, float) and math.isfinite(value):
        return float.__float__(value)
    if depth == 0:
        raise RequestError(f"{where} is nested more than {DEPTH} levels deep")
    if isinstance(value, list | tuple):
        return [plain(item, where, depth - 1) for item in value]
    if isinstance(value, Mapping):
        return {_key(key, where): plain(item, where, depth - 1) for key, item in value.items()}
    raise RequestError(f"{where} holds {quoted(value)}; only JSON values can be put into a prompt")


def _key(key: object, where: str) -> str:
    if not isinstance(key, str):
        raise refused(f"a key of {where}", key, "a text: JSON objects have no others")
    return str.__str__(key)
