"""How a process comes to be one of several ranks: a launcher has started all, or it starts the others."""

import json
import os
import re
import threading
import time
from pathlib import Path

import mlx.core as mx

from modelkit.errors import LoadError
from modelkit.ranks.current import current_group, set_current_group
from modelkit.ranks.rank_group import RankGroup
from modelkit.ranks.spawn import Children, check_leader
from modelkit.settings.launchers import LAUNCHERS, check_launched, rank_patience_s, surroundings
from runtime.cpu import native
from runtime.errors import RankLost
from runtime.ranks.group import Group

_MEETING_S = 60.0
"""How long others may take to start, at the least; MLX's ring asks for the rank behind for half as long."""
_WAYS = ("ring", "mpi", "nccl", "jaccl")
_FAILED = re.compile(r"\[ring\] Couldn't (connect|bind).*\(error: (\d+)\)")


def join() -> RankGroup:
    """The group that a launcher has started this process for. It waits for the others to come."""
    return current_group() or _join(None)


def gather(size: int, home: Path) -> RankGroup:
    """A group of this process, which leads, and others that are started here. home: of their store."""
    rank_group = current_group()
    if rank_group is None:
        return _join(Children(size, home))
    if rank_group.size != size:
        raise LoadError(
            f"this process is one of {rank_group.size} ranks, and cannot be one of {size}",
            hint="Start another process.",
        )
    return rank_group


def _join(children: Children | None) -> RankGroup:
    try:
        return set_current_group(RankGroup(_met(children), children))
    except BaseException:
        if children is not None:
            children.close(at_once=True)
        raise


def _met(children: Children | None) -> Group:
    """MLX waits without end for whoever does not come, so it does that on a thread of its own.

    Of processes that were started here one that ends before all have met is noticed at once, on both sides.
    """
    patience_s = rank_patience_s()
    if children is None:
        check_leader()  # which takes its list of addresses away
        check_launched()
    met: list[Group | RankLost] = []

    def meet() -> None:
        try:
            met.append(Group.join("ring" if children else "any", patience_s, native.kernels))
        except Exception as error:  # noqa: BLE001 -- raised below
            lost = RankLost(_reason(str(error)))
            lost.__cause__ = error
            met.append(lost)

    with surroundings({} if children is None else children.own):
        thread = threading.Thread(target=meet, name="modelkit-meet", daemon=True)
        thread.start()
        until_s = time.monotonic() + max(patience_s, _MEETING_S)
        while thread.is_alive() and time.monotonic() < until_s:
            thread.join(0.05)
            (check_leader if children is None else children.check)()
    if not met:
        raise RankLost(f"not all have come within {max(patience_s, _MEETING_S):g} s")
    if isinstance(met[0], RankLost):
        raise met[0]
    return met[0]


def _reason(said: str) -> str:
    """As MLX has said it; it names no address, gives errors of the system by number, and says nothing of what
    it has looked for.
    """
    if "initialize any backend" in said:
        here = ", ".join(filter(mx.distributed.is_available, _WAYS)) or "none"
        given = ", ".join(name for name in LAUNCHERS if name in os.environ)
        return (
            f"MLX knows no way to meet them by what the launcher has set ({given}). Here it has: {here}. "
            "A ring takes MLX_RANK and MLX_HOSTFILE, the others what their own libraries bring"
        )
    found = _FAILED.match(said)
    if found is None:
        return said.removeprefix("[ring] ")
    hosts = json.loads(Path(os.environ["MLX_HOSTFILE"]).read_text(encoding="utf-8"))
    rank, why = int(os.environ["MLX_RANK"]), os.strerror(int(found[2])).lower()
    if found[1] == "bind":
        return f"rank {rank} cannot listen at its address {', '.join(hosts[rank])} ({why})"
    behind = (rank + 1) % len(hosts)
    return f"rank {behind} does not answer at {', '.join(hosts[behind])} ({why})"
