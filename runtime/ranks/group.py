"""The processes that run one model together: who this is among them, and what goes between them.

A thin cover of `mx.distributed`, which launchers set up: `mlx.launch`, MPI, or `modelkit.ranks.spawn`. Arrays
are exchanged inside lazy graphs; messages, which say what is to be computed, are small, plain and whole.

Rules: every rank makes the same calls in the same order, on one thread. The ring reaches neighbours only
(rank - 1 and rank + 1, the last and the first included), so what rank 0 tells goes from rank to rank. A group
that has lost somebody is lost as a whole: whatever is asked of it afterwards raises RankLost, at once.
"""

import math
import os
import struct
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import reduce
from typing import Any, TypeVar, cast

import mlx.core as mx

from runtime.errors import RankLost
from runtime.ranks.lane import Lane
from runtime.ranks.links import Links, sockets
from runtime.ranks.ring import FLOATS, ONE_WAY_BYTES, Ring, own_address
from runtime.ranks.timeouts import Bounded

T = TypeVar("T")

BLOCK_BYTES = 512
"""What every message takes at least: its length and, of most, all of it."""
MOST_BYTES = 64 << 20
"""Of a message; one that says it is longer is not read."""
_LENGTH = struct.Struct("<q")


class Group:
    """The ranks, of which this process is one. limit_s: how long a peer may keep us waiting."""

    def __init__(
        self,
        raw: mx.distributed.Group,
        links: Links,
        limit_s: float = 60.0,
        ring: Ring | None = None,
    ) -> None:
        self._raw, self.links, self.ring = raw, links, ring
        self.limit_s = limit_s
        self.rank, self.size = raw.rank(), raw.size()
        self.address: str | None = None
        """Of this machine, where one is known by which the others have it."""
        self.shards = 1
        """Among how many ranks each stage is shared of the model that was loaded last."""
        self.readers = self.size
        """So many ranks, from the first on, are given the ids of a step."""
        self.alike = True
        """Do all ranks make their graphs of the same nodes? Else each sum is begun where the network asks for
        it (`runtime.ranks.stage_rank`).
        """
        self._owed: mx.array | None = None
        self._told: mx.array | None = None
        self._lost: str | None = None
        self.who_ended: Callable[[], str | None] = lambda: None
        """Which of the others has ended, where that is known here."""
        self._bounded = Bounded(self)
        self.stuck: Callable[[RankLost], None] = _leave
        """Called where a thread waits in MLX and can never go on, on another one. The process ends, unless
        somebody knows better.
        """

    @classmethod
    def join(cls, backend: str = "any", limit_s: float = 60.0, kernels: Any = None) -> "Group":
        """Meet the others that the launcher started. It waits until all have come.

        kernels: meet so that other threads of Python run meanwhile, unlike MLX's own function; and exchange
        in fewer steps than MLX (`runtime.ranks.ring`). None: there are none.
        """
        before, place = sockets(), own_address()
        if kernels is not None:
            kernels.meet(backend)
        raw = mx.distributed.init(strict=True, backend=backend)
        links, ring = Links([]), None
        if "MLX_HOSTFILE" in os.environ:  # a ring's; others wait in ways of their own, also for launchers
            links = Links.opened_since(before)
            links.let_rest()
            ring = Ring.found(kernels, links, place, raw.rank(), raw.size())
        group = cls(raw, links, limit_s, ring)
        group.address = None if place is None else place.machine
        return group

    @classmethod
    def alone(cls) -> "Group":
        """A group of one."""
        return cls(mx.distributed.init(), Links([]))

    @property
    def shared(self) -> bool:
        """Do all ranks share all layers? Then nothing is sent to the rank behind but messages."""
        return self.shards == self.size > 1

    def sum(self, x: mx.array) -> mx.array:
        """The sum of all ranks' x, in their order: the same bits on each rank, and for every number the same
        whatever else is in x. A ring's own sum begins at a rank that depends on where in x a number lies; for
        two ranks, and for the few numbers of a token, it takes longer, too.
        """
        if self.ring is not None and x.dtype in FLOATS:
            self.check()
            return self.ring.sums(0, self.size)(x)
        if x.nbytes <= ONE_WAY_BYTES:
            return reduce(mx.add, mx.split(self.gather(x), self.size))
        length = ONE_WAY_BYTES // x.itemsize
        sums: list[mx.array] = []
        for piece in mx.split(x.flatten(), range(length, x.size, length)):
            # One behind the other on every rank, whatever else its graph holds.
            sums.append(self.sum(mx.depends(piece, sums[-1]) if sums else piece))
        return mx.concatenate(sums).reshape(x.shape)

    def gather(self, x: mx.array) -> mx.array:
        """All ranks' x, one after the other along the first axis."""
        self.settle()
        return mx.distributed.all_gather(x, group=self._raw)

    def least(self, count: int) -> int:
        """The least that any rank says; all call it."""
        return min(said for (said,) in self.counts(count))

    def counts(self, *counts: int) -> list[list[int]]:
        """What each rank says, as many numbers as all others; all call it."""
        with self.bounded():
            gathered = self.gather(mx.array([counts], mx.int32))
            mx.eval(gathered)
        return cast("list[list[int]]", memoryview(cast("Any", gathered)).tolist())

    def send(self, x: mx.array, to: int) -> mx.array:
        """x again: it is sent when what is returned here is evaluated."""
        self.check()
        if self.ring is not None:
            return self.ring.send(x, to)
        return mx.distributed.send(x, to, group=self._raw)

    def receive(self, shape: Sequence[int], dtype: mx.Dtype, source: int) -> mx.array:
        """What that rank sends, when it is evaluated."""
        self.check()
        if self.ring is not None:
            return self.ring.receive(shape, dtype, source)
        return mx.distributed.recv(shape, dtype, source, group=self._raw)

    def send_on(self, x: mx.array) -> mx.array:
        """As `send`, to the rank behind. It does not wait for one that waits until what was sent to this rank
        is taken, where `takes_turns`.
        """
        if self.ring is None or self.rank:
            return self.send(x, (self.rank + 1) % self.size)
        self.check()
        return self.ring.send(x, 1, hears=True)

    def receive_in_turn(self, shape: Sequence[int], dtype: mx.Dtype) -> mx.array:
        """Rank 0: what comes from the last one. Where it `takes_turns` that is received when it is asked for,
        and what was to come before it then comes before it; else at once.
        """
        source = self.size - 1
        if not self.takes_turns:
            x = self.receive(shape, dtype, source)
            mx.async_eval(x)
            return x
        self.check()
        assert self.ring is not None
        x = self._owed = self.ring.receive(shape, dtype, source, self._owed)
        return x

    def settle(self) -> None:
        """Begin to receive all that comes in turn: nobody may ever ask for it, and it stands before what
        comes next.
        """
        self.check()
        if self._owed is not None:
            mx.async_eval(self._owed)
            self._owed = None

    @property
    def sends_ahead(self) -> bool:
        """Is what is sent away before it is read, up to some size? So it is over sockets, which hold it."""
        return len(self.links) > 0

    @property
    def takes_turns(self) -> bool:
        """May rank 0 send what belongs to one step before it receives what belongs to the step before?"""
        return self.ring is not None and self.shards == 1

    def broadcast(
        self, x: mx.array | None, shape: Sequence[int], dtype: mx.Dtype, to: int | None = None
    ) -> mx.array:
        """Rank 0's x, on every rank; others give None. It passes on when what is returned is evaluated. to:
        the first so many ranks alone have it, and call this.
        """
        if self.rank:
            x = self.receive(shape, dtype, self.rank - 1)
        assert x is not None, "rank 0 says what goes to all"
        return x if self.rank == (to or self.size) - 1 else self.send(x, self.rank + 1)

    def lane(self) -> Lane | None:
        """By which `tell` and `hear` need not wait for what is computed, from now on: what was begun before
        is over. None where there is no way of its own for that, and they do wait. To ask for at the same
        places on all ranks, of which some may have none.
        """
        if self.ring is None or not self.shared:
            return None
        mx.synchronize()
        return self.ring.lane

    def keep_apart(self) -> None:
        """A model runs on the calling thread from now on: see `Ring.keep_apart`."""
        if self.ring is not None:
            self.ring.keep_apart()

    def let_go(self) -> None:
        """It does no more."""
        if self.ring is not None:
            self.ring.let_go()

    def spread(self, ids: mx.array | None, shape: Sequence[int]) -> mx.array:
        """Rank 0's ids int32, on all `readers`, and on others a stand-in that is never computed. As
        `broadcast` does; where all share all layers as a sum to which others add nothing, since the way to
        the rank behind is for messages then. Below 2**24, which float32 has exactly. They are on their way
        at once, before whatever a network exchanges.
        """
        if self.rank >= self.readers:
            return mx.zeros(shape, mx.int32)
        if not self.shared:
            ids = self.broadcast(ids, shape, mx.int32, self.readers)
        else:
            own = mx.zeros(shape, mx.float32) if ids is None else ids.astype(mx.float32)
            ids = self.sum(own).astype(mx.int32)
        mx.async_eval(ids)
        return ids

    @property
    def nodes(self) -> str:
        """What this rank's graphs are made of, in words. Ranks of which these differ are not `alike`."""
        device = "gpu" if mx.default_device().type == mx.DeviceType.gpu else "cpu"
        return f"{device}, {'MLX' if self.ring is None else 'own'} exchanges"

    def tell(self, message: bytes, by: Lane | None = None) -> None:
        """Rank 0 alone: what all others `hear`. by: of `lane`."""
        assert self.rank == 0
        self._pass_on(message, by)

    def flush(self) -> None:
        """Wait until what was told, or passed on, has left: of a process that ends before, it never does."""
        if self._told is not None:
            with self.bounded():
                mx.eval(self._told)

    def hear(self, within_s: float | None, by: Lane | None = None, *, came: bool = False) -> bytes:
        """What rank 0 tells next. Sleeps until it comes, for so long at most; None: as long as there are
        connections, which are cut where a machine is gone. came: by this lane something has come.
        """
        assert self.rank > 0
        self.check()
        # For the rank behind as well, which says nothing: that it is gone is noticed, too.
        seen = came or len(self.links) > 0
        if not came and seen and not self.links.wait(within_s):
            raise self.lose(f"rank 0 has said nothing for {within_s:g} s")
        # Where there is no connection to look at, the receiving itself is what waits.
        with self.bounded(None if seen else math.inf if within_s is None else within_s):
            return self._hear(by)

    def _hear(self, by: Lane | None) -> bytes:
        first = self._receive_bytes(BLOCK_BYTES, by)
        (length,) = _LENGTH.unpack_from(first)
        if not 0 <= length <= MOST_BYTES:
            raise self.lose(f"a message of {length:,} bytes was announced, and {MOST_BYTES:,} is the most")
        rest = length - (BLOCK_BYTES - _LENGTH.size)
        message = first[_LENGTH.size :][:length] + (self._receive_bytes(rest, by) if rest > 0 else b"")
        if self.rank + 1 < self.size:
            self._pass_on(message, by)
        return message

    def bounded(self, within_s: float | None = None) -> Bounded:
        """What is computed inside may wait for others, for so long at most, or for the group's limit: then,
        and where somebody is gone, RankLost.
        """
        self._bounded.within_s = self.limit_s if within_s is None else within_s
        return self._bounded

    def renew(self, times: int = 1) -> None:
        """What is waited for from now on may take as long again, or so many times as long, inside of
        `bounded`.
        """
        self._bounded.renew(times)

    def check(self) -> None:
        """Raise RankLost where somebody of the group was lost."""
        if self._lost is not None:
            raise RankLost(self._lost)

    @property
    def lost(self) -> bool:
        return self._lost is not None

    def lose(self, why: str) -> RankLost:
        """Give the group up: all that waits for it, here and elsewhere, fails. Safe from any thread; what it
        returns says why the first time it was called.
        """
        if self._lost is None:
            why = self.who_ended() or why.removeprefix("[ring] ")
            self._lost = self._lost or why
            self.links.cut()
        return RankLost(self._lost)

    def _pass_on(self, message: bytes, by: Lane | None) -> None:
        if len(message) > MOST_BYTES:
            raise ValueError(f"a message of {len(message):,} bytes; {MOST_BYTES:,} is the most")
        self.check()
        if self.size == 1:
            return None
        whole = (_LENGTH.pack(len(message)) + message).ljust(BLOCK_BYTES, b"\0")
        if by is not None:
            return self._by_host(lambda: by.send(whole))
        parts = [whole[:BLOCK_BYTES], whole[BLOCK_BYTES:]]
        # MLX's stubs do not say that arrays are made of buffers, and are such.
        arrays = [mx.array(cast("Any", memoryview(part))) for part in parts if part]
        for array in arrays:  # one by one, so that they leave in order; nobody waits until they have left
            self._told = self.send(array, self.rank + 1)
            mx.async_eval(self._told)
        return None

    def _by_host(self, do: Callable[[], T]) -> T:
        try:
            return do()
        except OSError as error:
            raise self.lose(str(error)) from error

    def _receive_bytes(self, count: int, by: Lane | None) -> bytes:
        if by is not None:
            return self._by_host(lambda: by.receive(count))
        array = self.receive((count,), mx.uint8, self.rank - 1)
        mx.eval(array)
        return bytes(memoryview(cast("Any", array)))


def _leave(error: RankLost) -> None:
    with suppress(OSError, ValueError):  # whoever started this may be gone, and its pipes with it
        print(f"modelkit: this process ends: {error}", file=sys.stderr, flush=True)
    os._exit(1)
