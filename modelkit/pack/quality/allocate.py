"""Options with bytes and costs, and a budget -> one option for each group. Pure.

Greedy along the lower convex hull of every group: whoever wins most per byte is next, as long as it fits. For
costs that add up this is best but for the last bytes.
"""

from collections.abc import Sequence

from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    """One way to store a group."""

    name: str
    nbytes: int
    cost: float
    """Nats per token, or of the cosine."""


@dataclass(frozen=True, slots=True)
class Allocated:
    """A choice."""

    options: tuple[Option, ...]
    """One per group."""
    nbytes: int
    slope: float
    """What the last byte was worth, in costs; infinite where none was to spend."""


def least(groups: Sequence[Sequence[Option]]) -> int:
    """Fewer bytes are not possible."""
    return sum(min(option.nbytes for option in group) for group in groups)


def allocate(groups: Sequence[Sequence[Option]], budget: int) -> Allocated:
    """Every group's option within `budget` bytes, which must be at least `least`."""
    hulls = [hull(group) for group in groups]
    at = [0] * len(hulls)
    spent = sum(one[0].nbytes for one in hulls)
    assert spent <= budget, "the caller asks `least` first"
    steps = sorted(
        (
            (-_slope(one[place], one[place + 1]), number, place)
            for number, one in enumerate(hulls)
            for place in range(len(one) - 1)
        ),
    )
    slope, full = float("inf"), set[int]()
    for value, number, place in steps:
        more = hulls[number][place + 1].nbytes - hulls[number][place].nbytes
        if number in full or spent + more > budget:
            full.add(number)  # its later steps stand on this one
            continue
        at[number], spent, slope = place + 1, spent + more, -value
    chosen = tuple(one[place] for one, place in zip(hulls, at, strict=True))
    return Allocated(chosen, spent, slope)


def hull(options: Sequence[Option]) -> list[Option]:
    """Those on the lower convex hull: more bytes, less cost, each byte worth less than the one before."""
    found: list[Option] = []
    for option in sorted(options, key=lambda one: (one.nbytes, one.cost, one.name)):
        if found and option.cost >= found[-1].cost:
            continue
        while len(found) > 1 and _slope(found[-2], found[-1]) <= _slope(found[-1], option):
            found.pop()
        if found and found[-1].nbytes == option.nbytes:
            continue
        found.append(option)
    return found


def _slope(small: Option, large: Option) -> float:
    return (small.cost - large.cost) / (large.nbytes - small.nbytes)
