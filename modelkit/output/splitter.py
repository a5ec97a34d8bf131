"""Who tells an answer's parts apart, as the stream above sees it."""

from typing import Protocol

from modelkit.output.events import Event, Text
from modelkit.pieces import Piece


class Splitter(Protocol):
    """One answer. Used by one thread at a time."""

    def push(self, piece: Piece) -> list[Event]:
        """What this piece lets out; what may yet become a mark is held back."""
        ...

    def finish(self) -> list[Event]:
        """What was held back. Nothing comes after it."""
        ...


class Plain:
    """An answer that is all text: special tokens have none."""

    def push(self, piece: Piece) -> list[Event]:
        return [] if piece.special is not None else [Text(piece.text, piece.ids, piece.logprobs)]

    def finish(self) -> list[Event]:
        return []
