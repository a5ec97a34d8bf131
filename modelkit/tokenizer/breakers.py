"""Texts that no repetition is followed across, found in the text of ids: `runtime.sampling.breakers`.

A text counts wherever it stands, in one token or in several, cut as they may be. So no list has to be made of
the tokens that may spell it, as llama.cpp does; what both find is the same.
"""

from collections.abc import Sequence


class TextBreakers:
    """texts: at least one. pieces: what each id stands for; ids beyond them stand for nothing."""

    def __init__(self, texts: Sequence[str], pieces: Sequence[bytes]) -> None:
        self._texts = [text.encode() for text in texts]
        self._pieces = pieces
        self.reach = max(map(len, self._texts)) - 1

    def behind(self, ids: Sequence[int]) -> int:
        pieces = [self._piece(one) for one in ids]
        text = b"".join(pieces)
        left = len(text) - max(_end_of(one, text) for one in self._texts)
        if left == len(text):
            return len(ids)
        count = 0
        while (left := left - len(pieces[-1 - count])) >= 0:
            count += 1
        return count

    def breaks(self, token: int) -> bool:
        piece = self._piece(token)
        return any(text in piece for text in self._texts)

    def _piece(self, token: int) -> bytes:
        return self._pieces[token] if token < len(self._pieces) else b""


def _end_of(text: bytes, within: bytes) -> int:
    """Where it ends the last time; 0 where it does not stand there."""
    start = within.rfind(text)
    return 0 if start < 0 else start + len(text)
