"""What ranks tell each other about themselves and agree on: small plain values, and where they differ.

Everybody hears all of it, so that all come to the same verdict without another word.
"""

import json
import socket
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from typing import Any, cast

import mlx.core as mx

from modelkit import __version__
from modelkit.errors import LoadError, ModelkitError
from runtime.cpu import native
from runtime.device import device
from runtime.nn.operations import ops
from runtime.ranks.group import Group
from runtime.records import dataclass

_BYTES = 4096
"""What one rank may say; longer texts are cut."""
_LONGEST = 1500

_HINTS = {
    "package": "Remove the one there (`modelkit rm`), and that machine gets its part of rank 0's; "
    "or pull or create the same on both.",
    "adapters": "Adapters beside a package have to be the same files on every machine.",
}
"""By what ranks differ in."""

Facts = dict[str, Any]


class InStep:
    """Work that all ranks do together: what goes wrong on one is noted there, and it goes on, until all agree
    to stop.
    """

    problem: str | None = None
    """The first."""

    @contextmanager
    def noting(self) -> Generator[None]:
        try:
            yield
        except (ModelkitError, OSError, ValueError) as error:
            self.problem = self.problem or str(error)


@dataclass(frozen=True, slots=True)
class Member:
    """This rank, as it speaks to the others."""

    group: Group
    host: str
    """The name of its machine, for messages."""

    @property
    def rank(self) -> int:
        return self.group.rank

    def agree(self, facts: Facts, names: tuple[str, ...] = (), within_s: float | None = None) -> list[Facts]:
        """As `agreed`."""
        return agreed(self.group, {"host": self.host, **facts}, names, within_s)


def own_facts(group: Group) -> Facts:
    """Of this process."""
    return {
        "host": socket.gethostname(),
        "address": group.address,
        "modelkit": __version__,
        "mlx": version("mlx"),
        "free_bytes": device().available_bytes,
        "numbers": ops.numbers(),
        "no_kernels": native.status.reason,
    }


def exchanged(group: Group, mine: Mapping[str, Any], within_s: float | None = None) -> list[Facts]:
    """What each rank says, in their order; all call it at the same time. within_s: the longest that any may
    take until it does; None: the group's limit. RankLost where one has sent anything else.
    """
    short = {name: value[:_LONGEST] if isinstance(value, str) else value for name, value in mine.items()}
    said = json.dumps(short).encode().ljust(_BYTES)
    assert len(said) == _BYTES, "these are no small facts"
    with group.bounded(within_s):
        gathered = group.gather(mx.array(cast("Any", memoryview(said))))
        mx.eval(gathered)
    whole = bytes(memoryview(cast("Any", gathered)))
    pieces = [whole[place : place + _BYTES] for place in range(0, len(whole), _BYTES)]
    return [_heard(group, rank, piece) for rank, piece in enumerate(pieces)]


def _heard(group: Group, rank: int, said: bytes) -> Facts:
    """Whatever is at the address of a rank may have met us as one."""
    facts: object = None
    with suppress(ValueError, RecursionError):
        facts = json.loads(said)
    if not isinstance(facts, dict):
        raise group.lose(
            f"what rank {rank} has sent is not what modelkit {__version__} sends: another program, or "
            "another version, is at its address"
        )
    return cast("Facts", facts)


def difference(all_facts: Sequence[Facts], names: Sequence[str]) -> str | None:
    """A sentence where a rank has a problem, or differs from rank 0 in one of `names`; else None."""
    first = all_facts[0]
    for rank, facts in enumerate(all_facts):
        if facts.get("problem"):
            return f"{called(all_facts, rank)} says: {facts['problem']}"
    for rank, facts in enumerate(all_facts):
        for name in names:
            if facts.get(name) != first.get(name):
                return (
                    f"{called(all_facts, rank)} has {name} {facts.get(name)}, "
                    f"and {called(all_facts, 0)} has {first.get(name)}"
                )
    return None


def unlike(all_facts: Sequence[Facts]) -> tuple[str, ...]:
    """A sentence where numbers are made in another way on some rank than on rank 0, which is right and no
    longer bit for bit what one machine answers.
    """
    first = all_facts[0]["numbers"]
    others = [rank for rank, facts in enumerate(all_facts) if facts["numbers"] != first]
    if not others:
        return ()
    more = f" (and {len(others) - 1} more, not as rank 0)" if len(others) > 1 else ""
    ways = f"{_way(all_facts, others[0])}{more}, and {_way(all_facts, 0)}"
    return (f"{ways}: answers may differ in their last bits from those of one machine",)


def _way(all_facts: Sequence[Facts], rank: int) -> str:
    """By what numbers are made there, and why not by kernels, where these would be used."""
    facts = all_facts[rank]
    why = facts["no_kernels"] if "(cpu)" in facts["numbers"] else None
    return f"{called(all_facts, rank)} computes by {facts['numbers']}" + (f", as {why}" if why else "")


def called(all_facts: Sequence[Facts], rank: int) -> str:
    """How people know it."""
    return f"rank {rank} ({all_facts[rank].get('host', 'unknown')})"


def free_bytes(all_facts: Sequence[Facts]) -> list[int]:
    """What each rank may take: ranks on one machine share what is free there."""
    where = machines(all_facts)
    free = [facts["free_bytes"] for facts in all_facts]
    least = {one: min(room for at, room in zip(where, free, strict=True) if at == one) for one in where}
    return [least[one] // where.count(one) for one in where]


def machines(all_facts: Sequence[Facts]) -> list[tuple[str, str | None]]:
    """Which one each rank is on: several may have one name, and then have other addresses."""
    return [(facts["host"], facts.get("address")) for facts in all_facts]


def agreed(
    group: Group, mine: Facts, names: tuple[str, ...] = (), within_s: float | None = None
) -> list[Facts]:
    """What each rank says. mine: `host` besides. Raises LoadError, on all ranks, where one has a problem, or
    another value for one of `names`. within_s: as in `exchanged`.
    """
    said = exchanged(group, mine, within_s)
    differs = difference(said, names)
    if differs is not None:
        raise LoadError(f"it cannot be run on {group.size} ranks: {differs}", hint=_what_to_do(said, names))
    return said


def _what_to_do(said: Sequence[Facts], names: Sequence[str]) -> str | None:
    """Where ranks differ in what people can change."""
    if any(facts.get("problem") for facts in said):
        return None
    other = [name for name in names if any(facts.get(name) != said[0].get(name) for facts in said)]
    return _HINTS.get(other[0])
