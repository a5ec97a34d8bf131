"""Tokens in, pieces of an answer out: text, the ids that it is made of, and special tokens where they stand.

Invariants, at the end: the texts of all pieces joined are the answer's text, their ids all ids that were
pushed, in order, and a special token is alone in its piece. A token has its own text in its piece, also where
that is known late (bytes that fall back: a run of them is text once a token behind it is there).
"""

import codecs
from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat

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
        self._held: list[Piece] = []  # without a text so far
        self._begun = False  # has any text come?

    def push(self, token: int, logprob: TokenLogprob | None = None) -> list[Piece]:
        """What this token lets out: often its own piece, sometimes none, sometimes more."""
        logprobs = () if logprob is None else (logprob,)
        if token in self._special:
            return [*self._let_go(), Piece("", (token,), self._tokenizer.id_to_piece(token), logprobs)]
        return self._out(Piece(self._text.push(token), (token,), None, logprobs))

    def push_each(
        self, tokens: Sequence[int], logprobs: Sequence[TokenLogprob]
    ) -> tuple[list[str], list[int], list[TokenLogprob]] | None:
        """Texts, ids and log-probabilities of what `push` of each would let out; None, and nothing is pushed,
        where one of them is a special token. logprobs: one for each, or none.
        """
        if not self._special.isdisjoint(tokens):
            return None
        texts = self._text.push_each(tokens)
        if not self._held and "" not in texts:  # as nearly always
            self._begun = True
            return texts, [*tokens], [*logprobs]
        own = [(one,) for one in logprobs] or repeat(())
        come = map(Piece, texts, ((token,) for token in tokens), repeat(None), own)
        out = [piece for one in come for piece in self._out(one)]
        ids, told = (piece.ids[0] for piece in out), (one for piece in out for one in piece.logprobs)
        return [piece.text for piece in out], [*ids], [*told]

    def finish(self) -> list[Piece]:
        """What was held back: tokens, and an unfinished character."""
        text = self._text.finish()
        return self._out(Piece(text, ())) if text else self._let_go()

    def _out(self, piece: Piece) -> list[Piece]:
        if not piece.text:
            self._held.append(piece)
            return []
        out = self._placed(self._let_go(), piece) if self._held else [piece]
        self._begun = True
        return out

    def _let_go(self) -> list[Piece]:
        held, self._held = self._held, []
        return held

    def _placed(self, held: Sequence[Piece], last: Piece) -> list[Piece]:
        """Each with its own text, where that of the last one begins with that of those before it."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            texts = [decoder.decode(self._tokenizer.bytes_of(one.ids[0])) for one in held]
            before = "".join(texts) + decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return [*held, last]
        if not self._begun and before.startswith(" ") and self._lacks_blank(before, last):
            before, texts = before[1:], _without_blank(texts)
        if not last.text.startswith(before):
            return [*held, last]
        rest = replace(last, text=last.text[len(before) :])
        placed = [replace(one, text=text) for one, text in zip(held, texts, strict=True)]
        return [*placed, rest] if rest.text or rest.ids else placed

    def _lacks_blank(self, before: str, last: Piece) -> bool:
        """Does what has come lack the blank in front, as many tokenizers leave it out of an answer?"""
        own = self._tokenizer.bytes_of(last.ids[0]).decode("utf-8", "replace") if last.ids else ""
        return not last.text.startswith(before) or last.text == (before + own)[1:]


def _without_blank(texts: Sequence[str]) -> list[str]:
    first = next(place for place, text in enumerate(texts) if text)
    return [*texts[:first], texts[first][1:], *texts[first + 1 :]]
