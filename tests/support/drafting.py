"""Drafters that say what a test wants, and depths that do not wait for what pays."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import mlx.core as mx
import numpy as np
import pytest

from runtime.engine.engine import Engine
from runtime.engine.request import Request, Usage
from runtime.speculate.depth import Decision, Offer
from runtime.speculate.drafter import Proposal, Rows
from runtime.speculate.learner import Learner
from runtime.step import Step

Guess = Callable[[list[int], int], list[int]]
Texts = dict[tuple[int, ...], list[int]]
"""By prompt."""


class Idle:
    """The part of a drafter that knows nothing and keeps nothing."""

    limit = 7
    token_cost = 0.1

    def begin(self, row: int, ids: Sequence[int], space: str = "") -> None: ...
    def end(self, row: int, ids: Sequence[int]) -> None: ...
    def observe(self, step: Step, hidden: mx.array, kept: Sequence[int]) -> None: ...
    def settle(self, lengths: Sequence[int]) -> None: ...
    def move(self, src: int, dst: int) -> None: ...
    def clear(self, row: int) -> None: ...
    def resize(self, rows: int) -> None: ...


class Scripted(Idle):
    """Proposes what a function of a row's ids and the depth says."""

    def __init__(self, guess: Guess) -> None:
        self.guess = guess

    def propose(self, rows: Rows, depth: int) -> Proposal | None:
        guesses = [self.guess(list(ids), depth) for ids in rows.ids]
        padded = [list(guess) + [0] * (depth - len(guess)) for guess in guesses]
        return Proposal(mx.array(padded, dtype=mx.int32), tuple(len(guess) for guess in guesses))


def noise(ids: list[int], depth: int) -> list[int]:
    rng = np.random.default_rng(sum(ids))
    return [int(token) for token in rng.integers(3, 150, rng.integers(0, depth + 1))]


def always_drafting(monkeypatch: pytest.MonkeyPatch, depths: Sequence[int] = range(7)) -> None:
    """These depths in turn, whatever pays."""
    turn = itertools.cycle(depths)

    def decide(_self: Learner, grades: Mapping[str, int], most: int, _behind: object = ()) -> Decision:
        depth = min(next(turn), most)
        return Decision(tuple(Offer(name, depth, 1.0, 0.0, 1.0) for name in grades) if depth else ())

    monkeypatch.setattr(Learner, "decide", decide)


def put_right(proposal: Proposal | None, rows: Rows, depth: int, known: Texts) -> Proposal:
    """The same guesses, the first ones replaced by what is known to come, which random weights seldom guess.
    How many are replaced depends on the row's length.
    """
    assert proposal is not None
    tokens = cast("list[list[int]]", proposal.tokens.tolist())
    for guess, ids in zip(tokens, rows.ids, strict=True):
        prompt = next(prompt for prompt in known if tuple(ids[: len(prompt)]) == prompt)
        right = [*prompt, *known[prompt]][len(ids) : len(ids) + len(ids) % (depth + 1)]
        guess[: len(right)] = right
    return Proposal(mx.array(tokens, dtype=mx.int32), proposal.counts)


def texts_of(engine: Engine, asked: Sequence[Request]) -> tuple[Texts, list[Usage]]:
    """What requests that run together are answered, by their prompts, and what was counted."""
    streams = [engine.submit(request) for request in asked]
    texts = {
        request.ids: [token for delta in stream for token in delta.ids]
        for request, stream in zip(asked, streams, strict=True)
    }
    return texts, [stream.finish.usage for stream in streams if stream.finish]
