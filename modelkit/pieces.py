"""Tokens in, pieces of an answer out: text, the ids that it is made of, and special tokens where they stand.

Invariants, at the end: the texts of all pieces joined are the answer's text, their ids all ids that were
pushed, in order, and a special token is alone in its piece.
"""

from collections.abc import Sequence

from modelkit.tokenizer import TextStream, Tokenizer
from runtime.engine.request import TokenLogprob
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """What came next of an answer."""

    text: str
    """Whole characters, special tokens left out; "" for a special token, and for one that completes none."""

    ids: tuple[int, ...]
    """The token that it came with; () for what the end let out."""

    special: str | None = None
    """A special token's own text, such as "<|channel|>", where the piece is one."""

    logprobs: tuple[TokenLogprob, ...] = ()
    """One for each of the ids, where they were asked for."""


class Pieces:
    """One answer. continuing: as in TextStream."""

    def __init__(self, tokenizer: Tokenizer, *, continuing: bool = False) -> None:
        self._tokenizer, self._special = tokenizer, tokenizer.special_ids
        self._text = TextStream(tokenizer, continuing=continuing)

    def push(self, token: int, logprob: TokenLogprob | None = None) -> Piece:
        logprobs = () if logprob is None else (logprob,)
        if token in self._special:
            return Piece("", (token,), self._tokenizer.id_to_piece(token), logprobs)
        return Piece(self._text.push(token), (token,), None, logprobs)

    def texts(self, tokens: Sequence[int]) -> list[str] | None:
        """What `push` of each would have as its text; None, and nothing is pushed, where one of them is a
        special token.
        """
        return self._text.push_each(tokens) if self._special.isdisjoint(tokens) else None

    def finish(self) -> list[Piece]:
        """What was held back: an unfinished character."""
        text = self._text.finish()
        return [Piece(text, ())] if text else []
