"""Log-probabilities as OpenAI words them: each token with its text and its bytes.

The texts of the tokens that are reported, joined, are the answer's text. So tokens whose text is not part of
it (a stop string's, marks, blanks around marks) are left out, and a token that holds a part of a character
only is told by its bytes.
"""

import codecs
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from runtime.engine.request import TokenLogprob
from runtime.records import dataclass

Spell = Callable[[int], bytes]
"""A token's bytes."""
_NONE = "\ufffd"


@dataclass(frozen=True, slots=True)
class Told:
    """A token that is part of the text."""

    data: bytes
    """Its own bytes: whole characters or not."""
    logprob: TokenLogprob
    start: int
    """Characters of the piece in front of it. Tokens that share a character begin where it does."""


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
        self._held: Told | None = None  # some of what is ahead is its own
        self._begun = False

    def add(self, text: str, logprobs: Sequence[TokenLogprob]) -> list[Told]:
        """Those of a piece's tokens that are part of its text or of what follows it."""
        told = self.finish() if text and not _fits(self._ahead, text) else []  # a mark begins in it
        left, start = text[len(self._ahead) :], len(self._ahead)
        self._ahead = self._ahead[len(text) :]
        lacks = 0 if self._begun else self._lacks(text, logprobs)
        if self._held is not None and not self._ahead:
            told, self._held = [self._held], None
        part = False  # has the last of them more text than has come?
        for logprob in logprobs:
            own, before = self._spell(logprob.id), bool(self._unfinished)
            said, rest = _read(self._unfinished + own)
            if before and not said.startswith(_NONE) and not _fits(said, left):
                # Bytes fall back in a run: one that is no text as a whole costs the characters in it, too.
                lost = _NONE * (len(self._unfinished + own) - len(rest))
                said = lost if left.startswith(lost) else said
            if cut := min(lacks, _blanks(said)):
                own, said, lacks = own[len(said[:cut].encode()) :], said[cut:], lacks - cut
                if not own and not self._every:
                    continue
            if not before and _NONE not in said and not _fits(said, left):
                added = self._every and said.isspace()  # behind a special token, and in no text
                if self._every and not added:  # what a special token in front has taken of the text
                    most = min(_blanks(left) + 1, len(left))
                    taken = next((one for one in range(1, most) if _fits(said, left[one:])), 0)
                    start, left = start + taken, left[taken:]
                most = len(said) + added
                cut = next((one for one in range(most) if _fits(said[one:], left)), 0)  # it begins in a mark
                own, said = own[len(said[:cut].encode()) :], said[cut:]
            none = len(said) - len(said.lstrip(_NONE))
            if not left and said[none:] and not (before and none == 0) and not self._every:
                self._unfinished = b""
                continue
            late = 0  # what stands in the text for bytes that came before
            if not _fits(said, left) and _fits(said[none:], left.lstrip(_NONE)):
                late = max(len(left) - len(left.lstrip(_NONE)) - none, 0)
            self._unfinished, self._begun = rest, self._begun or bool(said or rest)
            told.append(Told(own, logprob, start + late + (before and none > 0)))
            part = bool(said and rest)
            if left or said[none:]:  # what stands for no character is counted when it is there
                start += late + len(said)
                part |= 0 < len(left) - late < len(said)
                self._ahead += said[len(left) - late :] if left else said
                left = left[late + len(said) :]
        if self._held is not None and told:
            told, self._held = [self._held, *told], None
        if part and not self._every:
            self._held = told.pop()
        if self._held is not None:
            self._held = replace(self._held, start=self._held.start - len(text))
        return told

    def finish(self) -> list[Told]:
        """What was held back: the rest of it is not the text's."""
        held, self._held = self._held, None
        ahead, self._ahead = self._ahead.encode() + self._unfinished, ""
        return [] if held is None else [replace(held, data=held.data.removesuffix(ahead))]

    def _lacks(self, text: str, logprobs: Sequence[TokenLogprob]) -> int:
        """How many blanks of its tokens a text begins without: that of the first one, and those around marks.
        One that is all blanks may be held back in part, and so lacks a space at most.
        """
        said = readable(b"".join(self._spell(one.id) for one in logprobs))
        return said == " " + text if not text.strip() else max(_blanks(said) - _blanks(text), 0)


def token(told: Told, spell: Spell) -> dict[str, Any]:
    """One token, with its alternatives: chat completions and responses."""
    top = [_one(spell(one), logprob) for one, logprob in told.logprob.top]
    return {**_one(told.data, told.logprob.logprob), "top_logprobs": top}


def readable(data: bytes) -> str:
    """U+FFFD stands for bytes that are no whole character."""
    return data.decode("utf-8", "replace")


def _one(data: bytes, logprob: float) -> dict[str, Any]:
    return {"token": readable(data), "logprob": max(logprob, -9999.0), "bytes": list(data)}


def _blanks(text: str) -> int:
    """How many it begins with."""
    return len(text) - len(text.lstrip())


def _fits(said: str, left: str) -> bool:
    return left.startswith(said) or said.startswith(left)


def _read(data: bytes) -> tuple[str, bytes]:
    """Its characters, and the beginning of one that is not whole yet."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return decoder.decode(data), decoder.getstate()[0]
