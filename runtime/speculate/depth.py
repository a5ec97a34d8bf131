"""Who drafts the next round, and how far: one pure decision.

Every drafter at every depth of the ladder is an offer: by so much faster than plain decoding, give or take a
doubt. The best offer is taken, or none. An offer that may be better than the best, by one standard deviation,
is tried instead when the budget pays for what that is expected to lose. So a draft that cannot pay costs no
more than the budget, and one that may pay is not left waiting. Plain decoding is never tried: a round of it
says nothing about drafts, and what it takes is looked at now and then (`runtime.speculate.learner`).
"""

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

from runtime.records import dataclass

LEAST_GAIN = 0.04  # drafting must promise to be faster by this share; its rounds cost readers time, too
EARNED = 0.004  # plain rounds that each round adds to the budget
FIRST_BUDGET, MOST_BUDGET = 2.5, 4.0  # plain rounds


class Offer(NamedTuple):
    """A drafter at one depth. Depth 0 is plain decoding."""

    name: str
    """The drafter's."""
    depth: int
    """Tokens it would guess."""
    gain: float
    """The logarithm of the speed in terms of plain decoding's."""
    doubt: float
    """The standard deviation of `gain`."""
    cost: float
    """Of the round, in plain rounds."""


PLAIN = Offer("", 0, 0.0, 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Decision:
    """Whom to ask."""

    offers: tuple[Offer, ...]
    """Asked in this order until one proposes; () for a plain round."""
    price: float = 0.0
    """Plain rounds that the first offer is expected to lose, where it is asked only to learn what it costs.
    """
    audition: str = ""
    """Who is to be auditioned beside this round; "" for nobody."""

    @property
    def leaves_plain(self) -> bool:
        """Is it a try where nothing is known to be faster than plain decoding?"""
        return self.price > 0 and all(offer.gain <= LEAST_GAIN for offer in self.offers)


def decide(offers: Sequence[Offer], budget: float, dear: Collection[str] = ()) -> Decision:
    """offers: of those who have something to say, in order of preference. budget: in plain rounds.
    dear: those who are asked only if they pay, never to learn whether they do.
    """
    best = max([PLAIN, *offers], key=lambda offer: offer.gain - LEAST_GAIN * (offer.depth > 0))
    tried = _worth_trying([one for one in offers if one.name not in dear], best, budget)
    # One for each who is faster than plain decoding, as the first may turn out to have nothing.
    names = dict.fromkeys(offer.name for offer in sorted(offers, key=lambda offer: -offer.gain))
    own = [max((one for one in offers if one.name == name), key=lambda one: one.gain) for name in names]
    order = [offer for offer in own if offer.gain > LEAST_GAIN]
    if tried is None:
        return Decision(tuple(order))
    return Decision((tried, *(offer for offer in order if offer.name != tried.name)), loss(tried, best))


def _worth_trying(offers: Sequence[Offer], best: Offer, budget: float) -> Offer | None:
    def hope(offer: Offer) -> float:
        return offer.gain - best.gain + math.hypot(offer.doubt, best.doubt)

    able = [one for one in offers if one is not best and hope(one) > LEAST_GAIN and loss(one, best) <= budget]
    return max(able, key=lambda one: hope(one) / (loss(one, best) + 0.1), default=None)


def loss(offer: Offer, best: Offer) -> float:
    """Plain rounds that taking this one round instead of the best is expected to lose."""
    return offer.cost * max(1 - math.exp(offer.gain - best.gain), 0.0)
