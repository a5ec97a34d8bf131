"""Conversations in words and tokens: the chat template with the package's own system text and messages.

A prompt also knows where conversations like it may branch: behind its opening, around the last message of the
user, and before the words that invite the answer. The engine may keep what it computed up to there.

A conversation that has outgrown the context loses turns out of its middle (`modelkit.chat.fitting`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from modelkit.arguments import elements
from modelkit.chat.builtin import builtin_templates
from modelkit.chat.find import broken_template, no_template
from modelkit.chat.fitting import Fit, Talk, fitted
from modelkit.chat.message import Message
from modelkit.chat.placed import inherited_notes, refuse_unplaced
from modelkit.chat.template import ChatTemplate
from modelkit.chat.turns import OPENING, opening
from modelkit.errors import TemplateError
from modelkit.pack.metadata import Metadata
from modelkit.tokenizer import Tokenizer

Tools = Sequence[Mapping[str, Any]] | None
Variables = Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Prompt:
    """What goes to the model."""

    ids: tuple[int, ...]
    marks: tuple[int, ...] = ()
    """Where other prompts may part from this one: numbers of tokens, ascending."""
    dropped: int = 0
    """Messages that were left out, for the rest to fit."""


@dataclass(frozen=True, slots=True)
class _Laid:
    """A conversation in tokens."""

    messages: Sequence[Message]
    ids: tuple[int, ...]
    dropped: int = 0
    """As in Prompt."""


class Prompter:
    """`template` is None for a model without one; then conversations are refused. fault: why its own cannot
    be used.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        metadata: Metadata,
        fault: TemplateError | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self.template = template
        self.fault = fault
        self._system = metadata.system
        self._saved = metadata.messages
        self._earlier = [Message(role, content) for role, content in metadata.messages]

    @property
    def bare(self) -> bool:
        """Does every prompt go without a template? Not so where one is broken: that has to be said."""
        return self.template is None and self.fault is None

    def raw(self, text: str) -> Prompt:
        """The text as it is, framed as the model expects a bare prompt."""
        return Prompt(tuple(self._tokenizer.encode(text, add_special=True)))

    def chat(
        self, messages: Sequence[Message], tools: Tools, variables: Variables, fit: Fit | None = None
    ) -> Prompt:
        """A conversation, ready for the assistant's turn. fit: what it has to fit; None leaves it whole.

        Raises TemplateError, RequestError.
        """
        template, tools = self._required(), _listed(tools)
        laid = self._laid(template, messages, tools, variables, fit)
        marks = self._marks(template, laid.ids, laid.messages, tools, variables)
        return Prompt(laid.ids, marks, laid.dropped)

    def text(
        self, messages: Sequence[Message], tools: Tools, variables: Variables, fit: Fit | None = None
    ) -> str:
        """What `chat` puts into tokens."""
        template, tools = self._required(), _listed(tools)
        laid = self._laid(template, messages, tools, variables, fit)
        return template.render(laid.messages, tools=tools, variables=variables)

    def notes(self) -> tuple[str, ...]:
        """What of the package's own texts has no place in the template."""
        return inherited_notes(self.template, self._system, self._saved)

    def stops(self) -> tuple[str, ...]:
        """The stop strings of a template of modelkit's own: models given one may not know how to end their
        turn.
        """
        if self.template is None:
            return ()
        source = self.template.source
        return next((one.stop for one in builtin_templates().values() if one.source == source), ())

    def _required(self) -> ChatTemplate:
        if self.template is not None:
            return self.template
        if self.fault is None:
            raise no_template()
        raise broken_template(self.fault)

    def _laid(
        self,
        template: ChatTemplate,
        given: Sequence[Message],
        tools: Tools,
        variables: Variables,
        fit: Fit | None,
    ) -> _Laid:
        """With the package's own parts, which were spoken of in `notes`; all of `given` has its place in it,
        but for what is left out for the rest to fit.
        """
        conversation = self._conversation(given)
        text = template.render(conversation, tools=tools, variables=variables)
        own = 1 if given[0].role in OPENING else 0
        earlier = len(conversation) - len(given)
        names = {
            place + (earlier if place >= own else 0): f"messages[{place}]" for place in range(len(given))
        }
        refuse_unplaced(template, conversation, names, text, tools=tools, variables=variables)
        ids = self._encode(text)
        if fit is None or len(ids) <= fit.wanted():
            return _Laid(conversation, ids)
        talk = self._talk(template, tools, variables)
        left, short = fitted(conversation, own + earlier, ids, fit, talk)
        return _Laid(left, short, len(conversation) - len(left))

    def _talk(self, template: ChatTemplate, tools: Tools, variables: Variables) -> Talk:
        def ids(messages: Sequence[Message]) -> tuple[int, ...]:
            return self._encode(template.render(messages, tools=tools, variables=variables))

        def part(messages: Sequence[Message]) -> int | None:
            text = _beginning(template, messages, tools, variables)
            return None if text is None else len(self._encode(text))

        return Talk(ids, part, lambda text: len(self._encode(text)))

    def _conversation(self, messages: Sequence[Message]) -> list[Message]:
        """With the package's system text, unless the conversation has its own, and its saved messages."""
        own = list(messages[:1]) if messages[0].role in OPENING else []
        system = own or ([Message("system", self._system)] if self._system else [])
        return [*system, *self._earlier, *messages[len(own) :]]

    def _marks(
        self,
        template: ChatTemplate,
        ids: tuple[int, ...],
        conversation: Sequence[Message],
        tools: Tools,
        variables: Variables,
    ) -> tuple[int, ...]:
        """How far shorter forms of the conversation agree with it: its opening, without the last message,
        whole.
        """
        behind = opening(conversation)
        found: set[int] = set()
        for count in {behind, len(conversation) - 1, len(conversation)} - {0}:
            text = _beginning(template, conversation[:count], tools, variables)
            if text is not None:
                found.add(_common(ids, self._encode(text)))
        return tuple(sorted(found - {0}))

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special=False))


def _listed(tools: Tools) -> Tools:
    """As a list: they are read more than once, and a caller may give an iterator."""
    return None if tools is None else list(elements(tools, "tools", "tools"))


def _beginning(
    template: ChatTemplate, messages: Sequence[Message], tools: Tools, variables: Variables
) -> str | None:
    """The text of a conversation's first messages; None for a template that wants a user's message last."""
    try:
        return template.render(messages, tools=tools, variables=variables, add_generation_prompt=False)
    except TemplateError:
        return None


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
