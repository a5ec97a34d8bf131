"""A form that was compiled for one model, and where an answer stands in it.

Both are all that the floor below knows of grammars: a Constraint and its Matcher. The grammar works on bytes,
so any way to cut an allowed text into tokens is allowed; added tokens are not, but for those that end a text
and those that a whole answer's grammar names (thinking, calls of tools, a form).

All answers of one form share what the library has found of its texts, which grows with what is written and
is bounded (`matchers.LIMITS`). Where that bound is met the form is compiled again, and the answer goes on. So
it is where the library broke in one answer, which leaves what all share broken: only that answer ends.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from modelkit.grammars.compiling.digit_limit import DigitLimit
from modelkit.grammars.compiling.refusals import one_line
from runtime.sampling.constraint import WORD, ConstraintFault

if TYPE_CHECKING:
    import llguidance


_T = TypeVar("_T")
_SPENT = "lexer error: too many states", "PoisonError", "has_pending_lexeme_bytes"  # the library's words


class Grammar:
    """A compiled form: a Constraint of the floor below. never: bits of ids that no mask has.

    notes: sentences on what it does not enforce. digits: bounds the numbers in it. added: ids of tokens that
    are not text to the library, or end one. again: compiles the same.
    """

    def __init__(
        self,
        native: "llguidance.LLMatcher",
        vocab_size: int,
        never: bytes = b"",
        notes: tuple[str, ...] = (),
        digits: DigitLimit | None = None,
        added: frozenset[int] = frozenset(),
        again: "Callable[[], llguidance.LLMatcher] | None" = None,
    ) -> None:
        self.notes = notes
        self.start, self.bytes, self.never = native, mask_bytes(vocab_size), never
        self.digits, self.added = digits, added
        self._again, self._lock = again, threading.Lock()

    def matcher(self) -> "GrammarMatcher":
        return GrammarMatcher(self)

    def renewed(self, spent: "llguidance.LLMatcher") -> "llguidance.LLMatcher":
        """A start in the place of this one, which has found all that it may."""
        with self._lock:
            if self.start is spent and self._again is not None:
                self.start = self._again()
            return self.start


class GrammarMatcher:
    """Where one answer stands in its grammar: a Matcher of the floor below."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar, self._digits = grammar, grammar.digits
        self._bytes, self._never, self._added = grammar.bytes, grammar.never, grammar.added
        self._start = grammar.start
        self._native = self._start.deep_copy()
        self._taken: list[int] = []
        self._forced: list[int] | None = None  # None: not asked for at this place

    @property
    def ended(self) -> bool:
        if self._native.is_error():
            return False
        return self._native.is_stopped() or (bool(self._never) and self._whole())

    def _whole(self) -> bool:
        """Can only an end follow? Asked where the vocabulary has none, so that nobody could draw it."""
        return self._native.is_accepting() and not any(self._allowed())

    def _allowed(self) -> bytes:
        mask = self._native.compute_bitmask()[: self._bytes]
        if not self._never:
            return mask
        return bytes(allowed & ~no for allowed, no in zip(mask, self._never, strict=True))

    def mask(self) -> bytes:
        mask = self._step(self._allowed)
        if self._native.is_error() or not any(mask):
            raise ConstraintFault(f"the answer's grammar cannot go on: {self._reason()}")
        return self._digits.bounded(mask, self._taken) if self._digits else mask

    def advance(self, token: int) -> None:
        if not self._step(lambda: self._native.consume_token(token)):
            reason = self._reason()
            if not self._allows(token):
                # Nothing that it allows can be drawn: of logits that are all minus infinity any may be.
                reason = "of the tokens that it allows here the model writes none (suppress_tokens)"
                raise ConstraintFault(f"the answer's grammar cannot go on: {reason}")
            raise ConstraintFault(f"the answer's grammar cannot go on behind token {token}: {reason}")
        self._taken.append(token)
        self._forced = self._forced[1:] or None if self._forced else None

    def _allows(self, token: int) -> bool:
        """Was it in the mask? Asked once the native matcher has refused it, and knows no more."""
        self._native = self._start.deep_copy()
        self._native.consume_tokens(self._taken)
        mask = self._allowed()
        return token < 8 * len(mask) and bool(mask[token // 8] >> token % 8 & 1)

    def back(self, count: int) -> None:
        """A matcher that failed cannot go back, and one that goes back over an added token, or over an end
        that is a text as well, may refuse what it allows there: a new one is given the tokens up to that
        place.
        """
        if count == 0 and not self._native.is_error():
            return
        kept = len(self._taken) - count
        sound = not self._native.is_error() and self._added.isdisjoint(self._taken[kept:])
        del self._taken[kept:]
        self._forced = None
        if not sound or not self._native.rollback(count):
            self._native = self._start.deep_copy()
            self._native.consume_tokens(self._taken)

    def forced(self, limit: int) -> Sequence[int]:
        if self._forced is None:
            self._forced = [] if self._native.is_error() else self._native.compute_ff_tokens()
        return self._forced[:limit]

    def _step(self, taken: Callable[[], _T]) -> _T:
        found = taken()
        for _ in range(2):  # another answer may have compiled it, and come to the end of it
            if not self._spent():
                break
            found = taken()
        return found

    def _spent(self) -> bool:
        """Did it fail for what all answers of this form share? Then it stands there anew."""
        if not self._native.is_error() or not any(words in self._native.get_error() for words in _SPENT):
            return False
        self._start = self._grammar.renewed(self._start)
        self._native = self._start.deep_copy()
        self._native.consume_tokens(self._taken)
        return True

    def _reason(self) -> str:
        return one_line(self._native.get_error()) or "no token is left to choose from"


def mask_bytes(size: int) -> int:
    """Of a mask for so many ids."""
    return -(-size // WORD) * WORD // 8


def bits_of(ids: Iterable[int], size: int) -> bytes:
    """A mask of exactly these ids, as far as one for `size` ids has a bit for them."""
    bytes_ = mask_bytes(size)
    return as_bits(one for one in ids if one < 8 * bytes_).to_bytes(bytes_, "little")


def as_bits(ids: Iterable[int]) -> int:
    """The bits of a mask."""
    return sum(1 << one for one in set(ids))
