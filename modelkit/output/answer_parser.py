"""Ids in; thinking, text and calls of tools out: what a token of an answer lets out, and what its end does.

`Pieces` makes text of ids, a splitter tells the parts apart, and stop strings end the answer's own text. Each
of them may hold something back for a token or more.
"""

from collections.abc import Iterator, Sequence

from modelkit.output.events import Event, Text
from modelkit.output.joining import joined
from modelkit.output.pieces import Piece, Pieces
from modelkit.output.splitter import Plain, Splitter
from modelkit.output.stop_filter import StopFilter
from runtime.engine.request import Delta, TokenLogprob
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Out:
    """What one piece let out, one event at most; without a piece, more of it, or what the end did."""

    piece: Piece | None
    events: Sequence[Event]

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, Text))


class AnswerParser:
    """Of one answer. stops: its stop strings; raises RequestError for those that cannot be any."""

    def __init__(self, pieces: Pieces, splitter: Splitter, stops: Sequence[str]) -> None:
        self.ids: list[int] = []
        """All that were taken."""
        self.logprobs: list[TokenLogprob] = []
        """One for each of them, where they were asked for."""
        self._pieces, self._splitter, self._stopping = pieces, splitter, StopFilter(stops)

    @property
    def holds(self) -> bool:
        """May events come later than the pieces that they are made of?"""
        return self._stopping.looks or not isinstance(self._splitter, Plain)

    @property
    def stop(self) -> str | None:
        """The stop string that has ended the answer, if one has. Tokens behind it are not taken."""
        return self._stopping.matched

    def take(self, delta: Delta) -> list[Out]:
        """Those of each token, up to the one that ends the answer."""
        outs: list[Out] = []
        for place, token in enumerate(delta.ids):
            self.ids.append(token)
            logprob = delta.logprobs[place] if delta.logprobs else None
            if logprob is not None:
                self.logprobs.append(logprob)
            for one in self._pieces.push(token, logprob):
                outs += self._outs(one, self._splitter.push(one))
            if self.stop is not None:
                break
        return outs

    def take_joined(self, deltas: Sequence[Delta]) -> list[Event]:
        """As `take` of all of them, for who wants no pieces: neighbours of one kind are one event."""
        ids = [token for delta in deltas for token in delta.ids]
        logprobs = [one for delta in deltas for one in delta.logprobs]
        told = None if self._stopping.looks or not ids else self._pieces.push_each(ids, logprobs)
        if told is None:
            return joined(self._one_by_one(deltas))
        self.ids += ids
        self.logprobs += logprobs
        return joined(self._splitter.push_each(*told)) if told[0] else []

    def _one_by_one(self, deltas: Sequence[Delta]) -> Iterator[Event]:
        for delta in deltas:
            if self.stop is None:
                for out in self.take(delta):
                    yield from out.events

    def finish(self, *, cut: bool = False) -> list[Out]:
        """What was held back. No token comes after it. cut: as for a splitter."""
        last: list[Out] = []
        for piece in self._pieces.finish():
            last += self._outs(piece, self._splitter.push(piece))
        last += self._outs(None, self._splitter.finish(cut=cut))
        return [*last, *(Out(None, [event]) for event in self._stopping.finish())]

    def _outs(self, piece: Piece | None, events: Sequence[Event]) -> list[Out]:
        if self._stopping.looks:
            events = [one for event in events for one in self._stopping.push(event)]
        # Each event by itself: whoever stops reading between two of them may go on in another loop.
        return [Out(piece, events[:1]), *(Out(None, [event]) for event in events[1:])]
