"""What a rank of a group does whose exchanges are tested. As a program: `death`, printing JSON."""

import json
import os
import time
from functools import reduce
from pathlib import Path
from typing import Any

import mlx.core as mx

from runtime.cpu import native
from runtime.errors import RankLost
from runtime.ranks.group import Group
from runtime.ranks.stage_rank import SMALL_BYTES, StageRank


def arrays(group: Group) -> object:
    """Every kind of exchange of arrays."""
    mine = mx.full((3,), float(group.rank + 1))
    told = group.broadcast(None if group.rank else mx.array([7, 8]), (2,), mx.int32)
    right, left = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    sent = group.send(mine, right)
    received = group.receive((3,), mx.float32, left)
    # Rank 0 alone sends before it receives: no rank waits for one that waits for it.
    order = [sent, received] if group.rank == 0 else [received, sent]
    mx.eval(told)
    for one in order:
        mx.eval(one)
    return {
        "sum": group.sum(mine).tolist(),
        "gather": group.gather(mine[:1]).tolist(),
        "broadcast": told.tolist(),
        "received": received.tolist(),
    }


def seats(group: Group, shards: int, count: int) -> object:
    """Sums within stages, of numbers that are rounded, and none asked for before all are under way."""
    first = group.rank - group.rank % shards
    if first + shards > group.size:
        return True  # a stage that is not whole
    seat = StageRank(group, shards)
    stage = [mx.random.normal((count,), key=mx.random.key(rank)) for rank in range(first, first + shards)]
    mx.eval(stage)
    sums = [seat.sum(stage[seat.shard] * times) for times in (1, 3)]
    expected = [reduce(mx.add, [one * times for one in stage]) for times in (1, 3)]
    return all(bool(mx.array_equal(*two)) for two in zip(sums, expected, strict=True))


def circle(group: Group) -> object:
    """All send on what no connection holds before any of them takes what was sent to it, but that rank 0
    hears beside; and rank 0 asks for the last of what comes in turn first.
    """
    big = [mx.full((3 << 20,), float(10 * group.rank + number)) for number in range(3)]
    mx.eval(big)
    left = (group.rank - 1) % group.size
    for one in big:
        mx.async_eval(group.send_on(one))
    if group.rank:
        came = [group.receive(one.shape, one.dtype, left) for one in big]
        for one in came:
            mx.async_eval(one)  # in this order
    else:
        came = [group.receive_in_turn(one.shape, one.dtype) for one in big]
        mx.eval(came[-1])
        group.settle()
    mx.eval(came)
    return [one.tolist() for one in (array[:: len(array) - 1] for array in came)] == [
        [10.0 * left + number] * 2 for number in range(3)
    ]


def orders(group: Group) -> object:
    """Sums of which none needs another, which graphs ask for in other orders; every other rank exchanges as
    MLX does.
    """
    ring = group.ring
    if group.rank % 2:
        group.ring = None
    group.alike = False
    try:
        found = list[Any]()
        for shards in {2, group.size}:
            seat = StageRank(group, shards)
            sums = [seat.sum(mx.full((2,), number)) for number in (1.0, 3.0)]
            for one in sums[:: -1 if group.rank % 2 else 1]:
                mx.eval(one)
            found.append([(one / shards).tolist() for one in sums])
        return found
    finally:
        group.ring, group.alike = ring, True


def mixed(group: Group) -> object:
    """All of that where every other rank has no kernels, and exchanges as MLX does."""
    ring = group.ring
    if group.rank % 2:
        group.ring = None
    try:
        found = [much(group), seats(group, 2, 5), seats(group, 3, SMALL_BYTES // 4), messages(group)]
        return [*found, arrays(group)]
    finally:
        group.ring = ring


def messages(group: Group) -> object:
    """Short, empty and long ones."""
    bodies = [b"", b"short", b"x" * 1016, b"y" * 1017, bytes(range(256)) * 1000]
    for body in bodies:
        if group.rank == 0:
            group.tell(body)
        elif group.hear(within_s=30) != body:
            return f"not what was told: {len(body)} bytes"
    return "all heard"


def ahead(group: Group, *, without: bool = False) -> object:
    """Messages are heard beside a sum that nobody can finish before. without: every other rank has no
    kernels, and hears them behind it.
    """
    ring, shards = group.ring, group.shards
    if without and group.rank % 2:
        group.ring = None
    group.shards = group.readers = group.size
    try:
        return _ahead(group, group.size if not without else 1)
    finally:
        group.ring, group.shards = ring, shards


def ahead_without(group: Group) -> object:
    """That among ranks of which every other one has no kernels."""
    return ahead(group, without=True)


def unread(group: Group) -> object:
    """Ids go to those ranks alone that read them: to the others, nothing comes before the next message."""
    before, group.readers, group.shards = (group.readers, group.shards), 1, 1  # whatever was loaded before
    try:
        if group.rank == 0:
            group.spread(mx.array([[7]]), (1, 1))
            group.tell(b"next")
            return "told"
        return group.hear(within_s=30).decode()
    finally:
        group.readers, group.shards = before


def _ahead(group: Group, hearers: int) -> object:
    lane, bodies = group.lane(), [b"short", bytes(range(256)) * 1000]
    if group.rank == 0:
        for body in bodies:
            group.tell(body, lane)
        _wait_for([Path(f"heard-{rank}") for rank in range(1, hearers)])
    total = group.sum(mx.ones(3))
    ids = group.spread(None if group.rank else mx.array([[7, (1 << 24) - 1]]), (1, 2))
    mx.async_eval(total, ids)
    if group.rank:
        heard = [group.hear(30, lane) for _ in bodies]
        Path(f"heard-{group.rank}").touch()
        if heard != bodies:
            return "not what was told"
    return [total.tolist(), ids.tolist()]


def _wait_for(paths: list[Path]) -> None:
    until_s = time.monotonic() + 100
    while not all(path.exists() for path in paths):
        if time.monotonic() > until_s:
            raise TimeoutError("others have not heard what was told")
        time.sleep(0.001)


def silence(group: Group) -> object:
    """Rank 0 says nothing for longer than the others wait."""
    if group.rank == 0:
        time.sleep(2)
        return "slept"
    used, began = time.process_time(), time.monotonic()
    try:
        group.hear(within_s=0.5)
    except RankLost as error:
        return {"said": str(error), "s": time.monotonic() - began, "cpu_s": time.process_time() - used}
    return "heard something"


def parts(group: Group) -> object:
    """The processors of this thread before a model runs on it, while one does, and after."""
    found = [sorted(os.sched_getaffinity(0))]
    for turn in (group.keep_apart, group.let_go):
        turn()
        found.append(sorted(os.sched_getaffinity(0)))
    return found


def lateness(group: Group) -> object:
    """Rank 0 computes for a while, and the others wait for its part of a sum: their processor time."""
    used = time.process_time()
    if group.rank == 0:
        time.sleep(1)
    mx.eval(group.sum(mx.ones(4)))
    return time.process_time() - used


def much(group: Group) -> object:
    """A sum of more than goes one way at a time, of numbers that are rounded."""
    parts = [mx.random.normal((3, 70_001), key=mx.random.key(rank)) for rank in range(group.size)]
    mx.eval(parts)
    return bool(mx.array_equal(group.sum(parts[group.rank]), reduce(mx.add, parts)))


def death(group: Group) -> object:
    """The last rank dies while the others wait for it."""
    if group.rank == group.size - 1:
        os._exit(0)
    for _ in range(2):
        try:
            mx.eval(group.sum(mx.ones(4)))
        except RankLost as error:
            return str(error)
        except RuntimeError as error:
            group.lose(str(error))
    return "nobody noticed"


if __name__ == "__main__":
    print(json.dumps(death(Group.join("ring", kernels=native.kernels))), flush=True)
