"""Stop strings, looked for in the answer's own text.

Thinking and the arguments of calls are not searched: a stop string is about what the user will read, and one
such as a line end would cut every thought short.
"""

from collections.abc import Sequence

from modelkit.output.events import Event, Text
from modelkit.tokenizer import StopStrings


class StopFilter:
    """Events pass, but for a tail of text that may yet become a stop string. Ids stay with the text that
    begins with them; those of a stop string do not come out. Raises RequestError, as StopStrings does.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops, self.looks = StopStrings(stops), bool(stops)
        """Are there any? Else every event passes as it is."""
        self._held: list[Text] = []

    @property
    def matched(self) -> str | None:
        """The stop string that ended the answer, if one did."""
        return self._stops.matched

    def push(self, event: Event) -> list[Event]:
        """What this event lets out; once `matched` is set, nothing more."""
        if not self.looks:
            return [event]
        if self.matched is not None:
            return []
        if isinstance(event, Text):
            self._held.append(event)
            return self._out(self._stops.push(event.text)[0])
        out = self.finish()
        return out if self.matched is not None else [*out, event]

    def finish(self) -> list[Event]:
        """The tail that became no stop string."""
        out = self._out(self._stops.finish()[0])
        if self.matched is None:  # what is left has no text
            out, self._held = [*out, *self._held], []
        return out

    def _out(self, text: str) -> list[Event]:
        """As many of the held characters as `text` has. Tokens without text go with what follows them."""
        left, out = len(text), list[Event]()
        while self._held and left:
            first = self._held.pop(0)
            if len(first.text) > left:
                self._held.insert(0, Text(first.text[left:]))
                first = Text(first.text[:left], first.ids, first.logprobs)
            left -= len(first.text)
            out.append(first)
        return out
