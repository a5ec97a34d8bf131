"""Tokens in, pieces of an answer out: text, the ids that it is made of, and special tokens where they stand.

Two things stand between an id and its text: ids become characters that are never cut, and a tail that may yet
become a stop string is held back. A token comes out when all text before it has, so whoever splits an answer
at its special tokens (channels, the marks of thinking and of tool calls) sees them in their places.

Invariants, at the end: the texts of all pieces joined are the answer's text, their ids all ids that were
pushed, in order, and a special token is alone in its piece.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from modelkit.tokenizer import StopStrings, TextStream, Tokenizer
from runtime.engine.request import TokenLogprob


@dataclass(frozen=True, slots=True)
class Piece:
    """What came next of an answer."""

    text: str
    """Whole characters, special tokens left out; "" for a special token, and for one that completes none."""

    ids: tuple[int, ...]
    """The tokens whose text begins in this piece; () where it goes on with that of the piece before."""

    special: str | None = None
    """A special token's own text, such as "<|channel|>", where the piece is one."""

    logprobs: tuple[TokenLogprob, ...] = ()
    """One for each of the ids, where they were asked for."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A token that has not come out. Its text is that of the characters [start, stop) of all text."""

    id: int
    logprob: TokenLogprob | None
    start: int
    stop: int


class Pieces:
    """One answer. continuing: as in TextStream."""

    def __init__(self, tokenizer: Tokenizer, stops: StopStrings, *, continuing: bool = False) -> None:
        self._tokenizer, self._special = tokenizer, tokenizer.special_ids
        self._text = TextStream(tokenizer, continuing=continuing)
        self._stops = stops
        self._held: deque[_Held] = deque()
        self._made = 0  # characters that tokens have made, and those that have come out
        self._given = 0

    @property
    def matched(self) -> str | None:
        """The stop string that ended the answer, if one did."""
        return self._stops.matched

    def push(self, token: int, logprob: TokenLogprob | None = None) -> tuple[list[Piece], bool]:
        """What this token lets out, and whether a stop string was found: nothing comes after that."""
        text = self._text.push(token)
        self._held.append(_Held(token, logprob, self._made, self._made + len(text)))
        self._made += len(text)
        text, ended = self._stops.push(text)
        return self._out(text, rest=ended), ended

    def finish(self) -> list[Piece]:
        """What was held back: an unfinished character, and a tail that became no stop string."""
        text, ended = self._stops.push(self._text.finish())
        return self._out(text if ended else text + self._stops.finish()[0], rest=True)

    def _out(self, text: str, *, rest: bool) -> list[Piece]:
        """`text` comes out, and the tokens that it reaches; with `rest`, all others as well."""
        begin = at = self._given
        self._given += len(text)
        pieces: list[Piece] = []
        plain: list[_Held] = []
        while self._held and (rest or self._reached(self._held[0])):
            token = self._held.popleft()
            if token.id not in self._special:
                plain.append(token)
                continue
            before = min(max(token.start, at), self._given)
            pieces += _piece(text[at - begin : before - begin], plain)
            pieces.append(self._marker(token))
            plain, at = [], before
        return pieces + _piece(text[at - begin :], plain)

    def _reached(self, token: _Held) -> bool:
        """Has all text before it come out, and the beginning of its own?"""
        return token.start < self._given or token.start == token.stop == self._given

    def _marker(self, token: _Held) -> Piece:
        return Piece("", (token.id,), self._tokenizer.id_to_piece(token.id), _logprobs([token]))


def _piece(text: str, tokens: Sequence[_Held]) -> list[Piece]:
    if not text and not tokens:
        return []
    return [Piece(text, tuple(token.id for token in tokens), None, _logprobs(tokens))]


def _logprobs(tokens: Sequence[_Held]) -> tuple[TokenLogprob, ...]:
    return tuple(token.logprob for token in tokens if token.logprob is not None)
