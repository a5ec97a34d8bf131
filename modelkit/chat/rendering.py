"""How one request's conversation becomes text: the template, and all that it is given beside messages."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from modelkit.chat.message import Message
from modelkit.chat.styles.ends import Ends
from modelkit.chat.template import ChatTemplate
from modelkit.errors import TemplateError
from runtime.records import dataclass

Tools = Sequence[Mapping[str, Any]] | None
Variables = Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Frame:
    """What a request gives the template beside its messages."""

    tools: Tools = None
    """Functions that the model may call, in OpenAI's shape."""
    variables: Variables = None
    """What this template reads beyond messages and tools."""
    continue_final: bool = False
    """The prompt ends inside the last message, the assistant's, for the model to go on from there."""
    think: str = "auto"
    """What is asked of the model's thinking, as the parameter says it; `variables` win."""


@dataclass(frozen=True, slots=True)
class Rendering:
    """The same for every form of a conversation that a request looks at."""

    template: ChatTemplate
    frame: Frame = Frame()
    ends: Ends | None = None
    """What keeps the model from thinking, where it shall not; None where nothing has to."""

    def text(self, messages: Sequence[Message]) -> str:
        """The prompt. Raises TemplateError, RequestError."""
        frame = self.frame
        text = self.template.render(
            messages, tools=frame.tools, variables=frame.variables, continue_final=frame.continue_final
        )
        return text if self.ends is None or frame.continue_final else self.ends.held(text)

    def tried(self, messages: Sequence[Message]) -> str | None:
        """The prompt; None where the template refuses these messages."""
        try:
            return self.text(messages)
        except TemplateError:
            return None

    def beginning(self, messages: Sequence[Message]) -> str | None:
        """The text of a conversation's first messages, with no invitation to answer; None for a template that
        wants a user's message last.
        """
        tools, variables = self.frame.tools, self.frame.variables
        try:
            return self.template.render(
                messages, tools=tools, variables=variables, add_generation_prompt=False
            )
        except TemplateError:
            return None

    def without_tools(self) -> "Rendering":
        return replace(self, frame=replace(self.frame, tools=None))
