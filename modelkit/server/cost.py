"""What several answers to one request cost together."""

from collections.abc import Sequence
from itertools import zip_longest

from runtime.engine.request import Drafts, Usage


def together(usages: Sequence[Usage]) -> Usage:
    """Of all of them; times are those of the longest. A prompt that several of them have is one for each, and
    cached where another has read it.
    """
    return Usage(
        prompt_tokens=sum(one.prompt_tokens for one in usages),
        cached_tokens=sum(one.cached_tokens for one in usages),
        generated_tokens=sum(one.generated_tokens for one in usages),
        drafted_tokens=sum(one.drafted_tokens for one in usages),
        accepted_tokens=sum(one.accepted_tokens for one in usages),
        wait_s=max((one.wait_s for one in usages), default=0.0),
        prefill_s=max((one.prefill_s for one in usages), default=0.0),
        decode_s=max((one.decode_s for one in usages), default=0.0),
        rounds=sum(one.rounds for one in usages),
        dropped_tokens=sum(one.dropped_tokens for one in usages),
        drafts=_by_drafter(usages),
    )


def _by_drafter(usages: Sequence[Usage]) -> tuple[Drafts, ...]:
    found: dict[str, Drafts] = {}
    for one in (draft for usage in usages for draft in usage.drafts):
        before = found.get(one.drafter, Drafts(one.drafter, 0, 0))
        found[one.drafter] = Drafts(
            one.drafter,
            before.drafted_tokens + one.drafted_tokens,
            before.accepted_tokens + one.accepted_tokens,
            tuple(map(sum, zip_longest(before.lengths, one.lengths, fillvalue=0))),
        )
    return tuple(found.values())
