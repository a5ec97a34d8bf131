"""A conversation that has outgrown the context, made to fit: what stays, found by rendering it.

`modelkit.chat.turns` has the rule and counts in tokens of messages. What a template puts around and between
them is found here: exactly for the part in front, which stays, and as an average for the rest. So a shorter
conversation is rendered and counted, and if that average was too low, it is shortened again.
"""

import json
from collections.abc import Callable, Sequence

from modelkit.chat.message import Message
from modelkit.chat.turns import Unit, left_out, opening, units
from modelkit.tokenizer.long_texts import TextTokens
from runtime.records import dataclass

# Room for an answer of unknown length, in tokens.
_ANSWER_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class PromptBudget:
    """How much room there is for a conversation."""

    context: int
    """Tokens of prompt and answer together."""
    answer: int = _ANSWER_TOKENS
    """Tokens that the answer should have room for."""
    keep: int | None = None
    """The parameter num_keep: so many tokens in front stay, in whole turns. None and -1: the first turn."""

    @classmethod
    def of(cls, context: int, num_predict: int, num_keep: int | None) -> "PromptBudget":
        return cls(context, num_predict if num_predict >= 0 else _ANSWER_TOKENS, num_keep)

    @property
    def most(self) -> int:
        """Tokens that a prompt can have at all."""
        return self.context - 1

    def wanted(self, fixed: int = 0) -> int:
        """Tokens of a prompt that leaves its answer room: all that it asks for, or a quarter of what `fixed`
        tokens leave.
        """
        return self.context - max(min(self.answer, (self.context - fixed) // 4), 1)


@dataclass(frozen=True, slots=True)
class TokenCounting:
    """Which tokens a conversation, or some of it, becomes."""

    text: Callable[[str], TextTokens]
    """Those of a text alone."""
    prompt: Callable[[Sequence[Message]], TextTokens]
    """Those of its whole prompt."""
    part: Callable[[Sequence[Message]], int | None]
    """How many tokens a beginning of it has; None where the template does not take such a beginning."""


@dataclass(frozen=True, slots=True)
class _Whole:
    """The conversation before anything is left out."""

    messages: Sequence[Message]
    tokens: int
    """Of its prompt."""
    sizes: Sequence[int]
    """Tokens of each message alone."""
    counting: TokenCounting

    def front(self, stop: int) -> int:
        """Tokens of the first `stop` messages."""
        if not stop:
            return 0
        exact = self.counting.part(self.messages[:stop])
        share = sum(self.sizes[:stop]) / max(sum(self.sizes), 1)
        return round(self.tokens * share) if exact is None else exact

    def counted(self, start: int, front: int) -> list[int]:
        """Tokens of each message with what stands around it, where those before `start` have `front`."""
        around = self.tokens - front - sum(self.sizes[start:])
        each = max(around, 0) // max(len(self.messages) - start, 1)
        return [size + each for size in self.sizes]


@dataclass(frozen=True, slots=True)
class Truncated:
    """What is left of a conversation."""

    messages: list[Message]
    tokens: TextTokens
    """The prompt of these."""


def truncate(
    conversation: Sequence[Message],
    given: int,
    tokens: TextTokens,
    fit: PromptBudget,
    counting: TokenCounting,
) -> Truncated:
    """What is left of the conversation, and the prompt of that.

    given: where in it the caller's own messages begin, behind those of the package. tokens: the prompt of
    all of it. What cannot be made to fit comes back as short as it gets: the caller sees that it is too long.
    """
    parts = units(conversation)
    found = Truncated(list(conversation), tokens)
    if all(part.firm for part in parts[:-1]):  # what came last stays
        return found
    sizes = [counting.text(_text_of(one)).count for one in conversation]
    whole = _Whole(conversation, tokens.count, sizes, counting)
    for kept in _kept(whole, given, parts, fit.keep):
        found = _shortened(whole, parts[kept:], tokens, fit)
        if found.tokens.count <= fit.most:
            break
    return found


def _shortened(whole: _Whole, parts: Sequence[Unit], tokens: TextTokens, fit: PromptBudget) -> Truncated:
    messages = whole.messages
    start = parts[0].start if parts else len(messages)
    fixed = whole.front(start)
    sizes, wanted = whole.counted(start, fixed), fit.wanted(fixed)
    limit, step, gone = wanted, 0, frozenset[int]()
    left, short = list(messages), tokens
    while short.count > wanted and limit > -tokens.count:
        found = left_out(messages, parts, sizes, fixed, limit)
        if found != gone:
            gone = found
            left = [message for place, message in enumerate(messages) if place not in gone]
            short = whole.counting.prompt(left)
        step = max(short.count - wanted, 2 * step)
        limit -= step
    return Truncated(left, short)


def _kept(whole: _Whole, given: int, parts: Sequence[Unit], keep: int | None) -> list[int]:
    """How many units in front stay, and the smaller numbers to try where that is too much: half as many and
    so on, what the package brings, nothing but the opening.
    """
    brought, behind = sum(part.stop <= given for part in parts), max(len(parts) - 1, 0)
    wanted = min(brought + 1, behind) if keep is None or keep < 0 else _within(whole, parts[:behind], keep)
    fewer = {wanted >> times for times in range(wanted.bit_length() + 1)}
    return sorted({*fewer, min(wanted, brought)}, reverse=True)


def _within(whole: _Whole, parts: Sequence[Unit], tokens: int) -> int:
    """How many units begin within the first `tokens` tokens."""
    first = opening(whole.messages)
    place = whole.front(first)
    sizes = whole.counted(first, place)
    for count, part in enumerate(parts):
        if place >= tokens:
            return count
        place += sum(sizes[part.start : part.stop])
    return len(parts)


def _text_of(message: Message) -> str:
    """What a template will write of it, more or less."""
    calls = (json.dumps(call.as_template()["function"]) for call in message.tool_calls)
    return "\n".join([message.content, *calls])
