"""MLX's ring, by nodes of ours: exchanges that go through fewer hands.

MLX gives an exchange to a thread of its pool, which gives it to two others, one for each connection, and each
of them is woken, works for some microseconds, and wakes the one before it. To wake a thread takes longer than
all of that, and a token of a model in shards is a hundred sums. These nodes (`runtime/cpu/native/src/ring.h`)
read and write the connections where they are computed; a sum may even be part of the node whose answers are
summed. What goes over the connections is, to the byte, what MLX would send, so ranks without kernels take
part; and whoever has none, or more connections than one to each side, has MLX's.

Who waits for another's part of a sum stays awake for a moment, where every rank of the machine has a core:
parts come within less than it takes to be woken. What else is waited for is slept for.
"""

import json
import os
from collections.abc import Sequence
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


class Place(NamedTuple):
    """Where a rank is found."""

    machine: str
    """Its address."""
    port: int
    here: int
    """Ranks of its machine, this one included."""


class Ring:
    """Of the rank whose connections these are. nodes: the kernels' own. lane: for messages of the host."""

    def __init__(self, nodes: Any, make_sums: Any, awake_us: int, lane: Lane) -> None:
        self._nodes, self._make_sums, self._awake_us, self.lane = nodes, make_sums, awake_us, lane
        self._sums: dict[tuple[int, int], Any] = {}

    @classmethod
    def found(cls, kernels: Any, links: Links, place: Place | None, rank: int, size: int) -> "Ring | None":
        """None: MLX's own exchanges are what there is."""
        if mx.default_device().type != mx.DeviceType.cpu:
            return None
        sides = None if place is None or size < 2 else links.sides(place.port)
        if kernels is None or place is None or sides is None:
            return None
        awake_us = AWAKE_US if place.here <= host.cores() else 0
        return cls(kernels.Ring(*sides, rank, size, ONE_WAY_BYTES), kernels.Sums, awake_us, Lane(*sides))

    def sums(self, first: int, count: int) -> Any:
        """What gives of x the sum over so many ranks from the first on, in their order; kernels take it as
        part of their nodes, too. None for one rank.
        """
        if count == 1:
            return None
        if (first, count) not in self._sums:
            self._sums[first, count] = self._make_sums(self._nodes, first, count, self._awake_us)
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


def own_place() -> Place | None:
    """As the ring's list of addresses says, which may be gone once all have met; None where a rank has more
    than one, or there is none.
    """
    try:
        hosts = json.loads(Path(os.environ["MLX_HOSTFILE"]).read_text(encoding="utf-8"))
        ((own,), found) = hosts[int(os.environ["MLX_RANK"])], [one for (one,) in hosts]
        machine, _, port = own.rpartition(":")
        return Place(machine, int(port), [one.rpartition(":")[0] for one in found].count(machine))
    except (KeyError, IndexError, TypeError, ValueError, OSError, AttributeError):
        return None
