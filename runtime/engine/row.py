"""One sequence while the engine works on it: the engine's own, mutable notes about a request."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import field

from runtime.cache.shift import Shift
from runtime.engine.request import Delta, Drafts, Finish, PromptProgress, Reason, Request, TokenLogprob, Usage
from runtime.engine.stream import Stream
from runtime.records import dataclass
from runtime.sampling.constraint import ConstraintFault, Matcher, allows, without


@dataclass(slots=True, eq=False)
class Row:
    """What the engine notes of one request. Times: seconds of the monotonic clock, 0 until they happen."""

    request: Request
    stream: Stream
    space: str = ""
    """Distinguishes its layer memory from that of rows with the same ids but other adapters
    (`runtime.engine.adapters`); "" without any.
    """
    shift: Shift | None = None
    """What it forgets when its context is full; None: prompt and answer fit."""
    ids: list[int] = field(init=False)
    """The prompt and all tokens read back so far, less those of `dropped`."""
    dropped: list[int] = field(init=False, default_factory=list[int])
    """Ids that it has forgotten; they stood behind the first shift.keep ids."""
    length: int = 0
    """How many of `ids` layer memory holds, from the first on."""
    known: int | None = None
    """Of its tokens so many were kept when it was asked last while it waited; None: it was not."""
    asked: int = 0
    """So often the disk was asked for it since it began to wait."""
    since: int = 0
    """`length` when it got its place, plus the tokens of rows that have passed it since."""
    room: int | None = None
    """The most tokens it may hold as it is read now; with one more it begins anew, as a long row
    (`runtime.engine.prefixes`) or after a shift. None: no limit.
    """
    cached: int = 0
    """Tokens of the prompt that were not computed again."""
    done: bool = False
    """It has lost its place; a token of it may still be in flight."""
    submitted_s: float = field(default_factory=time.monotonic)
    """When the request came."""
    rounds: int = 0
    """Passes of the target that decoded it."""
    drafted: Counter[str] = field(default_factory=Counter[str])
    """Tokens by drafter."""
    accepted: dict[str, Counter[int]] = field(default_factory=dict[str, "Counter[int]"])
    """By drafter: in how many rounds so many of its tokens were kept."""
    stop_id: int | None = None
    """The token that ended the text."""
    matcher: Matcher | None = field(init=False, default=None)
    """Stands in the request's grammar where `ids` end; None: no grammar."""
    masks: tuple[bytes | None, bytes | None] = (None, None)
    """What the grammar allowed at its last two draws, the newest last; None where that is not known."""
    fault: ConstraintFault | None = None
    """Why the grammar cannot say what comes next."""
    broken: bool = False
    """Nothing that was computed for it is to be kept: its logits were not numbers."""
    admitted_s: float = 0.0
    """When it got a place."""
    first_token_s: float = 0.0
    """When its first token was read back."""

    def __post_init__(self) -> None:
        self.ids = list(self.request.ids)
        if self.request.constraint is not None:
            self.matcher = self.request.constraint.matcher()

    @property
    def cancelled(self) -> bool:
        """The caller has left."""
        return self.stream.cancelled

    @property
    def generated(self) -> int:
        return len(self.ids) + len(self.dropped) - len(self.request.ids)

    @property
    def position(self) -> int:
        """Where the next token stands in all that was read and said."""
        return len(self.ids) + len(self.dropped)

    @property
    def unread(self) -> int:
        """Tokens to read before the next can be drawn: of the prompt, or of all once it has to start anew."""
        return len(self.ids) - self.length

    @property
    def to_read(self) -> int:
        """The most tokens that are to be read once it gets a place, by what is known of it."""
        return max(len(self.ids) - (self.known or 0), len(self.request.source))

    @property
    def full(self) -> bool:
        """Has it no room left for another token?"""
        return self.room is not None and self.length >= self.room

    @property
    def outgrown(self) -> bool:
        """Has it filled its context, so that it has to forget something before it goes on?"""
        return self.shift is not None and self.length >= self.shift.room

    def forget(self) -> None:
        """Drop from the ids those that the shift forgets."""
        assert self.shift is not None
        keep, stop = self.shift.keep, self.shift.stop
        self.dropped += self.ids[keep:stop]
        del self.ids[keep:stop]

    @property
    def _forgets(self) -> tuple[int, int] | None:
        if self.shift is None:
            return None
        return self.shift.room - len(self.request.ids) + 1, self.shift.stop - self.shift.keep

    def rewind(self) -> None:
        """It has lost its place in memory. If forgotten tokens had left a trace there, it has to read them
        again and forget them again.
        """
        self.length, self.known, self.asked = 0, None, 0
        if self.shift is not None and self.shift.turns:
            self.ids[self.shift.keep : self.shift.keep] = self.dropped
            self.dropped.clear()

    @property
    def read(self) -> tuple[int, ...]:
        """The tokens that are in memory. A stop token is among them if it was fed before it was read back."""
        ids = self.ids if self.stop_id is None else [*self.ids, self.stop_id]
        assert len(ids) >= self.length
        return tuple(ids[: self.length])

    @property
    def last_is_drawn(self) -> bool:
        """The token in flight is the last one this request may have: nothing need be computed after it."""
        return self.generated + 1 >= self.request.max_tokens

    @property
    def most_drafts(self) -> int:
        """How many drafts could still be used: after the last of them one token more is drawn anyway."""
        limits = [self.request.max_tokens - self.generated - 1]
        if self.request.draft_tokens is not None:
            limits.append(self.request.draft_tokens)
        if self.room is not None:
            limits.append(max(self.room - self.length - 1, 0))
        return min(limits)

    @property
    def open_matcher(self) -> Matcher | None:
        """The matcher of a row that goes on: one that is done draws nothing more."""
        return None if self.done else self.matcher

    def agrees(self, drawn: list[int], drafts: list[int]) -> int:
        """How many inputs of a block are kept: the newest token, and the drafts before the first that differs
        from what was drawn.

        A stop token that was drawn ends the text; drafts after it do not count.
        """
        kept = 1
        for guess, token in zip(drafts, drawn, strict=False):
            if guess != token or token in self.request.stop_ids:
                break
            kept += 1
        return kept

    def tell_progress(self) -> None:
        """Let the reader know how much of the prompt is in memory."""
        total = self.request.prompt_tokens
        read = total if self.request.source and self.length else min(self.length, total)
        self.stream.progress = PromptProgress(total, self.cached, max(read, self.cached))

    def judged(self, drafter: str, drafted: int, accepted: int) -> None:
        """Count a round of the target in which this drafter's drafts were verified."""
        self.rounds += 1
        if drafted:
            self.drafted[drafter] += drafted
            self.accepted.setdefault(drafter, Counter())[accepted] += 1

    def take(self, token: int, logprob: TokenLogprob | None) -> Reason | None:
        """Accept one token; the reason to end, if it ends here. A stop token is not part of the text.

        Raises ConstraintFault where the grammar has nothing to draw from.
        """
        if not self.first_token_s:
            self.first_token_s = time.monotonic()
        if token in self.request.stop_ids:
            self.stop_id = token
            return "stop"
        self.ids.append(token)  # whatever becomes of it, it may be in memory already
        if self.fault is not None:
            raise self.fault
        if self.matcher is not None:
            self.matcher.advance(token)
        self.stream.put(Delta((token,), () if logprob is None else (logprob,)))
        if self.matcher is not None and self.matcher.ended:
            return "stop"
        return "length" if self.generated >= self.request.max_tokens else None

    def refuses(self, token: int) -> bool:
        """Did its grammar fail because it forbids this token while it allows others? Such a token can only
        have been drawn from logits that are not numbers.
        """
        if self.matcher is None or self.fault is not None:
            return False
        with suppress(ConstraintFault):
            self.matcher.back(0)  # it has failed, and stands again where it did
            mask = self.matcher.mask()
            never = self.request.sampling.suppressed
            return not allows(mask, token) and any(without(mask, never))
        return False

    def broke_off(self, drafts: list[int]) -> None:
        """It has ended, maybe inside a block. drafts: those of the block that are in memory and so belong to
        its ids.
        """
        missing = self.length - len(self.ids) - (self.stop_id is not None)
        if missing > 0:
            self.ids += drafts[-missing:]

    def _drafts(self) -> Iterator[Drafts]:
        for name, drafted in self.drafted.items():
            rounds = self.accepted[name]
            lengths = tuple(rounds[length] for length in range(max(rounds) + 1))
            yield Drafts(name, drafted, sum(length * count for length, count in rounds.items()), lengths)

    def end(self, reason: Reason) -> None:
        """Tell the caller that it has ended, why, and what it cost."""
        now = time.monotonic()
        admitted = self.admitted_s or now
        first = self.first_token_s or now
        drafts = tuple(self._drafts())
        usage = Usage(
            prompt_tokens=self.request.prompt_tokens,
            cached_tokens=self.cached,
            generated_tokens=self.generated,
            drafted_tokens=sum(one.drafted_tokens for one in drafts),
            accepted_tokens=sum(one.accepted_tokens for one in drafts),
            rounds=self.rounds,
            dropped_tokens=len(self.dropped),
            drafts=drafts,
            wait_s=admitted - self.submitted_s,
            prefill_s=first - admitted,
            decode_s=now - first,
        )
        self.stream.put(Finish(reason, usage, self.stop_id, self._forgets))
