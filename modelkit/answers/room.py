"""How far an answer may go: what is left of the context, or beyond it where old tokens may be forgotten."""

from typing import Literal

from modelkit.modelfile import Resolved
from runtime.records import dataclass

Limit = Literal["num_predict", "context"]

# An answer that may forget, with no num_predict and from a model that never ends, has to end somewhere: after
# so many times its context, as with Ollama.
_ENDLESS_CONTEXTS = 10


@dataclass(frozen=True, slots=True)
class Room:
    """What an answer may have."""

    tokens: int
    """The most that may follow the prompt."""

    limit: Limit
    """What sets that."""

    keep: int | None = None
    """As in the engine's Request."""


def room_for(prompt: int, context: int, wanted: Resolved) -> Room | None:
    """For a prompt of so many tokens; None where it leaves no room at all."""
    left, most = context - prompt, wanted.num_predict
    if left < 1:
        return None
    if 0 <= most < left:
        return Room(most, "num_predict")
    if wanted.context_shift == "off":
        return Room(left, "context")
    if most == left:
        return Room(most, "num_predict")
    return Room(
        most if most >= 0 else _ENDLESS_CONTEXTS * context,
        "num_predict",
        kept_tokens(prompt, context, wanted.num_keep),
    )


def kept_tokens(prompt: int, context: int, num_keep: int | None) -> int:
    """How many of a prompt's first tokens are never forgotten: those of num_keep, -1 being all. Unset,
    at most half of the context, so that what is forgotten makes room for a while. The very first stays in any
    case: attention rests on it.
    """
    if num_keep is None:
        kept = min(prompt, context // 2)
    else:
        kept = prompt if num_keep < 0 else min(num_keep, prompt)
    return max(kept, 1)
