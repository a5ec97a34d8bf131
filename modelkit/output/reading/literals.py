"""Numbers and words that are values, as models write them, in JSON."""

import json
import re
from math import isfinite

LONGEST = 1_000  # Python reads no whole number of more than 4,300 digits
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WHOLE = re.compile(r"[-+]?0([xX](_?[0-9a-fA-F])+|[oO](_?[0-7])+|[bB](_?[01])+)")
_DIGITS = r"[0-9](_?[0-9])*"
_DECIMAL = re.compile(rf"[-+]?({_DIGITS}(\.({_DIGITS})?)?|\.{_DIGITS})([eE][-+]?{_DIGITS})?")
_LITERALS = {
    "true": "true",
    "false": "false",
    "null": "null",
    "True": "true",
    "False": "false",
    "None": "null",
    "none": "null",
    "nil": "null",
}


def scalar(written: str) -> str | None:
    """The JSON of a number or a word; None where it is neither."""
    if len(written) <= LONGEST and _NUMBER.fullmatch(written):
        return written
    return _LITERALS.get(written)


def number(written: str) -> str | None:
    """The JSON of a number as only Python writes it: `0x1f`, `1_000`, `.5`, `+3`."""
    if _WHOLE.fullmatch(written):
        return str(int(written, 0))
    if not _DECIMAL.fullmatch(written):
        return None
    digits = written.replace("_", "").lstrip("+")
    if digits.lstrip("-").isdigit():
        return str(int(digits))
    return json.dumps(float(digits)) if isfinite(float(digits)) else None
