"""Tokens that were drawn and not read back, and whose turn it is to decode.

On one machine all rows take a step together, and their tokens are on their way at once. Where several
machines have a stage of the network each (`runtime.ranks`), rows decode in as many parts, which take turns:
while one is with the machines behind, this one computes the next. What the network makes of a part is asked
for once the next one has been sent off.

    parts A and B, this machine:   A's first layers, B's, A's head, A's next first layers, B's head, ...
    the one behind:                                  A's last layers, B's, ...
"""

from collections.abc import Iterator

import mlx.core as mx

from runtime.engine.drawing import Drawn
from runtime.engine.row import Row


class InFlight:
    """parts: in how many rows may decode."""

    def __init__(self, parts: int = 1) -> None:
        self._parts, self._turn, self._partly = parts, 0, False
        self._drawn: list[Drawn] = []
        self._held: list[Drawn] = []  # the last of them, which are not on their way

    def __iter__(self) -> Iterator[Drawn]:
        """The groups, oldest first."""
        return iter(self._drawn)

    def __len__(self) -> int:
        return len(self._drawn)

    @property
    def splits(self) -> bool:
        """May rows decode in parts?"""
        return self._parts > 1

    @property
    def begins(self) -> bool:
        """Is it the turn of the first part?"""
        return not self._turn

    def whole(self) -> None:
        """All rows decode together next."""
        self._turn = 0

    def part(self, rows: list[Row]) -> list[Row]:
        """Of these, those whose turn it is. They stand side by side."""
        parts = min(self._parts, len(rows))
        self._turn = self._turn if self._turn < parts else 0
        start, stop = (len(rows) * turn // max(parts, 1) for turn in (self._turn, self._turn + 1))
        return rows[start:stop]

    def taken(self, rows: list[Row]) -> None:
        """The part of these whose turn it was has taken its step."""
        parts = min(self._parts, len(rows))
        self._turn = (self._turn + 1) % parts
        self._partly = parts > 1

    def holds(self, rows: list[Row]) -> bool:
        """Is a token of some of these not on its way, so that it would not be read before their next?"""
        return any(row in rows for group in self._held for row in group.rows)

    def dispatch(self, drawn: list[Drawn]) -> list[Drawn]:
        """These were drawn now, and are on their way; where a part of the rows has taken its step, those that
        were drawn for the one before are, and these when the next is drawn. What was before is handed out,
        to be read.
        """
        partly, self._partly = self._partly, False
        begun = self._held if partly else [*self._held, *drawn]
        mx.async_eval([array for group in begun for array in group.arrays])
        due = self._drawn[: len(self._drawn) - len(self._held)]
        self._drawn = [*self._held, *drawn]
        self._held = list(drawn) if partly else []
        return due

    def replace(self, old: Drawn, new: Drawn) -> None:
        """It was drawn again."""
        self._drawn = [new if group is old else group for group in self._drawn]
        mx.async_eval(new.arrays)

    def take(self) -> list[Drawn]:
        """All of it, to be read."""
        drawn, self._drawn, self._held = self._drawn, [], []
        return drawn
