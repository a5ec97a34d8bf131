"""DRY: a token that would go on with a repetition is penalised, more with every token of it.

Definition, as in llama.cpp (`llama_sampler_dry_apply`, after p-e-w's proposal for text-generation-webui,
2024): let n be the length of the longest run of tokens that ends the text and stands somewhere before,
followed there by the token x. If n >= allowed, x loses multiplier * base ** (n - allowed). A run does not
reach across a breaker, nor beyond the window; a token that is a breaker itself loses nothing.

What differs: of overlapping breakers the one that ends last counts; and a penalty is at most LARGEST, which
no logit outweighs, so that what a grammar leaves alone can still be drawn. Hence runs are compared only as
far as that says.

Column t of a step has seen its inputs up to and including t, as for `penalties`. The ids must be known, so
the inputs are waited for; the device has been given the logits to compute by then.

Arrays: B rows, T columns, V vocabulary; N ids of one row.
"""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

import mlx.core as mx

from runtime.sampling.params import SamplingParams
from runtime.sampling.ranges import LONGEST_REPETITION, WHOLE_CONTEXT

if TYPE_CHECKING:
    import numpy as np

LARGEST = 1e6


class Repetitions:
    """The DRY penalties of B rows, some of which may have none."""

    def __init__(self, params: Sequence[SamplingParams]) -> None:
        self._params = params

    def apply(self, logits: mx.array, history: Sequence[Sequence[int]], inputs: mx.array) -> mx.array:
        """Penalised logits [B, T, V], float32. history and inputs: as for `Penalties.apply`."""
        mx.async_eval(logits)
        fed = cast("list[list[int]]", inputs.tolist())
        found = [
            (row, column, token, penalty)
            for row, (params, past, its) in enumerate(zip(self._params, history, fed, strict=True))
            if params.dry
            for column, token, penalty in _penalties(params, past, its)
        ]
        if not found:
            return logits
        rows, columns, tokens, penalties = zip(*found, strict=True)
        places = mx.array(rows), mx.array(columns), mx.array(tokens)
        return logits.at[places].add(-mx.array(penalties, dtype=mx.float32))


def _penalties(
    by: SamplingParams, past: Sequence[int], inputs: Sequence[int]
) -> Iterator[tuple[int, int, float]]:
    """(column, token, penalty) of one row."""
    import numpy as np  # only here: its import takes as long as a small model's whole start

    window = len(past) + 1 if by.dry_penalty_last_n == WHOLE_CONTEXT else by.dry_penalty_last_n
    line = np.array([*past[max(len(past) + 1 - window, 0) :], *inputs], dtype=np.int32)
    before = len(line) - len(inputs)
    for column in range(len(inputs)):
        stop = before + column + 1
        start = 0 if by.dry_penalty_last_n == WHOLE_CONTEXT else max(stop - window, 0)
        for token, length in followers(line[start:stop], by).items():
            yield column, token, penalty(by, length)


def penalty(by: SamplingParams, length: int) -> float:
    """What a token loses that would go on with so many repeated tokens."""
    grown = math.log(by.dry_multiplier) + math.log(by.dry_base) * (length - by.dry_allowed_length)
    return math.exp(min(grown, math.log(LARGEST)))


def longest(by: SamplingParams) -> int:
    """The length up to which a repetition's penalty grows."""
    growth = math.log(by.dry_base)
    if growth == 0:
        return by.dry_allowed_length
    growing = math.ceil((math.log(LARGEST) - math.log(by.dry_multiplier)) / growth)
    return min(by.dry_allowed_length + growing, LONGEST_REPETITION)


def followers(line: "np.ndarray", by: SamplingParams) -> dict[int, int]:
    """By token: how many of the last of these ids [N] stood before it the last time, for tokens that would go
    on with `dry_allowed_length` or more.
    """
    import numpy as np

    limit = min(longest(by), len(line) - 1)
    breakers, least = by.dry_breakers, by.dry_allowed_length
    if breakers is not None:
        limit = min(limit, breakers.behind(line[-limit - breakers.reach :].tolist()) if limit else 0)
    found = dict.fromkeys(line[1:].tolist(), 0) if least == 0 else {}
    places = np.flatnonzero(line[:-1] == line[-1]) if limit >= max(least, 1) else np.array([], dtype=np.int64)
    length = 1
    while places.size:  # at each of them `length` ids are the same, and a later length is a greater one
        same = (places >= length) & (line[places - length] == line[-1 - length]) & (length < limit)
        if length >= least:
            found.update(dict.fromkeys(line[places[~same] + 1].tolist(), length))
        places, length = places[same], length + 1
    return (
        found if breakers is None else {token: n for token, n in found.items() if not breakers.breaks(token)}
    )
