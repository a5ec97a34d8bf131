"""What a row may draw next where its answer must follow a grammar: the border between this floor, which knows
ids and masks, and whoever knows the grammar.

A request carries a Constraint; each run of it gets a Matcher of its own, which stands where the answer
stands. Masks along a block of drafts are found by going ahead and coming back (`Ahead`), so one forward pass
can judge the whole block. No MLX in Constraint and Matcher.

Invariants: a matcher that went ahead is back before anybody else sees it. A draft that the grammar refuses
ends its row's masks: the draw in its place cannot equal it, so nothing behind it is ever used.

Arrays: B rows, T places of a block, V vocabulary, W = ceil(V / 32) words.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

import mlx.core as mx

from runtime.errors import RuntimeFault

WORD = 32  # bits


class ConstraintFault(RuntimeFault):
    """A grammar that cannot go on: it became too complex, or leaves nothing that may be drawn."""


class Matcher(Protocol):
    """Where one answer stands in its grammar. Used by one thread at a time."""

    @property
    def ended(self) -> bool:
        """The answer is whole and nothing but its end can follow."""
        ...

    def mask(self) -> bytes:
        """The ids that may come next, ids that end the text included where it may end: one bit each, W words
        of 32, the lowest bit of the first word is id 0. Raises ConstraintFault.
        """
        ...

    def advance(self, token: int) -> None:
        """Take a token that `mask` allows. Raises ConstraintFault."""
        ...

    def back(self, count: int) -> None:
        """Undo the last `count` calls of `advance`; 0 puts one that has failed back to where it stood."""
        ...

    def forced(self, limit: int) -> Sequence[int]:
        """The next tokens, up to `limit`, as far as the grammar leaves one way to go on; () where it leaves
        several, or cannot go on. Asked before every step, so it must be cheap, and of all rows at once, so it
        raises nothing: the step of the others would end with it.
        """
        ...


class Constraint(Protocol):
    """A grammar, ready for use. Nothing in it changes, so any number of requests may share it."""

    def matcher(self) -> Matcher:
        """A matcher at the grammar's start. Called by the thread that submits."""
        ...


def allows(mask: bytes, token: int) -> bool:
    return token < 8 * len(mask) and bool(mask[token >> 3] >> (token & 7) & 1)


def without(mask: bytes, ids: Iterable[int]) -> bytes:
    left = bytearray(mask)
    for token in ids:
        if token < 8 * len(mask):
            left[token >> 3] &= ~(1 << (token & 7))
    return bytes(left)


class Ahead:
    """The masks of several rows, now and along drafts. Made anew for every step.

    matchers: None for a row without one, which may draw anything. failed: what went wrong, by row; such a row
    may draw anything as well.
    """

    def __init__(self, matchers: Sequence[Matcher | None], vocab_size: int) -> None:
        self.failed: dict[int, ConstraintFault] = {}
        self._matchers = matchers
        self._size = vocab_size
        self._paths = [_Path() for _ in matchers]

    def last(self, drafts: Sequence[Sequence[int]]) -> mx.array:
        """bool [B, 1, V]: what may follow all of each row's drafts."""
        masks = [self._masks(row, its)[len(its) : len(its) + 1] for row, its in enumerate(drafts)]
        return unpacked(masks, 1, self._size)

    def block(self, drafts: Sequence[Sequence[int]], width: int) -> mx.array:
        """bool [B, T, V]: what may follow each row's first 0, 1, ... drafts. `width` is T."""
        return unpacked([self._masks(row, its) for row, its in enumerate(drafts)], width, self._size)

    def now(self, row: int) -> bytes | None:
        """The row's mask where it stands; None where it may draw anything."""
        masks = self._masks(row, ())
        return masks[0] if masks else None

    def allowed(self, row: int, drafts: Sequence[int]) -> int:
        """How many of these drafts the row's grammar allows, one after the other."""
        if self._matchers[row] is None:
            return len(drafts)
        self._masks(row, drafts)
        return len(self._paths[row].tokens)

    def forced(self, row: int, limit: int) -> Sequence[int]:
        """The row's next tokens, where its grammar leaves no choice."""
        matcher = self._matchers[row]
        return () if matcher is None or row in self.failed else matcher.forced(limit)

    def _masks(self, row: int, drafts: Sequence[int]) -> list[bytes]:
        """The masks at the places of a row's drafts, as far as the grammar allows them; [] without one."""
        matcher, path = self._matchers[row], self._paths[row]
        if matcher is None or row in self.failed:
            return []
        try:
            path.follow(matcher, drafts)
        except ConstraintFault as fault:
            if not path.masks:
                self.failed[row] = fault
                return []
            # Ahead of where the row stands: plain decoding would not have met it yet, so drafts end here.
            del path.tokens[len(path.masks) - 1 :]
        return path.masks


class _Path:
    """Drafts that a grammar allows, and the mask before each and behind the last; none behind its end."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.masks: list[bytes] = []

    def follow(self, matcher: Matcher, drafts: Sequence[int]) -> None:
        """Become the path along `drafts`. What is known already, such as from drafting, is kept."""
        pairs = enumerate(zip(self.tokens, drafts, strict=False))
        known = next((at for at, (old, new) in pairs if old != new), min(len(self.tokens), len(drafts)))
        del self.tokens[known:], self.masks[known + 1 :]
        if known == len(drafts) and self.masks[known:]:
            return
        taken = 0
        try:
            for token in self.tokens:
                matcher.advance(token)
                taken += 1
            while self._look(matcher) and self._may_take(drafts):
                matcher.advance(drafts[taken])
                self.tokens.append(drafts[taken])
                taken += 1
        finally:
            matcher.back(taken)

    def _look(self, matcher: Matcher) -> bool:
        """Learn the mask at this place; False where there is none because the answer is whole."""
        if len(self.masks) == len(self.tokens):
            if matcher.ended:
                return False
            self.masks.append(matcher.mask())
        return True

    def _may_take(self, drafts: Sequence[int]) -> bool:
        at = len(self.tokens)
        return at < len(drafts) and allows(self.masks[at], drafts[at])


def unpacked(masks: Sequence[Sequence[bytes]], width: int, size: int) -> mx.array:
    """bool [B, T, V]; places without a mask allow everything."""
    import numpy as np  # only here: its import takes as long as a small model's whole start

    packed = np.full((len(masks), width, -(-size // WORD) * WORD // 8), 0xFF, dtype=np.uint8)
    for row, its in enumerate(masks):
        for place, mask in enumerate(its[:width]):
            packed[row, place] = np.frombuffer(mask, dtype=np.uint8)
    # By the host: in MLX the same is several passes over words of 32 bits, and ten times slower.
    bits = np.unpackbits(packed, axis=-1, count=size, bitorder="little")
    return mx.array(bits).view(mx.bool_)
