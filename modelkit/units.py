"""Bytes and moments as people read them."""

from datetime import UTC, datetime

_UNITS = ("B", "kB", "MB", "GB", "TB")


def size(nbytes: int) -> str:
    """Decimal units, three figures: 1.04 MB."""
    value, units = float(nbytes), [*_UNITS]
    while value >= 999.5 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{nbytes} B" if units[0] == "B" else f"{value:.3g} {units[0]}"


def timestamp(moment_s: float) -> str:
    """ISO 8601 in UTC, whole seconds."""
    return datetime.fromtimestamp(int(moment_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
