"""Log-probabilities as OpenAI words them: each token with its text and its bytes.

The texts of the tokens that are reported, joined, are the answer's text. So tokens whose text is not part of
it (a stop string's, marks, blanks around marks) are left out, and a token that holds a part of a character
only is told by its bytes.
"""

import codecs
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from runtime.engine.request import TokenLogprob
from runtime.records import dataclass

Spell = Callable[[int], bytes]
"""A token's bytes."""
_NONE = "\ufffd"


@dataclass(frozen=True, slots=True)
class TextToken:
    """A token that is part of the text."""

    data: bytes
    """Its own bytes: whole characters or not."""
    logprob: TokenLogprob
    start: int
    """Characters of the piece in front of it. Tokens that share a character begin where it does."""


@dataclass(slots=True)
class _Piece:
    """A piece of text while its tokens are told."""

    left: str
    """What is still to be told of it."""
    start: int
    """Where that begins, in characters."""
    lacks: int
    """Blanks that its tokens have and it does not."""
    in_part: bool = False
    """Has the last token that was told more text than has come?"""

    def take(self, count: int) -> None:
        """So many characters are told, or are nobody's."""
        self.left, self.start = self.left[count:], self.start + count


class _Spelling(NamedTuple):
    """A token, as far as it is the text's."""

    own: bytes
    said: str
    """Its characters, with what earlier ones had begun."""
    rest: bytes
    """The beginning of a character that is not whole yet."""
    before: bool
    """Had an earlier one begun a character?"""


class Tokens:
    """The tokens of one text, as it comes.

    Both are read in characters. Bytes that are none stand in the text as U+FFFD: one for each piece of a
    character, or for each byte where the tokenizer falls back to bytes, which then come late.
    One whose text has come in part is told when the rest is there, or is known to be no part of the text.
    every: all tokens are the text's, and are told, one of blanks in front of it as a token without text.
    """

    def __init__(self, spell: Spell, *, every: bool = False) -> None:
        self._spell, self._every = spell, every
        self._unfinished = b""  # of a character, by tokens that came
        self._ahead = ""  # text still to come that belongs to tokens that came
        self._held: TextToken | None = None  # some of what is ahead is its own
        self._begun = False
        self._early: list[tuple[str, tuple[TokenLogprob, ...]]] = []  # what came first, without a letter
        self._lacking = 0  # blanks that the text lacks of what came first

    def add(self, text: str, logprobs: Sequence[TokenLogprob]) -> list[TextToken]:
        """Those of a piece's tokens that are part of its text or of what follows it."""
        if self._begun or self._every:
            return self._add(text, logprobs)
        self._early.append((text, tuple(logprobs)))
        told, said = self._all_early()
        if not told.strip() and self._text_of(said) != told:
            return []  # the rest of it is still to come, or what it lacks is not part of any text
        return self._let_go(len(told) - len(text))

    def _all_early(self) -> tuple[str, tuple[TokenLogprob, ...]]:
        return "".join(text for text, _ in self._early), tuple(one for _, row in self._early for one in row)

    def _let_go(self, before: int) -> list[TextToken]:
        """What came first, as it came. before: so many characters of it stand before who asks now."""
        whole = self._all_early()
        early, self._early, self._lacking = self._early, [], self._lacks(*whole)
        # Of blanks alone a stop string may have cut some off: one is as good as another.
        if not self._text_of(whole[1]).strip():
            early = [whole]
        told: list[TextToken] = []
        for text, logprobs in early:
            told += [replace(one, start=one.start - before) for one in self._add(text, logprobs)]
            before -= len(text)
        return told

    def _add(self, text: str, logprobs: Sequence[TokenLogprob]) -> list[TextToken]:
        told = self._finish() if text and not _fits(self._ahead, text) else []  # a mark begins in it
        lacks = self._lacks(text, logprobs) if self._every and not self._begun else self._lacking
        piece = _Piece(text[len(self._ahead) :], len(self._ahead), lacks)
        self._ahead = self._ahead[len(text) :]
        if self._held is not None and not self._ahead:
            told, self._held = [self._held], None
        for logprob in logprobs:
            spelt = self._spelt(logprob.id, piece)
            if spelt is not None:
                told.append(self._text_token(logprob, spelt, piece))
        self._lacking = 0 if self._begun else piece.lacks
        if self._held is not None and told:
            told, self._held = [self._held, *told], None
        if piece.in_part and not self._every:
            self._held = told.pop()
        if self._held is not None:
            self._held = replace(self._held, start=self._held.start - len(text))
        return told

    def _spelt(self, id: int, piece: "_Piece") -> "_Spelling | None":  # noqa: A002 -- the token's
        """A token as far as it is the text's; None where it is not part of it."""
        own, before = self._spell(id), len(self._unfinished)
        said, rest = _read(self._unfinished + own)
        if before and not said.startswith(_NONE) and not _fits(said, piece.left):
            # Bytes fall back in a run: one that is not text as a whole costs the characters in it, too.
            lost = _NONE * (before + len(own) - len(rest))
            said = lost if piece.left.startswith(lost) else said
        if cut := min(piece.lacks, _blanks(said)):
            own, said = _cut(own, said, cut)
            piece.lacks -= cut
            if not own and not self._every:
                return None
        if not before and _NONE not in said and not _fits(said, piece.left):
            own, said = self._within(own, said, piece)
        behind = before and not said.startswith(_NONE)  # of a character that an earlier one began
        if not piece.left and said.lstrip(_NONE) and not behind and not self._every:
            self._unfinished = b""
            return None
        return _Spelling(own, said, rest, before > 0)

    def _within(self, own: bytes, said: str, piece: "_Piece") -> tuple[bytes, str]:
        """Of a token that does not go on with the text: what of it does."""
        added = self._every and said.isspace()  # behind a special token, and in no text
        if self._every and not added:  # what a special token in front has taken of the text
            most = min(_blanks(piece.left) + 1, len(piece.left))
            piece.take(next((one for one in range(1, most) if _fits(said, piece.left[one:])), 0))
        most = len(said) + added
        return _cut(own, said, next((one for one in range(most) if _fits(said[one:], piece.left)), 0))

    def _text_token(self, logprob: TokenLogprob, spelt: "_Spelling", piece: "_Piece") -> TextToken:
        own, said, rest, before = spelt
        left, whole = piece.left, said.lstrip(_NONE)
        none = len(said) - len(whole)
        late = 0  # what stands in the text for bytes that came before
        if not _fits(said, left) and _fits(whole, left.lstrip(_NONE)):
            late = max(len(left) - len(left.lstrip(_NONE)) - none, 0)
        self._unfinished, self._begun = rest, self._begun or bool(said or rest)
        told = TextToken(own, logprob, piece.start + late + (before and none > 0))
        piece.in_part = bool(said and rest)
        if left or whole:  # what stands for no character is counted when it is there
            piece.in_part |= 0 < len(left) - late < len(said)
            self._ahead += said[len(left) - late :] if left else said
            piece.take(late + len(said))
        return told

    def finish(self) -> list[TextToken]:
        """What was held back: the rest of it is not the text's."""
        early = self._let_go(len(self._all_early()[0])) if self._early else []
        return early + self._finish()

    def _finish(self) -> list[TextToken]:
        held, self._held = self._held, None
        ahead, self._ahead = self._ahead.encode() + self._unfinished, ""
        return [] if held is None else [replace(held, data=held.data.removesuffix(ahead))]

    def _lacks(self, text: str, logprobs: Sequence[TokenLogprob]) -> int:
        """How many blanks of its tokens a text begins without: that of the first one, and those around marks.
        One that is all blanks may have been cut off by a stop string, and so lacks a space at most.
        """
        said = self._text_of(logprobs)
        if text.strip():
            return max(_blanks(said) - _blanks(text), 0)
        return said.startswith(" ") and (said[1:] == text or not said.startswith(text))

    def _text_of(self, logprobs: Sequence[TokenLogprob]) -> str:
        return readable(b"".join(self._spell(one.id) for one in logprobs))


def token(told: TextToken, spell: Spell) -> dict[str, Any]:
    """One token, with its alternatives: chat completions and responses."""
    top = [_one(spell(one), logprob) for one, logprob in told.logprob.top]
    return {**_one(told.data, told.logprob.logprob), "top_logprobs": top}


def readable(data: bytes) -> str:
    """U+FFFD stands for bytes that are not whole characters."""
    return data.decode("utf-8", "replace")


def _one(data: bytes, logprob: float) -> dict[str, Any]:
    return {"token": readable(data), "logprob": max(logprob, -9999.0), "bytes": list(data)}


def _blanks(text: str) -> int:
    """How many it begins with."""
    return len(text) - len(text.lstrip())


def _cut(own: bytes, said: str, count: int) -> tuple[bytes, str]:
    """A token without its first characters."""
    return own[len(said[:count].encode()) :], said[count:]


def _fits(said: str, left: str) -> bool:
    return left.startswith(said) or said.startswith(left)


def _read(data: bytes) -> tuple[str, bytes]:
    """Its characters, and the beginning of one that is not whole yet."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return decoder.decode(data), decoder.getstate()[0]
