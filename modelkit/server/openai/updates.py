"""Items of a conversation that say how its answers shall be from there on (`configuration_update`).

Each may set the effort of thinking and the form of the text; a setting stays until a later item replaces it.
It counts for the request that brings it and for those that go on from there, before what these say
themselves: the conversation is more particular than a client's habit.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from modelkit.server.faults import refused
from modelkit.server.fields import Fields
from modelkit.server.openai import forms, thinking
from modelkit.server.openai.response_store import Items
from runtime.records import dataclass

UPDATE = "configuration_update"
_FORMS = ("format", "grammar", "regex")


@dataclass(frozen=True, slots=True)
class Updates:
    """The last of each setting; None where there is none."""

    reasoning: Fields | None = None
    text: Fields | None = None

    def of(self, options: dict[str, Any]) -> dict[str, Any]:
        """The keyword arguments of `Model.chat`, with what was set. Raises Refused."""
        if self.reasoning is not None:
            options = options | thinking.effort_of(self.reasoning)
        if self.text is not None:
            options = {key: value for key, value in options.items() if key not in _FORMS}
            options |= forms.read_format(self.text.inner("format"))
        return options

    def said_again(self, body: Fields, echo: dict[str, Any]) -> dict[str, Any]:
        """What the answer's object says of its request, all of which has been read."""
        if self.reasoning is not None:
            body.idle("reasoning_effort")
            _idle(body, "reasoning", "effort")
            echo = {**echo, "reasoning": {**echo["reasoning"], "effort": self.reasoning.raw("effort")}}
        if self.text is not None:
            _idle(body, "text", "format")
            echo = {**echo, "text": {**echo["text"], "format": self.text.raw("format")}}
        return echo


def updates_in(earlier: Items, given: Sequence[Fields]) -> Updates:
    """Of a conversation. Raises Refused for an item that sets nothing."""
    found = Updates()
    for item in _items(earlier, given):
        reasoning, text = item.fields("reasoning"), item.fields("text")
        if reasoning is None and text is None:
            why = "sets nothing; expected reasoning, text or both"
            raise refused("invalid_request", f"{item.where} {why}", item.where)
        if reasoning is not None and (others := reasoning.unknown(("effort",))):
            raise refused("invalid_request", f"{others[0]}: only the effort can be set anew", others[0])
        if reasoning is not None and reasoning.has("effort"):
            found = Updates(reasoning, found.text)
        if text is not None:
            found = Updates(found.reasoning, text)
    return found


def _items(earlier: Items, given: Iterable[Fields]) -> Iterator[Fields]:
    before = (one for one in earlier.values() if UPDATE.encode() in one)
    for item in (*(Fields(json.loads(one), "previous_response_id") for one in before), *given):
        if item.text("type") == UPDATE:
            yield item


def _idle(body: Fields, holder: str, field: str) -> None:
    if (inner := body.fields(holder)) is not None:
        inner.idle(field)
