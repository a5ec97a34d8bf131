"""What crosses the border of the engine's thread: plain frozen values, ids as ints, logprobs as floats."""

from dataclasses import dataclass, field
from typing import Literal

from runtime.sampling.constraint import Constraint
from runtime.sampling.params import SamplingParams

Reason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True, slots=True)
class Request:
    """One sequence to continue.

    ids: the prompt, at least one token; where an encoder reads the prompt, that is `source`, and ids are what
    the answer begins with. max_tokens: upper bound of generated tokens, at least 0. stop_ids:
    ids that end the text; they are not part of it.
    top_logprobs: None for none, n to report the chosen token's log-probability and those of the n likeliest.
    draft_tokens: most tokens to guess ahead, 0 for none, None to leave it to what pays.
    marks: where other prompts may branch off this one, as token offsets: behind the system part, behind each
    message, before the generation prompt. Only the speed of later requests depends on them.
    keep: when the context fills up while this is answered, so many of the first tokens stay, some behind them
    are forgotten and the answer goes on (see runtime.cache.shift); None: it may not come to that.
    constraint: the grammar that the answer follows, from its first token on; an answer that is whole ends.
    """

    ids: tuple[int, ...]
    max_tokens: int
    sampling: SamplingParams
    stop_ids: frozenset[int] = frozenset()
    top_logprobs: int | None = None
    draft_tokens: int | None = None
    marks: tuple[int, ...] = ()
    constraint: Constraint | None = None
    keep: int | None = None
    source: tuple[int, ...] = ()

    @property
    def prompt_tokens(self) -> int:
        return len(self.source) or len(self.ids)


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """log p of one token under the model's own distribution, before penalties and temperature."""

    id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Delta:
    """Newly generated tokens, in order."""

    ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Drafts:
    """What one drafter proposed, and how much of it was kept, in tokens."""

    drafter: str
    drafted_tokens: int
    accepted_tokens: int


@dataclass(frozen=True, slots=True)
class Usage:
    """What one request cost. Counts are tokens, times are seconds."""

    prompt_tokens: int = 0
    """All of the prompt."""
    cached_tokens: int = 0
    """Those of them that were not computed again."""
    generated_tokens: int = 0
    """Tokens emitted, the stop token excluded."""
    drafted_tokens: int = 0
    """What drafters proposed."""
    accepted_tokens: int = 0
    """How many of the proposed tokens were kept."""
    wait_s: float = 0.0
    """In the queue."""
    prefill_s: float = 0.0
    """From there to the first token."""
    decode_s: float = 0.0
    """From the first token to the last."""
    rounds: int = 0
    """Passes of the target after the prompt was read. One without drafts makes one token, and the first token
    comes out of the prompt's own pass.
    """
    dropped_tokens: int = 0
    """Tokens that were forgotten while answering, as the context was full."""
    drafts: tuple[Drafts, ...] = ()
    """Drafted and accepted by drafter."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Why a stream ended, and what it cost. `stop_id` is the id that ended it, when one did."""

    reason: Reason
    usage: Usage = field(default_factory=Usage)
    stop_id: int | None = None
