"""Log-probabilities as OpenAI words them: each token with its text and its bytes.

The texts of the tokens that are reported, joined, are the answer's text. So tokens whose text is not part of
it (a stop string's, marks, blanks around marks) are left out, and a token that holds a part of a character
only is told by its bytes.
"""

from collections.abc import Callable, Sequence
from typing import Any

from runtime.engine.request import TokenLogprob
from runtime.records import dataclass

Spell = Callable[[int], bytes]
"""A token's bytes."""


@dataclass(frozen=True, slots=True)
class Told:
    """A token that is part of the text."""

    data: bytes
    """Its own bytes: whole characters or not."""
    logprob: TokenLogprob
    start: int
    """Characters of the piece in front of it. Tokens that share a character begin where it does."""


class Tokens:
    """The tokens of one text, as it comes."""

    def __init__(self, spell: Spell) -> None:
        self._spell = spell
        self._unfinished = b""  # of a character, by tokens that came
        self._ahead = b""  # text still to come that belongs to tokens that came

    def add(self, text: str, logprobs: Sequence[TokenLogprob]) -> list[Told]:
        """Those of a piece's tokens that are part of its text or of what follows it."""
        left, start = text.encode("utf-8", "replace"), len(readable(self._ahead))
        left, self._ahead = left[len(self._ahead) :], self._ahead[len(left) :]
        told: list[Told] = []
        for logprob in logprobs:
            own = self._spell(logprob.id)
            whole, rest = _characters(self._unfinished + own)
            if whole and not left:
                self._unfinished = b""
                continue
            if not (left.startswith(whole) or whole.startswith(left)):
                own, whole = (
                    own.lstrip(),
                    whole.lstrip(),
                )  # texts begin without the blank of their first token
            self._unfinished = rest
            self._ahead = whole[len(left) :] if whole.startswith(left) else b""
            left = left[len(whole) :]
            told.append(Told(own, logprob, start))
            start += len(readable(whole))
        return told


def token(told: Told, spell: Spell) -> dict[str, Any]:
    """One token, with its alternatives: chat completions and responses."""
    top = [_one(spell(one), logprob) for one, logprob in told.logprob.top]
    return {**_one(told.data, told.logprob.logprob), "top_logprobs": top}


def readable(data: bytes) -> str:
    """U+FFFD stands for bytes that are no whole character."""
    return data.decode("utf-8", "replace")


def _one(data: bytes, logprob: float) -> dict[str, Any]:
    return {"token": readable(data), "logprob": max(logprob, -9999.0), "bytes": list(data)}


def _characters(data: bytes) -> tuple[bytes, bytes]:
    """Whole characters, and the beginning of one that is not whole yet."""
    for cut in range(1, min(3, len(data)) + 1):
        lead = data[-cut]
        if lead >= 0xC0:
            wanted = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
            return (data[:-cut], data[-cut:]) if wanted > cut else (data, b"")
        if lead < 0x80:
            break
    return data, b""
