"""A rank as part of a stage: which part of which stage it has, and whom it talks to there.

    4 ranks, 2 shards:   ranks 0 and 1 share the first stage, 2 and 3 the second

Only neighbours of the ring talk, so ranks that share a stage sit side by side. The stream enters a stage at
its first rank, which hands it along; the last one hands on what comes out, which all of them know alike.

A stage that is not all of the group has no sum of MLX's own: a ring cannot be split. Parts go from neighbour
to neighbour, both ways at once, and every rank adds them up in the order of ranks: the bits are those of
`Group.sum` among as many ranks. Each message is begun in the order that is written here, since two graphs
whose exchanges nobody orders would wait for each other.
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Literal

import mlx.core as mx

from runtime.ranks.group import Group
from runtime.ranks.ring import FLOATS

SMALL_BYTES = 16 << 10
"""Several messages of this size are on their way before anybody reads them, whatever the system's buffers."""

Side = Literal[-1, 1]
Move = tuple[bool, Side, int]
"""Is it sent, to or from the left or the right, and the part of which rank of the stage it is."""


class StageRank:
    """Of this process in its group. shards: among how many ranks each stage is shared."""

    def __init__(self, group: Group, shards: int) -> None:
        self.group, self.shards = group, shards
        self.shard = group.rank % shards
        ring = group.ring
        self._nodes = None if ring is None else ring.sums(group.rank - self.shard, shards)
        self.sums = self._nodes if group.alike else None
        """The same as `sum`, as part of other nodes; None: sums stand by themselves."""

    @property
    def leads(self) -> bool:
        """Rank 0 alone has what stands behind the layers."""
        return self.group.rank == 0

    @property
    def opens(self) -> bool:
        """Is it of the first stage, whose ranks have the tables?"""
        return self.group.rank < self.shards

    @property
    def _is_last(self) -> bool:
        return self.shard == self.shards - 1

    def sum(self, x: mx.array) -> mx.array:
        """The sum of x over the ranks of this stage, in their order: the same bits on each.

        Sums of which none needs another are made in the order that a graph says, which is that of all ranks
        where these are alike; elsewhere each is begun where it is asked for.
        """
        total = self._sum(x)
        if not self.group.alike:
            mx.async_eval(total)
        return total

    def _sum(self, x: mx.array) -> mx.array:
        if self.shards == self.group.size:
            return self.group.sum(x)
        if self._nodes is not None and x.dtype in FLOATS:
            self.group.check()
            return self._nodes(x)
        parts: dict[int, mx.array] = {self.shard: x}
        small = x.nbytes <= SMALL_BYTES and self.group.sends_ahead
        for sent, side, part in moves(self.shard, self.shards, small=small):
            peer = self.group.rank + side
            if sent:
                mx.async_eval(self.group.send(parts[part], peer))
            else:
                parts[part] = self.group.receive(x.shape, x.dtype, peer)
                mx.async_eval(parts[part])
        return reduce(mx.add, (parts[shard] for shard in range(self.shards)))

    def entering(self, shape: Sequence[int], dtype: mx.Dtype) -> mx.array:
        """The stream as the stage before has left it."""
        x = self.group.receive(shape, dtype, self.group.rank - 1)
        if not self._is_last:
            return self._sent(x)
        mx.async_eval(x)  # or what is received first would be the neighbour's part of a sum
        return x

    def leaving(self, x: mx.array) -> mx.array:
        """Hand the stream on to the next stage, from the last one to rank 0. It leaves by itself: what waits
        for an answer would else be begun first, before it or before the sums that it is made of.
        """
        if self._is_last:
            return self._sent(x)
        mx.async_eval(x)
        return x

    def coming_back(self, shape: Sequence[int], dtype: mx.Dtype, *, all_know: bool = False) -> mx.array:
        """Rank 0: what the last stage has made of the stream. all_know: each rank of the first stage, which
        hand it along.
        """
        if not self.leads:
            return self.entering(shape, dtype)
        x = self.group.receive_in_turn(shape, dtype)
        return self._sent(x) if all_know and not self._is_last else x

    def to_all(self, x: mx.array) -> mx.array:
        """Rank 0's x, on all ranks. Others give a stand-in of its shape and type, or the same where all share
        one stage.
        """
        if self.shards == self.group.size:
            return x
        return self.group.broadcast(x if self.leads else None, x.shape, x.dtype)

    def ending(self, x: mx.array) -> mx.array:
        """Nobody asks for what the last stage has made of the stream. Where several share it, their sums are
        computed all the same, on each.
        """
        if self.shards > 1:
            mx.async_eval(x)
        return x

    def _sent(self, x: mx.array) -> mx.array:
        x = self.group.send_on(x)
        mx.async_eval(x)
        return x


def moves(shard: int, shards: int, *, small: bool) -> Iterator[Move]:
    """What one of several ranks in a row sends and receives until it has all parts, in this order.

    small: what is sent is away without being read, so that both sides of a pair begin by sending, and a hop
    takes the time of one message. Else pairs take turns, those that begin at an even place first, and in each
    the left one sends first: nobody sends to one who sends.
    """
    sides: list[Side] = [1, -1] if shard % 2 == 0 else [-1, 1]
    for hop in range(1, shards):
        its: list[Move] = []
        for side in sides:
            if 0 <= shard + side < shards:
                pair: list[Move] = [(True, side, shard - side * (hop - 1)), (False, side, shard + side * hop)]
                its += pair if side == 1 else reversed(pair)
        its = [move for move in its if 0 <= move[2] < shards]
        yield from sorted(its, key=_is_received) if small else its


def _is_received(move: Move) -> bool:
    return not move[0]
