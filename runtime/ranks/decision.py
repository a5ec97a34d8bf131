"""What rank 0 has decided and the others do: plain frozen values, told as JSON.

Between two forward passes things happen to layer memory and to what is kept of earlier sequences (`Deed`), in
this order. The ids of a forward pass are not in it: they may not have been read where they were drawn, and
follow as an array.
"""

import json
from collections.abc import Hashable, Sequence
from operator import attrgetter
from typing import Any, cast

from runtime.records import dataclass
from runtime.step import Adapters, Inputs, Step

Deed = tuple[Any, ...]
"""The name of a method, and its arguments: numbers, texts, or lists of such."""
Members = tuple[tuple[tuple[int, float], ...], ...]
"""Of each row its adapters, each with its scale (`runtime.step.Adapters`)."""


@dataclass(frozen=True, slots=True)
class Forward:
    """A forward pass of the target; fields as in Step."""

    starts: tuple[int, ...]
    counts: tuple[int, ...]
    first: int
    long: tuple[bool, ...] | None
    adapters: Members | None = None
    """Of each row, as every rank counts them; None: no row has any."""
    memory: int = 0
    """Which one its layers read and write; 0: the engine's."""
    kept_only: bool = False
    source: int = 0
    """An encoder reads prompts of so many tokens first, one for each row; 0: it reads none."""

    @classmethod
    def of(cls, step: Step, memory: int = 0, source: int = 0) -> "Forward":
        its = step.adapters
        members = None if its is None else tuple(map(tuple, its.members))
        return cls(step.starts, step.counts, step.first, step.long, members, memory, step.kept_only, source)

    @property
    def shape(self) -> tuple[int, int]:
        """Of the ids."""
        return len(self.starts), max(self.counts)

    @property
    def of_prompts(self) -> tuple[int, int]:
        """Of the ids that an encoder reads."""
        return len(self.starts), self.source

    def step(self, inputs: Inputs, adapters: Adapters | None = None) -> Step:
        """adapters: those that it names."""
        return Step(self.starts, self.counts, self.first, self.long, inputs, adapters, self.kept_only)


@dataclass(frozen=True, slots=True)
class Decision:
    """What the ranks do next, all alike."""

    deeds: tuple[Deed, ...] = ()
    forward: Forward | None = None
    """None: nothing is computed now."""
    ends: bool = False
    """The model is closed."""

    def to_bytes(self) -> bytes:
        forward = self.forward
        told = forward and _told(forward)
        return _encode([self.deeds, told, self.ends]).encode()

    @classmethod
    def from_bytes(cls, said: bytes) -> "Decision":
        """ValueError for what is not one."""
        try:
            deeds, told, ends = json.loads(said.decode())
            forward = told and _forward(*told)
            return cls(tuple(map(tuple, deeds)), forward, bool(ends))
        except (TypeError, IndexError) as error:
            raise ValueError(f"this is not a decision: {said[:80]!r}") from error


_told = attrgetter("starts", "counts", "first", "long", "adapters", "memory", "kept_only", "source")
_encode = json.JSONEncoder(separators=(",", ":")).encode


def _forward(
    starts: list[int],
    counts: list[int],
    first: int,
    long: list[bool] | None,
    adapters: list[Any] | None,
    memory: int,
    kept_only: bool,
    source: int,
) -> Forward:
    members = None
    if adapters is not None:
        members = tuple(tuple((place, scale) for place, scale in row) for row in adapters)
    return Forward(
        tuple(starts),
        tuple(counts),
        first,
        None if long is None else tuple(long),
        members,
        memory,
        kept_only,
        source,
    )


def keys_told(keys: Sequence[Hashable]) -> list[Any]:
    """Keys of the prefix store, as JSON has them."""
    return [list(cast("tuple[Any, ...]", key)) if isinstance(key, tuple) else key for key in keys]


def keys_heard(said: list[Any]) -> list[Any]:
    """What `keys_told` gave."""
    return [tuple(cast("list[Any]", key)) if isinstance(key, list) else key for key in said]
