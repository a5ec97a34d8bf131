"""Numbers that come to an end: a run of digits has a bound, as a run of blanks has.

JSON bounds neither the digits of a number nor those of its fraction, and a model that writes 0.3333 may go on
until it is cut off. The library has no way to say so in a schema (its bounds on a number leave the fraction
free and take the exponent away), so it is kept in the masks: behind MOST_DIGITS digits no token that begins
with another one may come, where anything else may. Nothing is compiled for it.

Texts are left alone: a place where a letter or a quotation mark may follow is in a text. So are digits
that must come, for the grammar leaves nothing else. A raw text of nothing but digits, which no quotation mark
ends, cannot be told from a number and is bounded with it.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from runtime.sampling.constraint import allows

if TYPE_CHECKING:
    import llguidance

MOST_DIGITS = 80
"""Of one run. 64 bits take 20, a double as programs write it 17 and an exponent of 3, 256 bits take 78."""

_ONLY, _BEGINS, _TEXT = "[0-9]+", r"[0-9](.|\n)*", r"[A-DF-Za-df-z\x22](.|\n)*"  # 1e5: an e is no text


class Digits:
    """Which tokens of one vocabulary are digits. size: bytes of a mask."""

    def __init__(self, native: "llguidance.LLTokenizer", bytes_of: Callable[[int], bytes], size: int) -> None:
        self._bytes_of = bytes_of
        self._only, self._begins, self._text = (
            _beginning(native, one)[:size] for one in (_ONLY, _BEGINS, _TEXT)
        )

    def bounded(self, mask: bytes, taken: Sequence[int]) -> bytes:
        """The mask behind these tokens, without more digits where there were enough."""
        run = 0
        for token in reversed(taken):
            if run >= MOST_DIGITS or not allows(self._only, token):
                break
            run += len(self._bytes_of(token))
        if run < MOST_DIGITS or _number(mask) & _number(self._text):
            return mask
        left = _number(mask) & ~_number(self._begins)
        return left.to_bytes(len(mask), "little") if left else mask


def _number(mask: bytes) -> int:
    return int.from_bytes(mask, "little")


def _beginning(native: "llguidance.LLTokenizer", regex: str) -> bytes:
    """The tokens that a text of this regular expression may begin with."""
    import llguidance

    grammar = llguidance.LLMatcher.grammar_from_regex(regex)
    return llguidance.LLMatcher(native, grammar, log_level=0).compute_bitmask()
