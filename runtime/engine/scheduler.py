"""What the next step does: one pure decision from a few counts.

Decoding rows come first and take part in every step, so a long prompt never stalls them. What is left of the
token budget, but no more than they would notice, goes to the one row that is being prefilled. A second prompt
waits until the first has been read: two prompts read at the same time finish later than one after the other,
and with one at a time caches need only slices. But a short prompt passes a long one: it would wait for
minutes, and the long one finishes hardly later.
"""

from runtime.records import dataclass

LEAST_BUDGET = 64
"""Several stages read at least so many tokens at once: fewer do not fill a matrix product. On a Zen 5 a
prompt takes 2 % longer in chunks of 64 than in larger ones, and 14 % longer in chunks of 32.
"""

SHORT = 4
"""A prompt is short relative to one that has so many times as many unread tokens."""


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
    restoring: bool = False
    """Is the row being prefilled still to be put back, as far as it is known?"""
    passing: bool = False
    """Is a waiting request to be read before the row being prefilled?"""


@dataclass(frozen=True, slots=True)
class Work:
    """What the next step does."""

    decode: bool = False
    """Run one step over all decoding rows."""
    prefill: int = 0
    """Tokens to read of the row being prefilled."""
    admit: bool = False
    """Open a row first, for the oldest waiting request or one that passes."""

    restore: bool = False
    """The row being prefilled is still to be put back, which comes before any step."""

    @property
    def idle(self) -> bool:
        return not (self.decode or self.prefill or self.admit or self.restore)


def budget(tokens: int, stages: int) -> int:
    """The token budget of a step, which is `tokens` on one machine. Several stages read a prompt at the same
    time, each at another chunk of it, and some idle during its first and last chunks: so chunks are smaller.
    """
    return tokens if stages == 1 else min(tokens, max(tokens // (4 * stages), LEAST_BUDGET))


def passes(prompt: int, read: int, unread: int) -> bool:
    """Is a prompt of `prompt` tokens to be read before one that is being read, of which `unread` are left?
    read: tokens read of that one, less those of all prompts that have passed it already, so that it gets half
    of the time however many come.
    """
    return prompt <= read and SHORT * prompt <= unread


def decide(load: Load, budget_tokens: int, paced_tokens: int) -> Work:
    """The next step. `budget_tokens` bounds what one step computes, `paced_tokens` what it reads
    (`runtime.engine.pace`); a prefill still gets at least one token.
    """
    if load.restoring:
        return Work(decode=load.decoding > 0, restore=True)
    if load.waiting and load.free_rows and (load.passing or not load.prefilling):
        return Work(admit=True)
    left = max(min(budget_tokens - load.decoding, paced_tokens), 1)
    return Work(decode=load.decoding > 0, prefill=min(load.prefilling, left))
