"""Who and where a story is about: names drawn from world.py."""

from random import Random

from stories import Bindings
from world import ANIMALS, CAST, OUTDOORS, PEOPLE, PLACES, Someone


def someone(rng: Random, *but: Someone, among: tuple[str, ...] = PEOPLE + ANIMALS) -> Someone:
    return CAST[rng.choice([name for name in among if CAST[name] not in but])]


def two(rng: Random) -> Bindings:
    a = someone(rng)
    return {"a": a, "b": someone(rng, a)}


def three(rng: Random) -> Bindings:
    a = someone(rng)
    b = someone(rng, a)
    return {"a": a, "b": b, "c": someone(rng, a, b)}


def outdoors(rng: Random, names: str) -> Bindings:
    return dict(zip(names, (PLACES[key] for key in rng.sample(OUTDOORS, len(names))), strict=True))
