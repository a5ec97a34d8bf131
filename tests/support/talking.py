"""Conversations with a model that says how many messages it was asked with."""

from collections.abc import Iterable, Iterator
from typing import Any

from modelkit.answers.generation import Generation
from modelkit.chat.message import Message
from modelkit.chat.styles.thinking import Thinking as Offered
from modelkit.cli.repl import Session, converse
from modelkit.errors import PromptTooLong
from modelkit.modelfile import Parameters
from modelkit.output.collected import Collected
from modelkit.output.events import CallArguments, CallEnd, CallStart, Event, Text, Thinking
from runtime.engine.request import Usage
from tests.support.typed import typed


class Answer:
    progress = None

    def __init__(self, events: Iterable[Event]) -> None:
        self._events, self._given = events, Collected()

    def __enter__(self) -> "Answer":
        return self

    def __exit__(self, *_: object) -> None:
        return

    def events(self) -> Iterator[Event]:
        for event in self._events:
            self._given.add(event)
            yield event

    @property
    def result(self) -> Generation:
        given = self._given
        return Generation(
            given.text, (), Usage(), "stop", 0, thinking=given.thinking, tool_calls=given.tool_calls
        )

    def close(self) -> None:
        pass


class Model:
    """Says how many messages it was asked with; calls a tool where there are any and no result is there."""

    name = "story"
    has_template, adapters, threads = True, (), None
    thinking: Offered | None = None
    context_length = 64

    def __init__(self, room: int = 100) -> None:
        self.defaults, self._room = Parameters(), room
        self.asked: list[list[Message]] = []
        self.options: list[dict[str, Any]] = []
        self.closed = False

    def chat(self, messages: Iterable[Message], *, stream: bool, **options: Any) -> Answer:
        assert stream
        given = [*messages]
        if any(one.content == "a whole book" for one in given):
            raise PromptTooLong(f"a book in {len(given)}", prompt_tokens=99, context_tokens=64)
        if len(given) > self._room and not options["truncate"]:
            raise PromptTooLong("it has 99 tokens and the context is 64", prompt_tokens=99, context_tokens=64)
        if options.get("num_predict") == 0:
            return Answer([])
        self.asked.append(given)
        self.options.append(options)
        if options.get("tools") and given[-1].role == "user":
            call = CallStart(0, "c1", "add"), CallArguments(0, '{"a": 1}'), CallEnd(0)
            return Answer([Thinking("hm"), *call])
        return Answer([Thinking("hm"), Text(f"answer {len(given)}")])

    def close(self) -> None:
        self.closed = True


def talk(model: Model, *lines: str | BaseException, **settings: Any) -> Session:
    session = Session(model, "story", **settings)  # type: ignore[arg-type]
    converse(session, typed(*lines))
    return session


def said(session: Session) -> list[str]:
    return [message.content for message in session.messages]
