"""Values as Go's encoder writes them: no key for what is empty, times in nanoseconds, one line per object."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from modelkit.server.frames import in_line

FOREVER_S = 290 * 365 * 86400.0  # about the longest time that Go can say
_LAST = datetime(9999, 1, 1, tzinfo=UTC).timestamp()


def line(value: Mapping[str, Any]) -> bytes:
    """One object, and the end of its line."""
    return encoded(value) + b"\n"


def encoded(value: Mapping[str, Any]) -> bytes:
    """JSON in UTF-8, without blanks."""
    return in_line(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False))


def filled(value: Mapping[str, Any]) -> dict[str, Any]:
    """Without what Go's `omitempty` leaves out: null, false, 0, "", [] and {}."""
    return {key: one for key, one in value.items() if one}


def moment(seconds: float) -> str:
    """A time since 1970 as RFC 3339 with nanoseconds, in UTC."""
    whole, part = divmod(min(seconds, _LAST), 1)
    day = datetime.fromtimestamp(int(whole), UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{day}.{int(part * 1e9):09d}Z"


def nanoseconds(seconds: float) -> int:
    return max(0, round(seconds * 1e9))
