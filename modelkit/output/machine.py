"""What every splitter does with pieces: they go to a reader that waits for more, and events come out."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from modelkit.output.events import Event, Text, Thinking
from modelkit.output.pieces import Piece
from modelkit.output.reading.feed import Cut, Feed, Waiting
from modelkit.output.reading.marks import Marks
from modelkit.output.sink import Sink
from runtime.engine.request import TokenLogprob


class Machine(ABC):
    """One answer. cores: of all marks of its style. A special token that is part of none is left out."""

    def __init__(self, cores: tuple[str, ...]) -> None:
        self._cores = cores
        self._feed, self._sink = Feed(), Sink()
        self._kind: type[Text] | type[Thinking] = Text
        self._quiet: Marks | None = None  # what a piece must not begin, to be let out as it comes
        self._over = False
        self._reading = self._guarded()

    def push(self, piece: Piece) -> list[Event]:
        text, special = piece.text, piece.special
        if special is None:
            if text and self._quiet is not None and self._feed.empty and not self._quiet.loud.search(text):
                return [self._kind(text, piece.ids, piece.logprobs)]
            self._feed.push(text, piece.ids, piece.logprobs)
        else:
            if text:  # a character that the token leaves unfinished
                self._feed.push(text, (), ())
            if any(special in core for core in self._cores):
                self._feed.push_special(special)
        self._resume()
        return self._sink.take()

    def push_each(
        self, texts: Sequence[str], ids: Sequence[int], logprobs: Sequence[TokenLogprob]
    ) -> list[Event]:
        whole = "".join(texts)
        # A last token without a text waits for the one that it begins in (`Feed`).
        if texts[-1] and self._quiet is not None and self._feed.empty and not self._quiet.loud.search(whole):
            return [self._kind(whole, tuple(ids), tuple(logprobs))]
        pieces = (
            Piece(text, (ids[place],), None, tuple(logprobs[place : place + 1]))
            for place, text in enumerate(texts)
        )
        return [event for piece in pieces for event in self.push(piece)]

    def finish(self, *, cut: bool = False) -> list[Event]:
        self._feed.ended, self._feed.cut = True, cut
        self._resume()
        return self._sink.take()

    def _begin(self, written: str) -> None:
        """The answer begins with what stands in the prompt."""
        if written:
            self._feed.push(written, (), ())
        self._resume()

    def _resume(self) -> None:
        if not self._over:
            self._over = next(self._reading, self) is self

    def _guarded(self) -> Waiting[None]:
        try:
            yield from self._read()
        except Cut:
            return

    @abstractmethod
    def _read(self) -> Waiting[None]:
        """The whole answer. May raise Cut at its end."""

    def _more(self, quiet: Marks | None) -> Waiting[None]:
        """Wait. quiet: meanwhile plain text without a beginning of these is let out as it comes."""
        self._quiet = quiet
        yield
        self._quiet = None
