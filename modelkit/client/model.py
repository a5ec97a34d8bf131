"""A model in a running server, with what talking to it takes: see `offers`.

Parameters that were given when it was opened go with each request. What is settled when a model is loaded
cannot be changed from here, but for a smaller context; `Served.differs` says which of it would have to.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields as fields_of
from types import TracebackType
from typing import Any

from modelkit.chat.message import Message
from modelkit.client.answers import ServedAnswer
from modelkit.client.connection import Connection
from modelkit.client.fields import Fields
from modelkit.memory import Memory
from modelkit.modelfile import PARAMETERS, Parameters
from modelkit.modelfile.parameters import at_load, refuse_at_load
from modelkit.prefixes import Prefix


class Served:
    """name: the model's in the server, which loads it now if it has to. given: PARAMETERs for all requests.

    Raises Unreachable, and what the server says. Closing it leaves the model where it is.
    """

    def __init__(self, connection: Connection, name: str, given: Parameters | None = None) -> None:
        self._connection, self._asked = connection, name
        said = connection.post("/modelkit/v1/load", {"model": name}, wait_s=None)
        facts = Fields(said).fields("facts")
        given = given or Parameters()
        self._given = Parameters({key: value for key, value in given.items() if not PARAMETERS[key].at_load})
        self.name, self.digest = facts.text("name"), facts.text("digest")
        self.address = connection.address
        self.load_s, self.notes = facts.number("load_s"), tuple(facts.texts("notes"))
        self.defaults = Parameters(facts.fields("defaults").value).merge(given)
        self.memory = _memory(facts.fields("memory"))
        self.has_template = facts.flag("has_template")
        self.writes = facts.value.get("writes") is not False
        self.adapters = tuple(facts.texts("adapters"))
        whole = facts.whole("context_length")
        self.context_length = min(whole, given.resolved().num_ctx or whole)
        self.differs = _differing(facts.fields("settled"), given, whole)
        """Names of those of `given` that this model would have to be loaded with, and was not."""
        self._shorter = self.context_length if self.context_length < whole else None
        self._threads: str | None = None

    def __enter__(self) -> "Served":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Served {self.name} at {self.address}>"

    @property
    def threads(self) -> str | None:
        """As the last answer said it."""
        return self._threads

    def chat(
        self, messages: Iterable[Message | Mapping[str, Any]], *, stream: bool = True, **options: Any
    ) -> ServedAnswer:
        """As `Model.chat` with stream=True."""
        said = [_message_json(one) if isinstance(one, Message) else dict(one) for one in messages]
        return self._ask("/modelkit/v1/chat", {"messages": said}, options)

    def generate(self, prompt: str | Sequence[int], *, stream: bool = True, **options: Any) -> ServedAnswer:
        """As `Model.generate` with stream=True."""
        given = prompt if isinstance(prompt, str) else list(prompt)
        return self._ask("/modelkit/v1/generate", {"prompt": given}, options)

    def can_think(self) -> bool:
        """Does it think before it answers, as far as the server can tell?"""
        said = self._connection.post("/api/show", {"model": self._asked})
        return "thinking" in Fields(said).texts("capabilities")

    def prefixes(self) -> list[Prefix]:
        """What the server keeps in memory of earlier prompts for this model."""
        said = self._connection.post("/modelkit/v1/prefixes", {"model": self._asked})
        return [_prefix(one) for one in Fields(said).each("prefixes")]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, special tokens left out."""
        said = self._connection.post("/modelkit/v1/decode", {"model": self._asked, "ids": list(ids)})
        return Fields(said).text("text")

    def close(self) -> None:
        """The connection ends; the model stays in the server."""
        self._connection.close()

    def _ask(self, path: str, body: dict[str, Any], options: dict[str, Any]) -> ServedAnswer:
        asked = Parameters({name: options.pop(name) for name in list(options) if name in PARAMETERS})
        refuse_at_load(asked)
        parameters = self._given.merge(asked)
        seed = self.defaults.merge(asked).resolved().seed
        if seed < 0:  # drawn here, so that it is known however the answer ends
            seed = secrets.randbits(63)
            parameters = parameters.merge(Parameters({"seed": seed}))
        if self._shorter is not None:
            options.setdefault("context_length", self._shorter)
        given = {name: list(one) if isinstance(one, tuple) else one for name, one in parameters.items()}
        wanted = {name: value for name, value in options.items() if value is not None}
        lines = self._connection.lines(path, {"model": self._asked, "parameters": given, **body, **wanted})
        return ServedAnswer(lines, seed, self._hear)

    def _hear(self, said: Fields) -> None:
        self._threads = said.maybe_text("threads")


def _message_json(message: Message) -> dict[str, Any]:
    """A message, its calls with what was written for their arguments where that is not a JSON object."""
    made = message.as_template()
    for call, one in zip(message.tool_calls, made.get("tool_calls", ()), strict=True):
        if call.written is not None:
            one["function"]["arguments"] = call.written
    return made


def _differing(settled: Fields, given: Parameters, context: int) -> tuple[str, ...]:
    """A smaller context than the model's a request can have; all else is as it was loaded."""
    wanted, names = given.resolved(), at_load(given)
    larger = ("num_ctx",) if (wanted.num_ctx or 0) > context else ()
    return larger + tuple(
        name for name in names if name != "num_ctx" and settled.value.get(name) != getattr(wanted, name)
    )


def _memory(said: Fields) -> Memory:
    return Memory(**{field.name: said.whole(field.name) for field in fields_of(Memory)})


def _prefix(said: Fields) -> Prefix:
    return Prefix(
        depth=said.whole("depth"),
        start=said.whole("start"),
        stop=said.whole("stop"),
        size_bytes=said.whole("size_bytes"),
        used_at_s=said.number("used_at_s"),
        ids=tuple(said.ids("ids")),
        resumable=said.flag("resumable") if said.value.get("resumable") is not None else None,
        users=said.whole("users"),
        space=said.text("space"),
    )
