"""What the next step does: one pure decision from a few counts.

Decoding rows come first and always take part, so a long prompt never stalls them; what is left of the token
budget, and no more than they hardly notice, goes to the one row that is being prefilled. A second prompt
waits until the first has been read: two half-read prompts finish later than one after the other, and caches
then need slices only. But one that is short passes a long one: its answer came after minutes, and the other's
comes hardly later.
"""

from runtime.records import dataclass

LEAST_BUDGET = 64
"""What several stages read at once at the least: less does not fill a product. On a Zen 5 a prompt takes 2 %
longer in chunks of 64 than in any that are larger, and 14 % in chunks of 32.
"""

SHORT = 4
"""A prompt is short beside one of which so many times as much is unread."""


@dataclass(frozen=True, slots=True)
class Load:
    """The engine's state as the decision sees it."""

    decoding: int
    """Rows that continue."""
    prefilling: int
    """Tokens still to be read of the row being prefilled; 0: there is none."""
    waiting: int
    """Requests without a row."""
    free_rows: int
    """Rows that could still be opened."""
    passing: bool = False
    """Is one that waits to be read before the one being prefilled?"""


@dataclass(frozen=True, slots=True)
class Work:
    """What the next step does."""

    decode: bool = False
    """Run one step over all decoding rows."""
    prefill: int = 0
    """Tokens to read of the row being prefilled."""
    admit: bool = False
    """Open a row first, for the oldest waiting request or one that passes."""

    @property
    def idle(self) -> bool:
        return not (self.decode or self.prefill or self.admit)


def budget(tokens: int, stages: int) -> int:
    """What one step computes where it computes `tokens` on one machine. A prompt is read by all stages at a
    time, each at another chunk of it, and they wait for its first and its last: so chunks are smaller.
    """
    return tokens if stages == 1 else min(tokens, max(tokens // (4 * stages), LEAST_BUDGET))


def passes(prompt: int, read: int, unread: int) -> bool:
    """Is a prompt of so many tokens to be read before another goes on, of which `unread` tokens are left?
    read: those that were read of it, less those of all that have passed it already. So however many come, it
    gets half of the time.
    """
    return prompt <= read and SHORT * prompt <= unread


def decide(load: Load, budget_tokens: int, beside_tokens: int) -> Work:
    """The next step. `budget_tokens` bounds what one step computes, `beside_tokens` what it reads beside rows
    that write (`runtime.engine.pace`); a prefill still gets at least one token.
    """
    if load.waiting and load.free_rows and (load.passing or not load.prefilling):
        return Work(admit=True)
    left = max(min(budget_tokens - load.decoding, beside_tokens if load.decoding else budget_tokens), 1)
    return Work(decode=load.decoding > 0, prefill=min(load.prefilling, left))
