"""The events of an answer, in the order in which the model writes it.

Of one call come CallStart, any number of CallArguments, CallEnd, with the same index and nothing of another
call between them. Indices count from 0. The texts of one call's CallArguments, joined, are the JSON text of
an object, and each beginning of them is the beginning of one, whatever way of writing the model has; where an
answer is cut off, or the model wrote what is not JSON, they stop at that place.

Marks (such as <think> and <tool_call>) are in no event, neither as text nor as tokens.
"""

from runtime.engine.request import TokenLogprob
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Thinking:
    """A piece of what the model thinks before it answers."""

    text: str
    ids: tuple[int, ...] = ()
    """The tokens whose text begins in this piece, or in a mark that ends where it begins."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """One for each of the ids, where they were asked for."""


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer itself."""

    text: str
    ids: tuple[int, ...] = ()
    """As in Thinking."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """As in Thinking."""


@dataclass(frozen=True, slots=True)
class CallStart:
    """The model calls a tool."""

    index: int
    id: str
    """Ties the tool's result to the call."""
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the JSON text of a call's arguments."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """A call is written to its end, or to where the answer ends."""

    index: int
    rest: str = ""
    """What the model wrote from where its arguments were not JSON any more."""


Event = Thinking | Text | CallStart | CallArguments | CallEnd
