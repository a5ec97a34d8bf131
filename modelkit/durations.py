"""Lengths of time as people and programs write them: seconds, or Go's durations ("5m", "1h30m", "1.5s").

The one reader for all that says how long a model stays loaded: requests of every dialect, options, and the
environment. A length below zero means for ever, which is the float infinity, and so does one that no clock
has a date behind. And the one for how long a server asks to wait.
"""

import math
import re

from modelkit.arguments import refused

FOR_EVER = math.inf

_LONGEST_S = 290 * 365 * 86400.0  # about the longest time that Go can say

_LONGEST_TEXT = 64
_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_UNIT = "|".join(_UNITS_S)
_NUMBER = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_DURATION = re.compile(rf"([+-]?)((?:{_NUMBER}(?:{_UNIT}))+|{_NUMBER})")
_SECONDS = re.compile(r"[0-9]{1,9}")
_PART = re.compile(rf"({_NUMBER})({_UNIT})")
EXPECTED = "seconds, or a duration such as 5m, 1h30m or 0; a negative one means forever"


def read_keep_alive(value: object, where: str) -> float:
    """Seconds from 0 on, or FOR_EVER. where: what to call it in the RequestError for anything else."""
    seconds = _seconds(value)
    if seconds is None or math.isnan(seconds):
        raise refused(where, value, EXPECTED)
    return seconds if 0 <= seconds <= _LONGEST_S else FOR_EVER


def read_retry_after(said: str | None) -> float | None:
    """Seconds from 0 on, of a Retry-After, which says how many or a date (RFC 9110, 10.2.3); None where it
    says neither.
    """
    text = (said or "").strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    from datetime import UTC, datetime  # both only here: 18 modules, which every start would read
    from email.utils import parsedate_to_datetime

    try:
        until = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max((until - datetime.now(UTC)).total_seconds(), 0.0)


def _seconds(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return float(value) if abs(value) < 2**53 else FOR_EVER  # of either sign
    if isinstance(value, float):
        return value
    found = _DURATION.fullmatch(value) if isinstance(value, str) and len(value) <= _LONGEST_TEXT else None
    if found is None:
        return None
    sign, digits = found.groups()
    parts = _PART.findall(digits)
    seconds = sum(float(number) * _UNITS_S[unit] for number, unit in parts) if parts else float(digits)
    return -seconds if sign == "-" else seconds
