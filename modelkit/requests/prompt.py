"""Conversations in words and tokens: the chat template with the package's own system text and messages.

A prompt also knows where conversations like it may branch: behind its opening, around the last message of the
user, and before the words that invite the answer. The engine may keep what it computed up to there.

A conversation that has outgrown the context loses turns out of its middle (`modelkit.chat.truncation`).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import takewhile

from modelkit.arguments import elements, mapping
from modelkit.chat.builtin import builtin_templates
from modelkit.chat.find import broken_template, find_template, no_template
from modelkit.chat.message import Message
from modelkit.chat.placement import inherited_notes, refuse_unplaced
from modelkit.chat.rendering import Frame, Rendering, Tools
from modelkit.chat.styles.choice import choose
from modelkit.chat.styles.opening import Opening, opening_of
from modelkit.chat.styles.style import Style
from modelkit.chat.styles.thinking import Thinking, ends_for, thinking_of, thinking_variables
from modelkit.chat.template import ChatTemplate
from modelkit.chat.truncation import PromptBudget, TokenCounting, truncate
from modelkit.chat.turns import OPENING, opening
from modelkit.errors import TemplateError
from modelkit.pack.metadata import Metadata
from modelkit.tokenizer import Tokenizer
from modelkit.tokenizer.long_texts import TextTokens, tokens_of
from runtime.records import dataclass

_MOST_TEMPLATES = 8  # of requests' own that are kept compiled


@dataclass(frozen=True, slots=True)
class Prompt:
    """What goes to the model."""

    ids: tuple[int, ...]
    marks: tuple[int, ...] = ()
    """Where other prompts may part from this one: numbers of tokens, ascending."""
    dropped: int = 0
    """Messages that were left out, for the rest to fit."""
    estimate: int | None = None
    """About how many tokens it has, where `ids` are those of its beginning, as it is far too long."""
    turn: "Turn | None" = None
    """What the answer is part of; None for a prompt without a conversation, whose answer is all text."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The assistant's turn in a conversation."""

    opening: Opening
    """Where in it the answer begins."""
    tools: Tools
    """What may be called, in OpenAI's shape."""
    earlier_calls: int
    """How many calls the conversation has had."""

    @property
    def tool_names(self) -> tuple[str, ...]:
        return tuple(tool["function"]["name"] for tool in self.tools or ())


@dataclass(frozen=True, slots=True)
class _Rendered:
    """A conversation in tokens."""

    messages: Sequence[Message]
    text: str
    tokens: TextTokens
    dropped: int = 0
    """As in Prompt."""


class Prompter:
    """`template` is None for a model without one; then conversations are refused. fault: why its own cannot
    be used. style: how the model's answers are marked; None to find it out.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        metadata: Metadata,
        fault: TemplateError | None = None,
        style: Style | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.template = template
        self.style = style or choose(template, metadata.parser, tokenizer).style
        """How the model's answers are marked; None where that is not known."""
        if template is not None:
            template.style = self.style
        self.fault = fault
        self._system = metadata.system
        self._saved = metadata.messages
        self._earlier = [Message(role, content) for role, content in metadata.messages]
        self._metadata = metadata
        self._templated = lru_cache(_MOST_TEMPLATES)(self._with)

    @property
    def bare(self) -> bool:
        """Does every prompt go without a template? Not so where one is broken: that has to be said."""
        return self.template is None and self.fault is None

    def templated(self, text: str) -> "Prompter":
        """The same with another template: what TEMPLATE takes. How the model marks its answers stays: that is
        the model's. Raises TemplateError.
        """
        return self._templated(text)

    def _with(self, text: str) -> "Prompter":
        template = ChatTemplate.of(find_template({}, text) or "", self.tokenizer.specials)
        return Prompter(self.tokenizer, template, self._metadata, style=self.style)

    def raw(self, text: str, most: int | None = None) -> Prompt:
        """The text as it is, framed as the model expects a bare prompt. most: as in `chat`."""
        tokens = tokens_of(self.tokenizer, text, most, add_special=True)
        return Prompt(tokens.ids, estimate=None if tokens.whole else tokens.count)

    def chat(
        self,
        messages: Sequence[Message],
        frame: Frame | None = None,
        fit: PromptBudget | None = None,
        most: int | None = None,
    ) -> Prompt:
        """A conversation, ready for the assistant's turn. fit: what it has to fit; None leaves it whole.
        most: tokens beyond which it will be refused: no marks are looked for then, and of what is far too
        long only the beginning is read. None: it is never too long.

        Raises TemplateError, RequestError, and ModelkitError where nobody waits for it.
        """
        rendering = self._rendering(frame or Frame())
        rendered = self._rendered(rendering, messages, fit, most)
        tokens = rendered.tokens
        refused = most is not None and tokens.count > most
        marks = () if refused else self._marks(rendering, rendered)
        estimate = None if tokens.whole else tokens.count
        return Prompt(tokens.ids, marks, rendered.dropped, estimate, self._turn(rendering, rendered))

    def text(
        self, messages: Sequence[Message], frame: Frame | None = None, fit: PromptBudget | None = None
    ) -> str:
        """What `chat` puts into tokens."""
        rendering = self._rendering(frame or Frame())
        if fit is None:
            return self._placed(rendering, messages, self._conversation(messages))
        return self._rendered(rendering, messages, fit, fit.context).text

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

    @property
    def thinking(self) -> Thinking:
        """What the template offers."""
        return Thinking() if self.template is None else thinking_of(self.style, self.template)

    def _turn(self, rendering: Rendering, rendered: _Rendered) -> Turn:
        continued = rendered.messages[-1].content if rendering.frame.continue_final else None
        calls = sum(len(message.tool_calls) for message in rendered.messages)
        return Turn(opening_of(self.style, rendered.text, continued), rendering.frame.tools, calls)

    def _required(self) -> ChatTemplate:
        if self.template is not None:
            return self.template
        if self.fault is None:
            raise no_template()
        raise broken_template(self.fault)

    def _rendering(self, frame: Frame) -> Rendering:
        template = self._required()
        # As a list: tools are read more than once, and a caller may give an iterator.
        tools = None if frame.tools is None else list(elements(frame.tools, "tools", "tools"))
        variables = {} if frame.variables is None else mapping(frame.variables, "variables")
        thinking = thinking_variables(self.style, template, frame.think)
        # A variable of the request's own wins: with one, what it says of thinking stands.
        ends = None if thinking.keys() & variables.keys() else ends_for(self.style, template, frame.think)
        return Rendering(template, replace(frame, tools=tools, variables={**thinking, **variables}), ends)

    def _rendered(
        self, rendering: Rendering, given: Sequence[Message], fit: PromptBudget | None, most: int | None
    ) -> _Rendered:
        """With the package's own parts, and all of `given` but for what is left out for the rest to fit."""
        conversation = self._conversation(given)
        text = self._placed(rendering, given, conversation)
        counting = self._counting(rendering, most)
        tokens = counting.text(text)
        if fit is None or tokens.count <= fit.wanted():
            return _Rendered(conversation, text, tokens)
        brought = len(conversation) - len(given)
        own = 1 if given[0].role in OPENING else 0
        found = truncate(conversation, own + brought, tokens, fit, counting)
        dropped = len(conversation) - len(found.messages)
        return _Rendered(found.messages, rendering.text(found.messages), found.tokens, dropped)

    def _placed(self, rendering: Rendering, given: Sequence[Message], conversation: Sequence[Message]) -> str:
        """The text of a conversation of `given` and the package's own parts. Those were spoken of in `notes`;
        what of `given` has no place in the text is refused.
        """
        text = rendering.text(conversation)
        own = 1 if given[0].role in OPENING else 0
        brought = len(conversation) - len(given)
        names = {
            place + (brought if place >= own else 0): f"messages[{place}]" for place in range(len(given))
        }
        refuse_unplaced(rendering, conversation, names, text)
        return text

    def _counting(self, rendering: Rendering, most: int | None) -> TokenCounting:
        def tokens(text: str) -> TextTokens:
            return tokens_of(self.tokenizer, text, most)

        def part(messages: Sequence[Message]) -> int | None:
            text = rendering.beginning(messages)
            return None if text is None else tokens(text).count

        return TokenCounting(tokens, lambda messages: tokens(rendering.text(messages)), part)

    def _conversation(self, messages: Sequence[Message]) -> list[Message]:
        """With the package's system text, unless the conversation has its own, and its saved messages."""
        own = list(messages[:1]) if messages[0].role in OPENING else []
        system = own or ([Message("system", self._system)] if self._system else [])
        return [*system, *self._earlier, *messages[len(own) :]]

    def _marks(self, rendering: Rendering, rendered: _Rendered) -> tuple[int, ...]:
        """How far shorter forms of the conversation agree with it: its opening, without the last message,
        whole.
        """
        messages = rendered.messages
        found: set[int] = set()
        for count in {opening(messages), len(messages) - 1, len(messages)} - {0}:
            text = rendering.beginning(messages[:count])
            if text is not None:
                found.add(self._common(rendered, text))
        return tuple(sorted(found - {0}))

    def _common(self, rendered: _Rendered, beginning: str) -> int:
        """How many tokens a prompt has in common with a text, most often its beginning. Then of the two parts
        of the prompt only the shorter is read: where its end alone has the tokens that it has in the prompt,
        there they part. A long conversation would be read four times otherwise.
        """
        ids, end = rendered.tokens.ids, rendered.text[len(beginning) :]
        if len(end) < len(beginning) and rendered.text.startswith(beginning):
            apart = self._encode(end)
            common = len(ids) - len(apart)
            if common >= 0 and ids[common:] == apart:
                return common
        return sum(1 for _ in takewhile(_equal, zip(ids, self._encode(beginning), strict=False)))

    def _encode(self, text: str) -> tuple[int, ...]:
        return tokens_of(self.tokenizer, text, None).ids


def _equal(pair: tuple[int, int]) -> bool:
    return pair[0] == pair[1]
