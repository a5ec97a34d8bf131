"""One sequence while the engine works on it: the engine's own, mutable notes about a request."""

import time
from dataclasses import dataclass, field

from runtime.engine.request import Delta, Finish, Reason, Request, TokenLogprob, Usage
from runtime.engine.stream import Stream


@dataclass(slots=True, eq=False)
class Row:
    """`ids` are the prompt and all tokens read back so far; `length` is how many tokens layer memory holds.
    cached: tokens of the prompt that were not computed again. cancelled: the caller has left. done: the row
    has no place any more, whatever is still in flight for it. stop_id: the token that ended the text.

    Times are of the monotonic clock, in seconds; 0 until they happen.
    """

    request: Request
    stream: Stream
    ids: list[int] = field(init=False)
    length: int = 0
    cached: int = 0
    cancelled: bool = False
    done: bool = False
    submitted: float = field(default_factory=time.monotonic)
    drafted: int = 0
    accepted: int = 0
    stop_id: int | None = None
    admitted: float = 0.0
    first_token: float = 0.0

    def __post_init__(self) -> None:
        self.ids = list(self.request.ids)

    @property
    def generated(self) -> int:
        return len(self.ids) - len(self.request.ids)

    @property
    def unread(self) -> int:
        """Prompt tokens that are not in memory yet."""
        return max(len(self.request.ids) - self.length, 0)

    @property
    def read(self) -> tuple[int, ...]:
        """The tokens that are in memory. A stop token is among them when it was fed before it was known."""
        ids = self.ids if self.stop_id is None else [*self.ids, self.stop_id]
        assert len(ids) >= self.length
        return tuple(ids[: self.length])

    @property
    def last_is_drawn(self) -> bool:
        """The token in flight is the last one this request may have: nothing need be computed after it."""
        return self.generated + 1 >= self.request.max_tokens

    @property
    def most_drafts(self) -> int:
        """Drafts that could still be used: one token comes for free after the last of them."""
        limit = self.request.max_tokens - self.generated - 1
        return limit if self.request.draft_tokens is None else min(limit, self.request.draft_tokens)

    def agrees(self, drawn: list[int], drafts: list[int]) -> int:
        """How many inputs of a block stay: the newest token, and the drafts before the first that was not
        drawn.

        A stop token that was drawn ends the text; what was guessed after it does not count.
        """
        kept = 1
        for guess, token in zip(drafts, drawn, strict=False):
            if guess != token or token in self.request.stop_ids:
                break
            kept += 1
        return kept

    def take(self, token: int, logprob: TokenLogprob | None) -> Reason | None:
        """Accept one token; the reason to end, if it ends here. A stop token is not part of the text."""
        if not self.first_token:
            self.first_token = time.monotonic()
        if token in self.request.stop_ids:
            self.stop_id = token
            return "stop"
        self.ids.append(token)
        self.stream.put(Delta((token,), () if logprob is None else (logprob,)))
        return "length" if self.generated >= self.request.max_tokens else None

    def end(self, reason: Reason) -> None:
        """Tell the caller that no more comes, and what it cost."""
        now = time.monotonic()
        admitted = self.admitted or now
        first = self.first_token or now
        usage = Usage(
            prompt_tokens=len(self.request.ids),
            cached_tokens=self.cached,
            generated_tokens=self.generated,
            drafted_tokens=self.drafted,
            accepted_tokens=self.accepted,
            wait_s=admitted - self.submitted,
            prefill_s=first - admitted,
            decode_s=now - first,
        )
        self.stream.put(Finish(reason, usage, self.stop_id))
