"""What crosses the border of the engine's thread: plain frozen values, ids as ints, logprobs as floats."""

from dataclasses import field
from typing import Literal

from runtime.loaded import check_ids
from runtime.records import dataclass
from runtime.sampling.constraint import Constraint
from runtime.sampling.params import SamplingParams

Reason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True, slots=True)
class Request:
    """One sequence to continue."""

    ids: tuple[int, ...]
    """The prompt, at least one token. Where an encoder reads it, it is `source`; ids begin the answer."""
    max_tokens: int
    """Upper bound of generated tokens, at least 0."""
    sampling: SamplingParams
    stop_ids: frozenset[int] = frozenset()
    """Ids that end the text; they are not part of it."""
    top_logprobs: int | None = None
    """How many of the likeliest tokens are reported with each token and its own log-probability; None:
    nothing is.
    """
    draft_tokens: int | None = None
    """Most tokens to guess ahead; 0: none, None: as many as pay."""
    marks: tuple[int, ...] = ()
    """Where other prompts may branch off this one, as token offsets: behind the system part, behind each
    message, before the generation prompt. Only the speed of later requests depends on them.
    """
    constraint: Constraint | None = None
    """The grammar that the answer follows from its first token on; the answer ends once it is whole. None: no
    grammar.
    """
    keep: int | None = None
    """How many of the first tokens stay when the context fills up: some behind them are forgotten and the
    answer goes on (see runtime.cache.shift). None: prompt and max_tokens fit the context.
    """
    source: tuple[int, ...] = ()
    """The prompt, where an encoder reads it; () elsewhere."""
    adapters: tuple[tuple[str, float], ...] = ()
    """Those that answer, in order, each with its scale; () for the model alone."""

    @property
    def prompt_tokens(self) -> int:
        return len(self.source) or len(self.ids)

    def check(self, vocab_size: int, context: int, *, reads: bool) -> None:
        """Can a model with this vocabulary and context (tokens) do it? reads: an encoder reads its prompts.

        Raises BadTokenIds for ids outside the vocabulary, ValueError for an impossible length.
        """
        check_ids(self.ids, vocab_size)
        check_ids(self.source, vocab_size)
        check_ids([*self.sampling.logit_bias], vocab_size, "logit_bias")
        check_ids(self.sampling.suppressed, vocab_size)
        if bool(self.source) != reads or len(self.source) > context:
            raise ValueError(
                f"{len(self.source):,} tokens for an encoder to read; expected "
                f"{f'1 to {context:,}' if reads else 'none'}"
            )
        wanted = len(self.ids) + (self.max_tokens if self.keep is None else 1)
        if not self.ids or self.max_tokens < 0 or wanted > context:
            raise ValueError(
                f"{len(self.ids)} prompt tokens and {self.max_tokens} to generate "
                f"do not fit a context of {context:,}"
            )
        if self.keep is not None and not 0 <= self.keep <= len(self.ids):
            raise ValueError(f"{self.keep:,} tokens to keep of a prompt of {len(self.ids):,}")


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The natural logarithm of a token's probability under the model's own distribution, before penalties and
    temperature.
    """

    id: int
    """The token that was chosen."""
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    """(id, log-probability) of the likeliest, best first."""


@dataclass(frozen=True, slots=True)
class Delta:
    """Newly generated tokens, in order."""

    ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """How far a prompt has been read, in tokens."""

    total: int
    """All of it."""
    cached: int
    """Those that were not computed again."""
    read: int
    """Those that are in memory by now, `cached` among them."""


@dataclass(frozen=True, slots=True)
class Drafts:
    """What one drafter proposed."""

    drafter: str
    """Its name."""
    drafted_tokens: int
    accepted_tokens: int
    """How many of them were kept."""
    lengths: tuple[int, ...] = ()
    """In how many passes 0, 1, 2, ... of its tokens were kept; () where that is not known."""


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
    """Passes of the target after the prompt was read, with those that read anew what a full context has left
    over. One that decodes without drafts makes one token, and the first token comes out of the prompt's own
    pass.
    """
    dropped_tokens: int = 0
    """Tokens that were forgotten while answering, as the context was full."""
    drafts: tuple[Drafts, ...] = ()
    """Drafted and accepted by drafter."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Why a stream ended, and what it cost."""

    reason: Reason
    usage: Usage = field(default_factory=Usage)
    stop_id: int | None = None
    """The id that ended it; None where none did."""
    forgets: tuple[int, int] | None = None
    """How many tokens can be drawn before any is forgotten, and how many then are, each time; None where all
    fit. What is drawn ahead of a caller who stops reading may have forgotten more than the caller's own.
    """

    def forgotten(self, drawn: int) -> int:
        """Tokens that were forgotten for the first `drawn` ones."""
        if self.forgets is None:
            return 0
        fitting, each = self.forgets
        return max(-((fitting - drawn) // each), 0) * each
