"""Where the parts of an answer are put down as events: neighbours of one kind become one event."""

from modelkit.output.events import CallArguments, CallEnd, CallStart, Event, Text, Thinking
from runtime.engine.request import TokenLogprob


class Sink:
    """Of one answer."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._kind: type[Text] | type[Thinking] = Text
        self._texts: list[str] = []
        self._ids: list[int] = []
        self._logprobs: list[TokenLogprob] = []
        self._arguments: list[str] = []
        self.calls = 0
        """How many have ended."""
        self._written = False
        self.calling = False
        """A call was begun and has not ended."""

    def take(self) -> list[Event]:
        """What has been put down since."""
        self._settle()
        taken, self._events = self._events, []
        return taken

    def text(
        self,
        kind: type[Text] | type[Thinking],
        text: str,
        ids: tuple[int, ...] = (),
        logprobs: tuple[TokenLogprob, ...] = (),
    ) -> None:
        if not text and not ids:
            return
        if kind is not self._kind or self._arguments:
            self._settle()
            self._kind = kind
        self._texts.append(text)
        self._ids.extend(ids)
        self._logprobs.extend(logprobs)

    def start(self, identity: str, name: str) -> None:
        self._settle()
        self._events.append(CallStart(self.calls, identity, name))
        self.calling, self._written = True, False

    def write(self, part: str) -> None:
        """The next piece of the arguments' JSON."""
        self._arguments.append(part)
        self._written = True

    def end(self, rest: str = "", *, whole: bool = True) -> None:
        """rest: what the model wrote instead of JSON. whole: the call came to its end."""
        if whole and not rest and not self._written:
            self.write("{}")
        self._settle()
        self._events.append(CallEnd(self.calls, rest))
        self.calls += 1
        self.calling = False

    def _settle(self) -> None:
        if self._texts or self._ids:
            event = self._kind("".join(self._texts), tuple(self._ids), tuple(self._logprobs))
            self._events.append(event)
            self._texts, self._ids, self._logprobs = [], [], []
        if self._arguments:
            self._events.append(CallArguments(self.calls, "".join(self._arguments)))
            self._arguments = []
