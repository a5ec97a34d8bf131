"""Bytes and moments as people read them, and bytes as they write them."""

import re

from modelkit.arguments import as_whole
from modelkit.errors import ParameterError
from runtime.quoting import quoted

_UNITS = ("B", "kB", "MB", "GB", "TB")
_SIZE = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,12}))? ?(?:([KMGT])(I)?)?B?")
_MOST_BYTES = 2**63
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def size(nbytes: int) -> str:
    """Decimal units, three figures: 1.04 MB."""
    value, units = float(nbytes), [*_UNITS]
    while value >= 999.5 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{nbytes} B" if units[0] == "B" else f"{value:.3g} {units[0]}"


def timestamp(moment_s: float) -> str:
    """ISO 8601 in UTC, whole seconds."""
    from datetime import UTC, datetime  # only here: every start reads this room

    return datetime.fromtimestamp(int(moment_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_size(value: str | int, source: str) -> int:
    """A number of bytes: an int, or a text such as 2GB, 500 MB or 1.5GiB.

    source: the option or variable that it came from, for the message. Raises ParameterError.
    """
    found = _parsed(value) if isinstance(value, str) else as_whole(value)
    if found is None or not 0 <= found < _MOST_BYTES:
        raise ParameterError(
            f"{source} is {quoted(value)}, expected a number of bytes", hint="Examples: 2GB, 500MB, 0."
        )
    return found


def _parsed(text: str) -> int | None:
    found = _SIZE.fullmatch(text.strip().upper())
    if found is None:
        return None
    whole, rest, unit, binary = found.groups()
    rest = rest or ""
    return int(whole + rest) * (1024 if binary else 1000) ** _POWERS[unit or ""] // 10 ** len(rest)
