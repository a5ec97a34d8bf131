"""What a model answers, as values: the answer, its last event, and what is known before it begins."""

import json
from dataclasses import replace
from typing import Any, Literal

from modelkit.answers.room import Limit
from modelkit.chat.message import Message, ToolCall
from modelkit.output.collected import Collected
from runtime.engine.request import Finish as Ended
from runtime.engine.request import TokenLogprob, Usage
from runtime.quoting import quoted
from runtime.records import dataclass

Reason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True, slots=True)
class Generation:
    """An answer. `str(answer)`, and so `print(answer)`, is its text."""

    text: str
    """The answer itself, without thinking and calls."""
    ids: tuple[int, ...]
    """Every generated token except the stop token, including those of thinking, calls, marks and of a stop
    string, which are not in `text`.
    """
    usage: Usage
    reason: Reason
    """"stop": the model ended the answer, or a stop string did. "length": a limit was reached. "cancelled":
    the caller cancelled it.
    """
    seed: int
    """The seed that makes the same text again."""
    stop: str | None = None
    """The stop string that was found, if one was."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """One for each of the ids, where they were asked for."""
    cut: Limit | None = None
    """Which limit the reason "length" means: "num_predict", or "context", if prompt and answer together fill
    the context (with the parameter context_shift, the answer continues, and usage.dropped_tokens counts the
    tokens that were forgotten).
    """
    dropped_messages: int = 0
    """How many earlier messages were left out of the prompt because the conversation outgrew the context."""
    thinking: str | None = None
    """What the model thought before it answered; None if it did not think."""
    tool_calls: tuple[ToolCall, ...] = ()
    """The model's tool calls, in order."""
    parsed: Any = None
    """The answer's value, if JSON was requested (`format`) and the answer is complete."""
    notes: tuple[str, ...] = ()
    """Sentences on what of the request could not be enforced, such as a tool's schema."""

    @property
    def message(self) -> Message:
        """This answer as the conversation's next message."""
        return Message("assistant", self.text, self.thinking, self.tool_calls)

    @property
    def complete(self) -> bool:
        """Did the model end the answer itself? If it was to follow a format or grammar, it then does so to
        its end; otherwise it is only a beginning, which may not parse.
        """
        return self.reason == "stop" and self.stop is None

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        ended = self.reason if self.cut is None else f"{self.reason} by {self.cut}"
        return f"<Generation {quoted(self.text, 60)}, {len(self.ids):,} tokens, {ended}>"


@dataclass(frozen=True, slots=True)
class Finish:
    """The last event of an answer."""

    answer: Generation
    """All of it."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """What is known of an answer before it begins."""

    seed: int
    limit: Limit
    """What will cut it, if anything does."""
    stops: tuple[str, ...] = ()
    """Its stop strings."""
    prompt_ids: tuple[int, ...] = ()
    """What it follows."""
    dropped_messages: int = 0
    """As in Generation."""
    json: bool = False
    """It is to be JSON."""
    tools: tuple[str, ...] = ()
    """The names of those that it may call."""
    notes: tuple[str, ...] = ()
    """Sentences on what of the request could not be enforced."""


def answered(
    begun: Beginning,
    given: Collected,
    finish: Ended,
    stop: str | None,
    ids: tuple[int, ...],
    logprobs: tuple[TokenLogprob, ...],
) -> Generation:
    """The answer as far as it was given out. stop: the stop string that was found."""
    reason = "stop" if stop is not None else finish.reason
    whole = reason == "stop" and stop is None
    drawn = len(ids) + (whole and finish.stop_id is not None)
    dropped = min(finish.usage.dropped_tokens, finish.forgotten(drawn))
    return Generation(
        text=given.text,
        ids=ids,
        usage=replace(finish.usage, generated_tokens=len(ids), dropped_tokens=dropped),
        reason=reason,
        seed=begun.seed,
        stop=stop,
        logprobs=logprobs,
        cut=begun.limit if reason == "length" else None,
        dropped_messages=begun.dropped_messages,
        thinking=given.thinking,
        tool_calls=given.tool_calls,
        parsed=_read_json(given.text) if begun.json and whole else None,
        notes=begun.notes,
    )


def _read_json(text: str) -> Any:
    """None where it is none: an answer of calls alone has no text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
