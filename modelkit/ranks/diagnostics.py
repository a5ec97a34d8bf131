"""What can be said of machines before a model is run: the packages they have, and how fast links are."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from modelkit.ranks.facts import Facts, exchanged, own_facts
from modelkit.store.store import Store
from runtime.device import device
from runtime.ranks.group import Group

_TURNS = 20
_SIZES = tuple(1 << power for power in range(16, 24))
"""Of messages, in bytes: each twice the one before, until one takes long enough."""
_ENOUGH_S, _TRIPS = 0.25, 10
"""That is longer than so many small messages there and back, too: TCP begins slowly."""
_NAMED = 5


def digests(home: Path) -> dict[str, str]:
    """The packages of the store here."""
    return {name.short: str(digest) for name, digest in Store(home).digests().items()}


def examined(group: Group, wanted: Mapping[str, str], home: Path) -> list[Facts]:
    """Facts of each rank; all call it at the same time. wanted: rank 0's packages.

    lacks: names of packages that are not there, or are others; link: to the next rank.
    """
    here = digests(home)
    lacks = sorted(name for name, digest in wanted.items() if here.get(name) != digest)
    named = [*lacks[:_NAMED], *(["..."] if len(lacks) > _NAMED else [])]
    mine = {**own_facts(group), "device": device().name, "packages": len(here), "lacks": named}
    links: list[Facts] = []
    for left in range(group.size):
        measured: Facts = {}
        if not (group.size == 2 and left == 1):  # the same two
            measured = _measured(group, left, (left + 1) % group.size)
        links.append(exchanged(group, measured)[left])  # the others wait here for their turn
    everybody = exchanged(group, mine)
    return [{**facts, "link": link or None} for facts, link in zip(everybody, links, strict=True)]


def _measured(group: Group, left: int, right: int) -> dict[str, Any]:
    """What rank `left` finds of the way to its neighbour and back; nothing for the others."""
    small = mx.zeros(64, mx.uint8)
    with group.bounded():
        if group.rank == left:
            _there_and_back(group, small, right)  # the first takes longer
            trip_s = sum(_there_and_back(group, small, right) for _ in range(_TURNS)) / _TURNS
            for size in _SIZES:
                group.renew()
                spent_s = _there_and_back(group, mx.zeros(size, mx.uint8), right)
                enough = spent_s > _ENOUGH_S + _TRIPS * trip_s or size == _SIZES[-1]
                _there_and_back(group, mx.full(small.size, enough, mx.uint8), right)
                if enough:
                    return {"delay_s": trip_s / 2, "bytes_per_s": size / max(spent_s - trip_s / 2, 1e-9)}
        if group.rank == right:
            for _ in range(_TURNS + 1):
                _take(group, small.size, left)
            for size in _SIZES:
                group.renew()
                _take(group, size, left)
                if _take(group, small.size, left)[0].item():
                    break
    return {}


def _take(group: Group, size: int, source: int) -> mx.array:
    """And say so."""
    taken = group.receive((size,), mx.uint8, source)
    mx.eval(taken)
    mx.eval(group.send(mx.zeros(64, mx.uint8), source))
    return taken


def _there_and_back(group: Group, x: mx.array, to: int) -> float:
    mx.eval(x)
    began = time.perf_counter()
    mx.eval(group.send(x, to))
    mx.eval(group.receive((64,), mx.uint8, to))
    return time.perf_counter() - began
