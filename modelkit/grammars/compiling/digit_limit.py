"""Numbers that come to an end: a run of digits has a bound, as a run of blanks has.

JSON bounds neither the digits of a number nor those of its fraction, and a model that writes 0.3333 may go on
until it is cut off. The library has no way to say so in a schema (its bounds on a number leave the fraction
free and take the exponent away), so it is kept in the masks: behind MOST_DIGITS digits no token that begins
with another one may come, where anything else may. An exponent is kept so low that the number is one for who
reads it as a double. Nothing is compiled for it.

Texts are left alone: a place where a letter or a quotation mark may follow is in a text. So are digits
that must come, for the grammar leaves nothing else. A raw text of nothing but digits, which no quotation mark
ends, cannot be told from a number and is bounded with it.
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from runtime.sampling.constraint import allows

if TYPE_CHECKING:
    import llguidance

MOST_DIGITS = 80
"""Of one run. 64 bits take 20, a double as programs write it 17 and an exponent of 3, 256 bits take 78."""

_ONLY, _TEXT = "[0-9]+", r"[A-DF-Za-df-z\x22](.|\n)*"  # 1e5: an e is not text
_MORE, _LESS = [rf"[0-9]{{{count}}}(.|\n)*" for count in (1, 2, 3)], ["[0-9]", "[0-9]{2}"]
_ONE = [rf"{digit}([^0-9](.|\n)*)?" for digit in range(10)]
_EXPONENT = re.compile(rb"(-?[0-9][0-9.]*[Ee])([+-]?)([0-9]{0,3})\Z")


class DigitLimit:
    """Which tokens of one vocabulary are digits. size: bytes of a mask."""

    def __init__(self, native: "llguidance.LLTokenizer", bytes_of: Callable[[int], bytes], size: int) -> None:
        self._bytes_of = bytes_of
        masks = [_beginning(native, one)[:size] for one in (_ONLY, _TEXT, *_MORE, *_LESS, *_ONE)]
        self._only, self._text = masks[:2]
        first, second, third, one, two, *digits = map(_number, masks[2:])
        self._more = first, second & ~one, third & ~two  # so many digits at their beginning
        self._one = digits

    def bounded(self, mask: bytes, taken: Sequence[int]) -> bytes:
        """The mask behind these tokens, without more digits where there were enough."""
        run = 0
        for token in reversed(taken):
            if run >= MOST_DIGITS or not allows(self._only, token):
                break
            run += len(self._bytes_of(token))
        never = self._more[0] if run >= MOST_DIGITS else self._of_exponent(taken) if run < 4 else 0
        if not never or _number(mask) & _number(self._text):
            return mask
        left = _number(mask) & ~never
        return left.to_bytes(len(mask), "little") if left else mask

    def _of_exponent(self, taken: Sequence[int]) -> int:
        """The tokens that would make an exponent too large, where one is written."""
        tail = b"".join(map(self._bytes_of, taken[-5:]))[-5:]
        if b"e" not in tail.lower():
            return 0
        found = _EXPONENT.search(b"".join(map(self._bytes_of, taken[-3 * MOST_DIGITS :])))
        if found is None:
            return 0
        count = len(found[3])
        if count < 2:
            return self._more[2 - count]
        never = self._more[0 if count == 3 else 1]
        for digit, one in enumerate(self._one):
            if count == 2 and math.isinf(float(f"{found[0].decode()}{digit}")):
                never |= one
        return never


def _number(mask: bytes) -> int:
    return int.from_bytes(mask, "little")


def _beginning(native: "llguidance.LLTokenizer", regex: str) -> bytes:
    """The tokens that a text of this regular expression may begin with."""
    import llguidance

    grammar = llguidance.LLMatcher.grammar_from_regex(regex)
    return llguidance.LLMatcher(native, grammar, log_level=0).compute_bitmask()
