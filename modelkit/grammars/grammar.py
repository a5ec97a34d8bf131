"""A form that was compiled for one model, and where an answer stands in it.

Both are all that the floor below knows of grammars: a Constraint and its Matcher. The grammar works on bytes,
so any way to cut an allowed text into tokens is allowed; added tokens are not, but for those that end a text
and those that a whole answer's grammar names (thinking, calls of tools, a form).
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from modelkit.grammars.digits import Digits
from modelkit.grammars.refusals import one_line
from runtime.sampling.constraint import WORD, ConstraintFault

if TYPE_CHECKING:
    import llguidance


class Grammar:
    """A compiled form: a Constraint of the floor below. never: bits of ids that no mask has.

    notes: sentences on what it does not enforce. digits: bounds the numbers in it. added: ids of tokens that
    are no text to the library.
    """

    def __init__(
        self,
        native: "llguidance.LLMatcher",
        vocab_size: int,
        never: bytes = b"",
        notes: tuple[str, ...] = (),
        digits: Digits | None = None,
        added: frozenset[int] = frozenset(),
    ) -> None:
        self.notes = notes
        self._native, self._bytes, self._never = native, mask_bytes(vocab_size), never
        self._digits, self._added = digits, added

    def matcher(self) -> "GrammarMatcher":
        return GrammarMatcher(self._native, self._bytes, self._never, self._digits, self._added)


class GrammarMatcher:
    """Where one answer stands in its grammar: a Matcher of the floor below."""

    def __init__(
        self,
        start: "llguidance.LLMatcher",
        mask_bytes: int,
        never: bytes,
        digits: Digits | None,
        added: frozenset[int],
    ) -> None:
        self._start, self._native, self._digits = start, start.deep_copy(), digits
        self._bytes, self._never, self._added = mask_bytes, never, added
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
        mask = self._allowed()
        if self._native.is_error() or not any(mask):
            raise ConstraintFault(f"the answer's grammar cannot go on: {self._reason()}")
        return self._digits.bounded(mask, self._taken) if self._digits else mask

    def advance(self, token: int) -> None:
        if not self._native.consume_token(token):
            raise ConstraintFault(f"the answer's grammar cannot go on behind token {token}: {self._reason()}")
        self._taken.append(token)
        self._forced = self._forced[1:] or None if self._forced else None

    def back(self, count: int) -> None:
        """A matcher that failed cannot go back, and one that goes back over an added token may refuse what
        it allows there: a new one is given the tokens up to that place.
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
