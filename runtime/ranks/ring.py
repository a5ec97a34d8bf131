"""MLX's ring, by nodes of ours: exchanges that go through fewer hands.

MLX gives an exchange to a thread of its pool, which gives it to two others, one for each connection, and each
of them is woken, works for some microseconds, and wakes the one before it. To wake a thread takes longer than
all of that, and a token of a model in shards is a hundred sums. These nodes (`ranks/ring.h` of the kernels)
read and write the connections where they are computed; a sum may even be part of the node whose answers are
summed. What goes over the connections is, to the byte, what MLX would send, so ranks without kernels take
part; and whoever has none, or more connections than one to each side, has MLX's.

Who waits for another's part of a sum stays awake for a moment, where every rank of the machine has a core:
parts come within less than it takes to be woken. What else is waited for is slept for.

Ranks of one machine keep to parts of their own of its processors (`Ring.keep_apart`): whoever sends a part of
a sum wakes the one that waits for it, and a system likes to wake where the sender runs. Then both compute on
one core in turn, and the other one has nothing to do.
"""

import json
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx

from runtime import host
from runtime.ranks.lane import Lane
from runtime.ranks.links import Links

ONE_WAY_BYTES = 480 << 10
"""What a ring gathers in one direction; of more, MLX sends a half each way round."""
FLOATS = (mx.float32, mx.float16, mx.bfloat16)
"""What is summed."""
AWAKE_US = 300
"""For so long whoever waits for a part of a sum stays awake at most."""


class RankAddress(NamedTuple):
    """Where a rank is found."""

    machine: str
    """Its address."""
    port: int
    here: int
    """Ranks of its machine, this one included."""
    nth: int
    """Of these."""


class Ring:
    """Of the rank whose connections these are. nodes: the kernels' own. lane: for messages of the host. part:
    this rank's processors, where others are on the same machine.
    """

    def __init__(
        self, kernels: Any, nodes: Any, awake_us: int, lane: Lane, part: Collection[int] = ()
    ) -> None:
        self._kernels, self._nodes, self._awake_us = kernels, nodes, awake_us
        self.lane, self._part = lane, part
        self._sums: dict[tuple[int, int], Any] = {}

    @classmethod
    def found(
        cls, kernels: Any, links: Links, place: RankAddress | None, rank: int, size: int
    ) -> "Ring | None":
        """None: MLX's own exchanges are what there is."""
        if mx.default_device().type != mx.DeviceType.cpu:
            return None
        sides = None if place is None or size < 2 else links.sides(place.port)
        if kernels is None or place is None or sides is None:
            return None
        awake_us = AWAKE_US if place.here <= host.cores() else 0
        part = host.part(place.nth, place.here) if place.here > 1 else ()
        return cls(kernels, kernels.Ring(*sides, rank, size, ONE_WAY_BYTES), awake_us, Lane(*sides), part)

    def keep_apart(self) -> None:
        """The calling thread, the one that computes for it, and its helpers run on this rank's part of the
        machine from now on.
        """
        self._kernels.stay_on(sorted(self._part))

    def let_go(self) -> None:
        """They run where they did before."""
        self._kernels.stay_on([])

    def sums(self, first: int, count: int) -> Any:
        """What gives of x the sum over so many ranks from the first on, in their order; kernels take it as
        part of their nodes, too. None for one rank.
        """
        if count == 1:
            return None
        if (first, count) not in self._sums:
            self._sums[first, count] = self._kernels.Sums(self._nodes, first, count, self._awake_us)
        return self._sums[first, count]

    @property
    def summed(self) -> int:
        """How many sums this rank has taken part in, those inside of other nodes included."""
        return self._nodes.sums

    def send(self, x: mx.array, to: int, *, hears: bool = False) -> mx.array:
        """hears: to the right, and what comes from the left meanwhile is put by until it is asked for."""
        return self._nodes.send(x, to, hears)

    def receive(
        self, shape: Sequence[int], dtype: mx.Dtype, source: int, after: mx.array | None = None
    ) -> mx.array:
        """after: received before this is, if that has not been."""
        return self._nodes.receive(list(shape), dtype, source, after)


def own_address() -> RankAddress | None:
    """As the ring's list of addresses says, which may be gone once all have met; None where a rank has more
    than one, or there is none.
    """
    try:
        hosts = json.loads(Path(os.environ["MLX_HOSTFILE"]).read_text(encoding="utf-8"))
        rank, found = int(os.environ["MLX_RANK"]), [one.rpartition(":") for (one,) in hosts]
        machines = [machine for machine, _, _ in found]
        own = machines[rank]
        return RankAddress(own, int(found[rank][2]), machines.count(own), machines[:rank].count(own))
    except (KeyError, IndexError, TypeError, ValueError, OSError, AttributeError):
        return None
