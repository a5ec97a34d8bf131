"""A conversation made short (`compaction`): the answer is one block, which stands for all of it when it comes
back. Where the model writes no whole summary, the block has no content, and stands for nothing.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from modelkit.answers.generation import Finish, Generation
from modelkit.output.events import Event, Text
from modelkit.server.anthropic.blocks import Begin, End, Grow, Step
from modelkit.server.anthropic.writing import Messages


class Summary:
    """Steps, which come at the end."""

    def __init__(self) -> None:
        self.whole = False
        self._pieces: list[str] = []

    def push(self, event: Event) -> Iterable[Step]:
        if isinstance(event, Text):
            self._pieces.append(event.text)
        return ()

    def finish(self) -> Iterable[Step]:
        text = "".join(self._pieces).strip()
        block: dict[str, Any] = {"type": "compaction", "content": None}
        grown = [Grow(0, {"type": "compaction_delta", "content": text})] if self.whole and text else []
        return [Begin(0, block), *grown, End(0)]


class Compaction(Messages):
    """A Writer, of an answer that is a summary."""

    def __init__(self, model: str, request_id: str) -> None:
        self._summary = Summary()
        super().__init__(model, self._summary, request_id)

    def _take_events(self, events: Sequence[Event | Finish]) -> Sequence[Event | Finish]:
        last = events[-1]
        self._summary.whole = isinstance(last, Finish) and last.answer.reason == "stop"
        return super()._take_events(events)

    def _reason(self, answer: Generation) -> str:
        return "compaction"
