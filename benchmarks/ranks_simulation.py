"""What several machines would do, computed: tokens per second of one sequence over links of several kinds.

A token's step takes `step_ms` on one machine, of which `head_ms` is what rank 0 does alone. In stages all of
it is done, one stage after the other, and the stream goes once over a link for each. In shards each rank does
its part of the layers, and gives the others its part of two sums for every layer: n - 1 messages in a ring.
In stages of shards both are paid: sums among the ranks of each stage, and the stream from stage to stage, a
message more for each further rank that shares one.
"""

from collections.abc import Callable

# Name, bits per second, and microseconds that a small message takes from program to program.
LINKS = (
    ("1 Gbit/s", 1e9, 80.0),
    ("10 Gbit/s", 10e9, 40.0),
    ("40 Gbit/s", 40e9, 30.0),
    ("100 Gbit/s", 100e9, 20.0),
    ("RDMA 80 Gbit/s", 80e9, 5.0),
)
RANKS = (1, 2, 4, 8, 16)
ELEMENT_BYTES = 2
# One more doubling has to bring so much.
WORTH = 1.1


def staged(n: int, step_ms: float, width: int, bits: float, wait_us: float) -> float:
    """Milliseconds of a token."""
    hop = wait_us / 1e3 + width * ELEMENT_BYTES * 8 / bits * 1e3
    return step_ms + (n * hop if n > 1 else 0)


def shared(
    n: int, step_ms: float, head_ms: float, layers: int, width: int, bits: float, wait_us: float
) -> float:
    """Milliseconds of a token."""
    if n == 1:
        return step_ms
    message = wait_us / 1e3 + width * ELEMENT_BYTES * 8 / bits * 1e3
    return head_ms + (step_ms - head_ms) / n + 2 * layers * (n - 1) * message


def both(
    n: int, shards: int, step_ms: float, head_ms: float, layers: int, width: int, bits: float, wait_us: float
) -> float:
    """Milliseconds of a token in n / shards stages."""
    message = wait_us / 1e3 + width * ELEMENT_BYTES * 8 / bits * 1e3
    stages = n // shards
    hops = stages * shards * message if stages > 1 else 0
    return shared(shards, step_ms, head_ms, layers, width, bits, wait_us) + hops


def print_best(step_ms: float, head_ms: float, layers: int, width: int) -> None:
    """For models that need so many machines: the number of shards that is fastest, and how fast it is."""
    print(f"\n{'stages x shards':<22}" + "".join(f"{n:>14}" for n in RANKS) + "   tokens/s")
    for name, bits, wait in LINKS:
        cells: list[str] = []
        for n in RANKS:
            times = {
                shards: both(n, shards, step_ms, head_ms, layers, width, bits, wait)
                for shards in range(1, n + 1)
                if n % shards == 0
            }
            best = min(times, key=lambda shards: times[shards])
            cells.append(f"{n // best} x {best}: {1e3 / times[best]:.1f}")
        print(f"{name:<22}" + "".join(f"{cell:>14}" for cell in cells))


def print_tables(step_ms: float, head_ms: float, layers: int, width: int) -> None:
    print(f"{step_ms:g} ms a token on one machine, {head_ms:g} of it the head; {layers} layers, {width} wide")
    ways: dict[str, Callable[[int, float, float], float]] = {
        "stages": lambda n, bits, wait: staged(n, step_ms, width, bits, wait),
        "shards": lambda n, bits, wait: shared(n, step_ms, head_ms, layers, width, bits, wait),
    }
    for way, time_of in ways.items():
        print(f"\n{way + ', tokens/s':<22}" + "".join(f"{n:>8}" for n in RANKS) + "   pays up to")
        for name, bits, wait in LINKS:
            rates = [1e3 / time_of(n, bits, wait) for n in RANKS]
            print(f"{name:<22}" + "".join(f"{rate:>8.1f}" for rate in rates) + f"{pays(rates):>11}")
    print_best(step_ms, head_ms, layers, width)


def pays(rates: list[float]) -> int:
    """Ranks up to which each doubling is faster; stages are never, they are for room."""
    best = 0
    while best + 1 < len(rates) and rates[best + 1] > WORTH * rates[best]:
        best += 1
    return RANKS[best]
