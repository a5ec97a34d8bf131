"""Who has which part of a model: a plan for several machines, as data. No MLX here, and nothing is read.

Two cuts, which may be combined. Stages: each has some layers, one behind the other, and hands the residual
stream on; what comes out has the same bits as on one machine. Shards: a stage is shared by ranks of which
each has a part of every sublayer's weights, and their answers are summed. Rank 0 is of the first stage, and
has what stands around the layers besides: tables, the last norm, the head.

    4 ranks, 2 shards:   ranks 0 and 1 share the first stage, 2 and 3 the second

An encoder that reads prompts for these layers has layers of its own, which are cut in the same way: every
stage has some of both.

`runtime.ranks.parts` says what a model consists of, `decide` who gets what.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import accumulate, pairwise
from typing import Any

from runtime.errors import CannotCut, TooLarge
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Host:
    """A machine, or one process of several on one machine: it becomes a rank."""

    name: str
    free_bytes: int = 0
    """What weights and layer memory may take there; 0: unknown."""


@dataclass(frozen=True, slots=True)
class LayerPart:
    """What a layer takes."""

    weight_bytes: tuple[int, ...]
    """On each of the ranks that share its stage."""
    memory_bytes: int
    """What any of those ranks remembers."""


@dataclass(frozen=True, slots=True)
class Brought:
    """What adapters add, as bytes: where it stands as the weights beside it do."""

    layers: tuple[tuple[int, ...], ...] = ()
    """Of each layer, on each of the ranks that share its stage; () for none."""
    table_bytes: int = 0
    ending_bytes: int = 0
    everywhere_bytes: int = 0

    def on(self, start: int, stop: int, shard: int, *, leads: bool) -> int:
        """On a rank with these layers. leads: is it rank 0?"""
        around = (0 if start else self.table_bytes) + (self.ending_bytes if leads else 0)
        return sum(layer[shard] for layer in self.layers[start:stop]) + around + self.everywhere_bytes


@dataclass(frozen=True, slots=True)
class Copy:
    """Of a module that layers of several stages run: what it takes in a stage that has not the first one."""

    owner: int
    """The first of these layers, which counts it as its own."""
    readers: tuple[int, ...]
    weight_bytes: tuple[int, ...]
    """On each of the ranks that share the stage."""
    adapter_bytes: tuple[int, ...]
    """What adapters add to it."""

    @property
    def most_bytes(self) -> int:
        """On the rank where it takes most."""
        return max(map(sum, zip(self.weight_bytes, self.adapter_bytes, strict=True)))

    def stands(self, start: int, stop: int) -> bool:
        """Is it in the stage of layers [start, stop)?"""
        return self.owner < start and any(start <= reader < stop for reader in self.readers)


@dataclass(frozen=True, slots=True)
class Parts:
    """A model as it can be cut."""

    architecture: str
    shards: int
    """Among how many ranks each stage is shared."""
    layers: tuple[LayerPart, ...]
    table_bytes: int
    """What comes before the layers: each rank of the first stage has it."""
    ending_bytes: int
    """What comes behind them: the last norm and the head. Rank 0 has it."""
    everywhere_bytes: int = 0
    """What every rank has besides."""
    joined: frozenset[int] = frozenset()
    """Layers that take of an earlier one more than the stream, so that no stage begins between the two."""
    whole: tuple[str, ...] = ()
    """What is not cut though stages are shared, and why: one sentence for each kind."""
    brought: Brought = Brought()
    """What adapters add to it."""
    copies: tuple[Copy, ...] = ()
    """What layers of several stages may run."""
    encoder: "Parts | None" = None
    """What reads prompts for these layers: its own, with nothing around them."""

    def most_bytes(self, layer: int) -> int:
        """What this layer takes on the rank where it takes most."""
        part = self.layers[layer]
        adapters = max(self.brought.layers[layer]) if self.brought.layers else 0
        return max(part.weight_bytes) + part.memory_bytes + adapters

    def copied(self, start: int, stop: int) -> tuple[Copy, ...]:
        """Those that the stage of these layers has."""
        return tuple(copy for copy in self.copies if copy.stands(start, stop))

    def weights(self, start: int, stop: int, shard: int, *, leads: bool) -> int:
        """What weights take on a rank with these layers. leads: is it rank 0?"""
        its = *self.layers[start:stop], *self.copied(start, stop)
        around = (0 if start else self.table_bytes) + (self.ending_bytes if leads else 0)
        return sum(part.weight_bytes[shard] for part in its) + around + self.everywhere_bytes

    def adapters(self, start: int, stop: int, shard: int, *, leads: bool) -> int:
        """What adapters add there."""
        copied = sum(copy.adapter_bytes[shard] for copy in self.copied(start, stop))
        return copied + self.brought.on(start, stop, shard, leads=leads)

    @property
    def around_bytes(self) -> int:
        """What rank 0 has beside layers, but for what all have."""
        return self.table_bytes + self.ending_bytes + self.brought.table_bytes + self.brought.ending_bytes

    @property
    def same_bytes(self) -> int:
        """What every rank has beside layers."""
        return self.everywhere_bytes + self.brought.everywhere_bytes


@dataclass(frozen=True, slots=True)
class Share:
    """What one rank has."""

    host: str
    start: int
    """The first of its layers, [start, stop)."""
    stop: int
    shard: int
    """Which part of them."""
    weight_bytes: int
    memory_bytes: int
    free_bytes: int
    """As the host said; 0: unknown."""
    adapter_bytes: int = 0
    reads: tuple[int, int] = (0, 0)
    """Its layers [start, stop) of the encoder; none where there is no encoder."""

    @property
    def wanted_bytes(self) -> int:
        return self.weight_bytes + self.adapter_bytes + self.memory_bytes


@dataclass(frozen=True, slots=True)
class Plan:
    """One share for each rank, in the order of ranks."""

    architecture: str
    layers: int
    shards: int
    """Among how many ranks each stage is shared."""
    shares: tuple[Share, ...]
    reading: int = 0
    """Layers of the encoder; 0: there is none."""

    @property
    def ranks(self) -> int:
        return len(self.shares)

    @property
    def stages(self) -> int:
        return self.ranks // self.shards

    @property
    def digest(self) -> str:
        """Of what ranks must agree on: the cuts, not where they run."""
        cuts = [[share.start, share.stop, share.shard, *share.reads] for share in self.shares]
        said = json.dumps([self.architecture, self.layers, self.reading, self.shards, cuts])
        return f"sha256:{hashlib.sha256(said.encode()).hexdigest()}"

    def check_room(self) -> None:
        """Raise TooLarge for the first host that has too little; it names the others, too."""
        short = [
            (f"weights and layer memory of rank {rank} ({share.host})", share)
            for rank, share in enumerate(self.shares)
            if 0 < share.free_bytes < share.wanted_bytes
        ]
        if short:
            (what, first), *others = short
            more = [f"; {name} {one.wanted_bytes:,} of {one.free_bytes:,}" for name, one in others]
            raise TooLarge(first.wanted_bytes, first.free_bytes, what, "".join(more))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> "Plan":
        """What another rank's `to_json` gave. CannotCut for anything else."""
        try:
            shares = tuple(_share(**share) for share in said["shares"])
            plan = cls(said["architecture"], said["layers"], said["shards"], shares, said["reading"])
            plan.check_order()
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            raise CannotCut(f"this is not a plan: {error!r}") from error
        return plan

    def check_order(self) -> None:
        """Raise CannotCut unless stages cover the layers one behind the other, each with all its shards."""
        self._check_cover([(share.start, share.stop) for share in self.shares], self.layers)
        if self.reading:
            self._check_cover([share.reads for share in self.shares], self.reading)

    def _check_cover(self, ranges: Sequence[tuple[int, int]], layers: int) -> None:
        at = 0
        for rank, (start, stop) in enumerate(ranges):
            starts = at if rank % self.shards == 0 else ranges[rank - 1][0]
            if (start, self.shares[rank].shard) != (starts, rank % self.shards) or stop <= starts:
                raise CannotCut(f"this is not a plan: the share of rank {rank} is out of order")
            at = stop
        if at != layers or self.ranks % self.shards:
            raise CannotCut(f"this is not a plan: its shares end at layer {at} of {layers}")


def _share(*, reads: Sequence[int], **said: Any) -> Share:
    start, stop = reads
    return Share(**said, reads=(start, stop))


def decide(parts: Parts, hosts: Sequence[Host]) -> Plan:
    """Stages so that the fullest host is as empty as can be; where free memory is unknown, as even as can be.

    The first `shards` hosts share the first stage, the next the second, and so on. CannotCut where there are
    too few layers for so many stages. Whether a host has room is for `Plan.check_room` to say.
    """
    if not hosts or len(hosts) % parts.shards:
        raise CannotCut(f"{len(hosts)} ranks are not a multiple of {parts.shards} shards")
    groups = [hosts[i : i + parts.shards] for i in range(0, len(hosts), parts.shards)]
    rooms, encoder = _rooms(groups), parts.encoder
    edges = _edges(parts, rooms, [0] * len(rooms))
    reads = [0] * len(edges) if encoder is None else _edges(encoder, rooms, _taken(parts, edges))
    shares: list[Share] = []
    for ends, read, group in zip(pairwise(edges), pairwise(reads), groups, strict=True):
        memory = sum(layer.memory_bytes for layer in parts.layers[slice(*ends)])
        for shard, host in enumerate(group):
            its = ((parts, ends),) if encoder is None else ((parts, ends), (encoder, read))
            leads = not shares
            weights = sum(one.weights(*own, shard, leads=leads) for one, own in its)
            adapters = sum(one.adapters(*own, shard, leads=leads) for one, own in its)
            shares.append(Share(host.name, *ends, shard, weights, memory, host.free_bytes, adapters, read))
    reading = 0 if encoder is None else len(encoder.layers)
    return Plan(parts.architecture, len(parts.layers), parts.shards, tuple(shares), reading)


def _taken(parts: Parts, edges: Sequence[int]) -> list[int]:
    """What each stage takes, on the rank where it takes most."""
    taken = [parts.same_bytes + sum(map(parts.most_bytes, range(*ends))) for ends in pairwise(edges)]
    return [taken[0] + parts.around_bytes, *taken[1:]]


def _rooms(groups: Sequence[Sequence[Host]]) -> list[int]:
    """What may be taken on each host of a stage; 1 for all where some host has not said."""
    rooms = [min(host.free_bytes for host in group) for group in groups]
    return rooms if all(rooms) else [1] * len(rooms)


def _edges(parts: Parts, rooms: Sequence[int], before: Sequence[int]) -> list[int]:
    """Where stages begin, and the last ends: [0, ..., layers]. By dynamic programming over how full the
    fullest stage of the first ones is. before: what is taken in each by what was cut before.
    """
    layers, stages = len(parts.layers), len(rooms)
    if layers < stages:
        has = f"{layers} layer{'s' * (layers != 1)}"
        raise CannotCut(f"{parts.architecture} has {has}, too few for {stages} stages")
    same = [taken + parts.same_bytes for taken in before]
    taken = [0, *accumulate(map(parts.most_bytes, range(layers)))]
    first = same[0] + parts.around_bytes
    fullest: list[list[float]] = [[(first + taken[i]) / rooms[0] for i in range(layers + 1)]]
    came_from: list[list[int]] = []
    for stage, room in enumerate(rooms[1:], start=1):
        best, came = [float("inf")] * (layers + 1), [0] * (layers + 1)
        for stop in range(stage + 1, layers + 1):
            for start in range(stage, stop):
                copied = sum(copy.most_bytes for copy in parts.copied(start, stop))
                full = max(fullest[-1][start], (same[stage] + taken[stop] - taken[start] + copied) / room)
                if start not in parts.joined and full < best[stop]:
                    best[stop], came[stop] = full, start
        fullest.append(best)
        came_from.append(came)
    if fullest[-1][layers] == float("inf"):
        raise CannotCut(
            f"{parts.architecture} cannot be cut into {stages} stages: "
            "layers share memory with earlier ones, or look at what these have chosen"
        )
    edges = [layers]
    for came in reversed(came_from):
        edges.append(came[edges[-1]])
    return [0, *reversed(edges)]
