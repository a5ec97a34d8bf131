"""The output of a response: items, one after the other, and the events by which each of them comes.

    reasoning      added, part added, delta*, text done, part done, done
    message        added, part added, delta*, text done, part done, done
    function_call  added, delta*, arguments done, done
    custom_tool_call  as a function_call, with its input for arguments

Clients insist on the order: no delta before its part, no part before its item, each item at a place of its
own. One item is open at a time.
"""

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from modelkit.chat.message import arguments_of
from modelkit.output.events import CallArguments, CallEnd, CallStart, Event, Text, Thinking
from modelkit.server.logprobs import Spell, Tokens, token
from modelkit.server.openai.client_tools import ClientTool, ClientTools, Input, client_tool_of
from modelkit.server.openai.wire import new_id
from runtime.records import dataclass

SEAL = "modelkit:"
"""What the fields for sealed thinking and sealed summaries begin with; only OpenAI can read what its own
servers have sealed.
"""

Events = list[dict[str, Any]]
"""Events without their sequence numbers."""


@dataclass(frozen=True, slots=True)
class ItemOptions:
    """How items are written."""

    summary: bool = False
    """Thinking comes as a summary, which clients show; else as its raw text."""
    encrypted: bool = False
    """Thinking also comes in the field that clients without a store send back as it is."""
    logprobs: bool = False
    client_tools: ClientTools = field(default_factory=dict[str, ClientTool])


@dataclass(slots=True)
class _Open:
    """The item that is being written."""

    kind: str
    place: int
    id: str
    call: CallStart | None = None
    input: Input = field(default_factory=Input)
    """Of a custom tool's call."""
    texts: list[str] = field(default_factory=list)
    logprobs: Events = field(default_factory=list)


class Items:
    """Events in, events of OpenAI's out; `done` has the items that are whole."""

    def __init__(self, options: ItemOptions, spell: Spell) -> None:
        self.done: list[dict[str, Any]] = []
        self.thinking_tokens = 0
        self._options, self._spell, self._tokens = options, spell, Tokens(spell)
        self._open: _Open | None = None
        self._early: Events = []  # log-probabilities of tokens before the first whole character

    def add(self, event: Event) -> Events:
        match event:
            case Text():
                return self._text(event)
            case Thinking():
                self.thinking_tokens += len(event.ids)
                return [*self._turn("reasoning", "rs_"), *self._delta(event.text)] if event.text else []
            case CallStart():
                custom = self._client_tool(event).custom
                kind, prefix = ("custom_tool_call", "ctc_") if custom else ("function_call", "fc_")
                return self._turn(kind, prefix, event)
            case CallArguments():
                return self._arguments(event.text)
            case CallEnd():
                status = self._ended()
                # As in chats: a call that is not to be run says what the model wrote.
                broken = (
                    status == "incomplete" and self._open is not None and self._open.kind == "function_call"
                )
                told = self._delta(event.rest) if broken and event.rest else []
                return [*told, *self.close(status)]

    def close(self, status: str = "completed") -> Events:
        """The open item is whole, or as whole as it gets."""
        item = self._open
        if item is None:
            return []
        held = [token(one, self._spell) for one in self._tokens.finish()] if item.kind == "message" else []
        said = self._delta("", held) if held else []  # who reads the deltas alone has them all, too
        self._open = None
        written = self._item(item, status)
        self.done.append(written)
        done = {"type": "response.output_item.done", "output_index": item.place, "item": written}
        return [*said, *self._closing(item), done]

    def finish(self, status: str) -> Events:
        """The answer has ended. One with nothing in it is a message without text."""
        said = [] if self.done or self._open else self._turn("message", "msg_")
        return said + self.close(status)

    def _arguments(self, written: str) -> Events:
        custom = self._open is not None and self._open.kind == "custom_tool_call"
        text = self._open.input.add(written) if custom and self._open else written
        return self._delta(text) if text else []

    def _ended(self) -> str:
        """How the open call has ended: one that was cut is not to be run."""
        item = self._open
        if item is None or item.kind == "custom_tool_call":
            return "incomplete" if item is None or not item.input.whole else "completed"
        return "incomplete" if arguments_of("".join(item.texts)) is None else "completed"

    def _text(self, event: Text) -> Events:
        told: Events = []
        if self._options.logprobs:
            told = [token(one, self._spell) for one in self._tokens.add(event.text, event.logprobs)]
        if not event.text:
            self._early += told
            return []
        told, self._early = [*self._early, *told], []
        return [*self._turn("message", "msg_"), *self._delta(event.text, told)]

    def _turn(self, kind: str, prefix: str, call: CallStart | None = None) -> Events:
        """An item of this kind is open afterwards."""
        if self._open is not None and self._open.kind == kind and call is None:
            return []
        said = self.close()
        item = self._open = _Open(kind, len(self.done), new_id(prefix), call)
        added = {"type": "response.output_item.added", "output_index": item.place}
        said.append({**added, "item": self._item(item, "in_progress", begun=False)})
        if call is None:
            said.append({**self._at(item), "type": self._names(item)[0], "part": self._part(item, "")})
        return said

    def _delta(self, text: str, logprobs: Sequence[dict[str, Any]] = ()) -> Events:
        item = self._open
        assert item is not None, "text came for no item"
        item.texts.append(text)
        said = {**self._at(item), "type": self._names(item)[1], "delta": text}
        if item.kind == "message":
            item.logprobs += logprobs
            said["logprobs"] = list(logprobs)
        return [said]

    def _closing(self, item: _Open) -> Events:
        at, text, names = self._at(item), "".join(item.texts), self._names(item)
        if item.call is not None:
            if item.kind == "custom_tool_call":
                return [{**at, "type": names[2], "input": text}]
            return [{**at, "type": names[2], "name": self._client_tool(item.call).name, "arguments": text}]
        more = {"logprobs": item.logprobs} if item.kind == "message" else {}
        return [
            {**at, "type": names[2], "text": text, **more},
            {**at, "type": names[3], "part": self._part(item, text)},
        ]

    def _at(self, item: _Open) -> dict[str, Any]:
        place = {"item_id": item.id, "output_index": item.place}
        if item.call is not None:
            return place
        summary = item.kind == "reasoning" and self._options.summary
        return {**place, "summary_index" if summary else "content_index": 0}

    def _names(self, item: _Open) -> tuple[str, ...]:
        if item.call is not None:
            custom = item.kind == "custom_tool_call"
            kind = f"response.{item.kind}_{'input' if custom else 'arguments'}"
            return "", f"{kind}.delta", f"{kind}.done"
        if item.kind == "reasoning" and self._options.summary:
            kind = "response.reasoning_summary"
            return f"{kind}_part.added", f"{kind}_text.delta", f"{kind}_text.done", f"{kind}_part.done"
        kind, part = "output" if item.kind == "message" else "reasoning", "response.content_part"
        return f"{part}.added", f"response.{kind}_text.delta", f"response.{kind}_text.done", f"{part}.done"

    def _client_tool(self, call: CallStart) -> ClientTool:
        return client_tool_of(self._options.client_tools, call.name)

    def _part(self, item: _Open, text: str) -> dict[str, Any]:
        if item.kind == "message":
            logprobs = item.logprobs if text else []
            return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}
        return {"type": "summary_text" if self._options.summary else "reasoning_text", "text": text}

    def _item(self, item: _Open, status: str, *, begun: bool = True) -> dict[str, Any]:
        """begun: with what it holds."""
        text, named = "".join(item.texts), {"id": item.id, "type": item.kind, "status": status}
        if item.call is not None:
            said = "input" if item.kind == "custom_tool_call" else "arguments"
            return {**named, "call_id": item.call.id, **self._client_tool(item.call).named, said: text}
        parts = [self._part(item, text)] if begun else []
        if item.kind == "message":
            return {**named, "role": "assistant", "content": parts}
        sealed = {"encrypted_content": SEAL + text} if self._options.encrypted and begun else {}
        if self._options.summary:
            return {**named, "summary": parts, **sealed}
        return {**named, "summary": [], "content": parts, **sealed}
