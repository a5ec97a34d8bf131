"""What rank 0 has decided and the others do: plain frozen values, sent as JSON.

Between two forward passes things happen to layer memory and to what is kept of earlier sequences (`Action`),
in this order. The ids of a forward pass are not in it: they may not have been read where they were drawn, and
follow as an array.
"""

import json
from collections.abc import Hashable, Sequence
from operator import attrgetter
from typing import Any, cast

from runtime.quoting import quoted
from runtime.records import dataclass
from runtime.step import Adapters, Inputs, Step

Action = tuple[Any, ...]
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

    actions: tuple[Action, ...] = ()
    forward: Forward | None = None
    """None: nothing is computed now."""
    ends: bool = False
    """The model is closed."""

    def to_bytes(self) -> bytes:
        forward = self.forward
        fields = forward and _fields(forward)
        return _encode([self.actions, fields, self.ends]).encode()

    @classmethod
    def from_bytes(cls, said: bytes) -> "Decision":
        """ValueError for what is not one."""
        try:
            actions, fields, ends = json.loads(said.decode())
            forward = fields and _forward(fields)
            return cls(tuple(map(tuple, actions)), forward, bool(ends))
        except (TypeError, ValueError) as error:
            raise ValueError(f"this is not a decision: {quoted(said)}") from error


_fields = attrgetter("starts", "counts", "first", "long", "adapters", "memory", "kept_only", "source")
_encode = json.JSONEncoder(separators=(",", ":")).encode


def _forward(fields: list[Any]) -> Forward:
    """What `_fields` gave, as JSON has it. TypeError or ValueError for anything else."""
    starts, counts, first, long, adapters, memory, kept_only, source = fields
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


def keys_to_json(keys: Sequence[Hashable]) -> list[Any]:
    """Keys of the prefix store, as JSON has them."""
    return [list(cast("tuple[Any, ...]", key)) if isinstance(key, tuple) else key for key in keys]


def keys_from_json(said: list[Any]) -> list[Any]:
    """The keys of which `keys_to_json` made this."""
    return [tuple(cast("list[Any]", key)) if isinstance(key, list) else key for key in said]
