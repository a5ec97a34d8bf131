"""Simulated machines, and drafting on them: what rounds cost and what is kept is given, the speed is watched.

The machines are as machines are: steady, of wandering speed, of speeds that change at a stroke, and busy,
where a round may be kept waiting for many times its own length; or crowded for a time, in bursts.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from runtime.speculate.audition import TOKENS, runs
from runtime.speculate.costs import DrafterTraits
from runtime.speculate.learner import Learner

PLAIN_S = 0.0035
KINDS = {"draft": DrafterTraits(token_cost=0.14, limit=12)}
AUDITIONING = {"draft": DrafterTraits(token_cost=0.14, limit=12, auditions=True)}
AUDITION = 1.5  # plain rounds that one takes
Machine = Callable[[np.random.Generator], Callable[[float], float]]


def steady(rng: np.random.Generator) -> Callable[[float], float]:
    return lambda seconds: seconds * np.exp(rng.normal(0, 0.04)) * (3 if rng.random() < 0.01 else 1)


def wandering(rng: np.random.Generator) -> Callable[[float], float]:
    at = [0.0]

    def take(seconds: float) -> float:
        at[0] = 0.98 * at[0] + rng.normal(0, 0.08)
        return seconds * np.exp(at[0] + rng.normal(0, 0.05))

    return take


def stepping(rng: np.random.Generator) -> Callable[[float], float]:
    at = [0.0]

    def take(seconds: float) -> float:
        if rng.random() < 0.005:
            at[0] = float(rng.choice([0, 0.7, 1.4]))
        return seconds * np.exp(at[0] + rng.normal(0, 0.06))

    return take


def busy(rng: np.random.Generator) -> Callable[[float], float]:
    def take(seconds: float) -> float:
        stalls = rng.poisson(seconds / 0.012)
        return seconds * np.exp(rng.normal(0, 0.15)) + sum(rng.exponential(0.02) for _ in range(stalls))

    return take


class Crowded:
    """A machine that other programs crowd for its first `rounds` rounds, in bursts. What delays a plain round
    shortens the next, which was dispatched meanwhile; nothing makes up for the delay of a drafted one.
    """

    def __init__(self, seed: int, rounds: int) -> None:
        self._rng, self._rounds = np.random.default_rng(seed), rounds
        self._burst, self._much, self._late = 0, 0.0, 0.0

    def take(self, cost: float, *, drafted: bool) -> float:
        delay = self._delay()
        made_up, self._late = (0.0, 0.0) if drafted else (min(self._late, 0.8 * cost), delay)
        return cost * float(np.exp(self._rng.normal(0, 0.1))) + delay - made_up

    def _delay(self) -> float:
        rng, self._rounds, self._burst = self._rng, self._rounds - 1, self._burst - 1
        level = 6.0 if self._rounds >= 0 else 0.3
        if self._burst < 0 and rng.random() < 0.02:
            self._burst, self._much = int(rng.integers(3, 30)), float(rng.choice([1.0, 2.0, 4.0]))
        mean = 0.0012 * level * (self._much if self._burst > 0 else 0.4)
        stall = rng.pareto(1.5) * 0.003 if rng.random() < 0.03 * level else 0.0
        return float(min(rng.exponential(mean) + stall, 0.05))


class World:
    """A draft whose k-th place is kept with chance accept[k], and rounds of 1 + fixed + slope · depth plain
    ones.
    """

    def __init__(
        self, fixed: float, slope: float, accept: Sequence[float], machine: Machine, seed: int = 0
    ) -> None:
        self.fixed, self.slope, self.accept = fixed, slope, accept
        self.learner = Learner(KINDS)
        self.depths: list[int] = []
        self.auditions = 0
        self._rng = np.random.default_rng(seed)
        self._take = machine(np.random.default_rng(seed + 1))

    def run(self, tokens: int) -> float:
        """How many times as fast as plain decoding so many tokens are made, stalls left out."""
        spent = made = 0.0
        while made < tokens:
            decision = self.learner.decide({"draft": 1}, 12)
            depth = decision.offers[0].depth if decision.offers else 0
            cost = PLAIN_S * (1 + (self.fixed + self.slope * depth if depth else 0))
            if decision.audition:
                spent += self._audition(len(self.depths))
            kept = self._kept(depth)
            # As the engine sees it: plain rounds are dispatched ahead.
            drafted_before = bool(self.depths and self.depths[-1])
            shift = PLAIN_S * (bool(depth) - drafted_before)
            seconds = max(self._take(cost) + shift, 1e-4)
            if depth:
                self.learner.drafted("draft", 1, depth, [(depth, kept)], seconds, decision.price)
            else:
                self.learner.plain(seconds)
            spent, made = spent + cost, made + 1 + kept
            self.depths.append(depth)
        return PLAIN_S * made / spent

    def _audition(self, written: int) -> float:
        if written < TOKENS:
            self.learner.audition_failed()
            return 0.0
        self.auditions += 1
        right = [bool(self._rng.random() < self._accept(0)) for _ in range(TOKENS)]
        self.learner.auditioned("draft", 1, runs(right), self._take(AUDITION * PLAIN_S))
        return AUDITION * PLAIN_S

    @property
    def bound(self) -> float:
        """What the best depth reaches."""
        ladder = range(1, 13)
        chances = [np.cumprod([1.0, *(self._accept(k) for k in range(n))]).sum() for n in ladder]
        return max(
            [1.0, *(c / (1 + self.fixed + self.slope * n) for c, n in zip(chances, ladder, strict=True))]
        )

    def _kept(self, depth: int) -> int:
        kept = 0
        while kept < depth and self._rng.random() < self._accept(kept):
            kept += 1
        return kept

    def _accept(self, place: int) -> float:
        return self.accept[min(place, len(self.accept) - 1)]


def speeds(
    fixed: float,
    slope: float,
    accept: Sequence[float],
    machine: Machine,
    kinds: Mapping[str, DrafterTraits] = KINDS,
    middle: Callable[[list[float]], Any] = np.median,
) -> tuple[float, float, float]:
    """The middle over seeds: of the first 360 tokens, of the next 800; and the bound."""
    worlds = [World(fixed, slope, accept, machine, seed) for seed in range(9)]
    for world in worlds:
        world.learner = Learner(kinds)
    cold = [world.run(360) for world in worlds]
    return float(middle(cold)), float(middle([w.run(800) for w in worlds])), worlds[0].bound


def drafted_shares(accept: float, kinds: Mapping[str, DrafterTraits]) -> list[float]:
    """Of each of 12 seeds the share of tokens, past those of the crowded time, that rounds with drafts made.

    Texts have 68 tokens; each is written with drafts once and twice without, as in the benchmark.
    """
    return [_drafted_share(accept, kinds, seed) for seed in range(12)]


def _drafted_share(accept: float, kinds: Mapping[str, DrafterTraits], seed: int) -> float:
    rng, machine, learner = np.random.default_rng(seed), Crowded(seed + 10**6, 350), Learner(kinds)
    made, drafted = 0, 0
    for text in range(10):
        for _ in range(2 * 68):
            learner.plain(machine.take(PLAIN_S, drafted=False), able=False)
        written, before = 0, True
        while written < 68:
            decision = learner.decide({"draft": 1}, 12)
            if decision.audition and written < TOKENS:
                learner.audition_failed()
            elif decision.audition:
                right = [bool(rng.random() < accept) for _ in range(TOKENS)]
                beside = machine.take(AUDITION * PLAIN_S, drafted=False)
                learner.auditioned("draft", 1, runs(right), beside)
            depth = decision.offers[0].depth if decision.offers else 0
            kept = int(np.cumprod(rng.random(depth) < accept).sum())
            seconds = machine.take(PLAIN_S * (1 + bool(depth) * 0.35 + 0.2 * depth), drafted=depth > 0)
            shifted = max(seconds + PLAIN_S * (bool(depth) - before) * (written > 0), 1e-4)
            if depth:
                told = shifted if written else None
                learner.drafted("draft", 1, depth, [(depth, kept)], told, decision.price)
            else:
                learner.plain(shifted if written else None)
            written, before = written + 1 + kept, depth > 0
            if text >= 4:
                made, drafted = made + 1 + kept, drafted + (1 + kept) * before
        learner.left()
    return drafted / made
