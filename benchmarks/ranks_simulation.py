"""What several machines would do, computed: tokens per second of one sequence over links of several kinds.

A token's step takes `step_ms` on one machine, of which `head_ms` is what rank 0 does alone. In stages all of
it is done, one stage after the other, and the stream goes once over a link for each. In shards each rank does
its part of the layers, and gives the others its part of two sums for every layer: n - 1 messages in a ring.
In stages of shards both are paid: sums among the ranks of each stage, and the stream from stage to stage, a
message more for each further rank that shares one.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Link:
    """What joins two machines."""

    name: str
    bits_per_s: float
    wait_us: float
    """What a small message takes from program to program."""

    def message_ms(self, width: int) -> float:
        """What one token's vector of so many numbers takes."""
        return self.wait_us / 1e3 + width * ELEMENT_BYTES * 8 / self.bits_per_s * 1e3


@dataclass(frozen=True, slots=True)
class Model:
    """What a token takes on one machine, and what goes between machines."""

    step_ms: float
    head_ms: float
    """Of that what rank 0 does alone."""
    layers: int
    width: int
    """Numbers of the stream, for a token."""


LINKS = (
    Link("1 Gbit/s", 1e9, 80.0),
    Link("10 Gbit/s", 10e9, 40.0),
    Link("40 Gbit/s", 40e9, 30.0),
    Link("100 Gbit/s", 100e9, 20.0),
    Link("RDMA 80 Gbit/s", 80e9, 5.0),
)
RANKS = (1, 2, 4, 8, 16)
ELEMENT_BYTES = 2
# One more doubling has to bring so much.
WORTH = 1.1


def staged(n: int, model: Model, link: Link) -> float:
    """Milliseconds of a token."""
    return model.step_ms + (n * link.message_ms(model.width) if n > 1 else 0)


def shared(n: int, model: Model, link: Link) -> float:
    """Milliseconds of a token."""
    if n == 1:
        return model.step_ms
    sums_ms = 2 * model.layers * (n - 1) * link.message_ms(model.width)
    return model.head_ms + (model.step_ms - model.head_ms) / n + sums_ms


def both(n: int, shards: int, model: Model, link: Link) -> float:
    """Milliseconds of a token in n / shards stages."""
    stages = n // shards
    hops_ms = stages * shards * link.message_ms(model.width) if stages > 1 else 0
    return shared(shards, model, link) + hops_ms


def print_best(model: Model) -> None:
    """For models that need so many machines: the number of shards that is fastest, and how fast it is."""
    print(f"\n{'stages x shards':<22}" + "".join(f"{n:>14}" for n in RANKS) + "   tokens/s")
    for link in LINKS:
        cells: list[str] = []
        for n in RANKS:
            times = {shards: both(n, shards, model, link) for shards in range(1, n + 1) if n % shards == 0}
            best = min(times, key=lambda shards: times[shards])
            cells.append(f"{n // best} x {best}: {1e3 / times[best]:.1f}")
        print(f"{link.name:<22}" + "".join(f"{cell:>14}" for cell in cells))


def print_tables(model: Model) -> None:
    print(
        f"{model.step_ms:g} ms a token on one machine, {model.head_ms:g} of it the head; "
        f"{model.layers} layers, {model.width} wide"
    )
    ways: dict[str, Callable[[int, Model, Link], float]] = {"stages": staged, "shards": shared}
    for way, time_of in ways.items():
        print(f"\n{way + ', tokens/s':<22}" + "".join(f"{n:>8}" for n in RANKS) + "   pays up to")
        for link in LINKS:
            rates = [1e3 / time_of(n, model, link) for n in RANKS]
            print(f"{link.name:<22}" + "".join(f"{rate:>8.1f}" for rate in rates) + f"{pays(rates):>11}")
    print_best(model)


def pays(rates: list[float]) -> int:
    """Ranks up to which each doubling is faster; stages are never, they are for room."""
    best = 0
    while best + 1 < len(rates) and rates[best + 1] > WORTH * rates[best]:
        best += 1
    return RANKS[best]
