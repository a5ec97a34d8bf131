"""Whom to ask when several drafters have something to say: one pure decision per round.

Each drafter promises so many tokens per second, learned from the rounds where it was asked; the highest
promise is asked first. A promise is only as fresh as the last time it was tried, so the others get a turn now
and then, ever more rarely while they lose. One that is new, or whose own probe is due, goes first: both are
few.
"""

from collections.abc import Sequence
from dataclasses import dataclass

FIRST_TURN, LAST_TURN = 32, 512  # rounds between two turns of a drafter that loses, doubling


@dataclass(frozen=True, slots=True)
class Offer:
    """One who has something to say. promise: tokens per second, None while unknown. probing: see
    DepthController.
    """

    name: str
    promise: float | None
    probing: bool = False


@dataclass(slots=True)
class _Turns:
    passed: int = 0
    interval: int = FIRST_TURN


class Choice:
    """In batches of one size."""

    def __init__(self) -> None:
        self._turns: dict[str, _Turns] = {}

    def order(self, offers: Sequence[Offer]) -> list[str]:
        """Names, the one to ask first in front. Ask once per round: turns are counted here."""
        eager = [offer.name for offer in offers if offer.promise is None or offer.probing]
        ranked = sorted(
            (one for one in offers if one.name not in eager), key=lambda one: -(one.promise or 0.0)
        )
        due = [offer.name for offer in ranked[1:] if self._turn(offer.name)]
        if ranked:
            self._turns.pop(ranked[0].name, None)
        return [*eager, *due, *(offer.name for offer in ranked if offer.name not in due)]

    def _turn(self, name: str) -> bool:
        """A round passes that another one wins; is it this one's turn nevertheless?"""
        turns = self._turns.setdefault(name, _Turns())
        turns.passed += 1
        if turns.passed < turns.interval:
            return False
        turns.passed, turns.interval = 0, min(2 * turns.interval, LAST_TURN)
        return True
