"""Arrays of rows, in pieces as steps take them.

A step reads the states of neighbouring rows and gives new ones. Were all rows' states one array, a step over
some of them would copy the others with every token; a piece for each range of rows that steps take costs
nothing but what is copied when the range changes: a row joins, or ends. Kernels copy the row that joins, and
no others, where the first piece has room in its memory (`src/joining.cpp`).

Invariants: pieces follow each other and cover all rows; a piece that nobody has written takes no memory;
views of a piece's arrays are told to it (`viewed`), since an array does not know of those that lie in its
memory and are still to be read.
"""

from collections.abc import Callable, Iterator

import mlx.core as mx

from runtime.cache.snapshot import detached
from runtime.cpu import native
from runtime.records import dataclass

States = dict[str, mx.array]


@dataclass(slots=True, eq=False)
class _Piece:
    rows: int
    states: States | None
    """[rows, ...] each; None: zeros."""
    viewed: bool = False
    """Was something seen through its memory, which may be read later than what is asked for next?"""


class Pieces:
    """zeros: the states of so many rows that have read nothing."""

    def __init__(self, zeros: Callable[[int], States]) -> None:
        self._zeros = zeros
        self._pieces: list[_Piece] = []

    @property
    def arrays(self) -> list[mx.array]:
        """Those that there are."""
        return [state for piece in self._pieces for state in (piece.states or {}).values()]

    def of(self, rows: slice) -> States:
        """The states of these rows, [B, ...] each: one piece from here on. Do not write into them."""
        found = self._found(rows)
        if found is None:
            start, stop = self._cut(rows.start), self._cut(rows.stop)
            found = self._joined(self._pieces[start:stop], sum(piece.rows for piece in self._pieces[start:]))
            self._pieces[start:stop] = [found]
        if found.states is None:
            found.states = self._zeros(found.rows)
        return found.states

    def own(self, rows: slice) -> bool:
        """Are these rows' states, as `of` gives them, in memory that nothing was seen through?"""
        found = self._found(rows)
        return found is not None and not found.viewed

    def put(self, rows: slice, states: States | None) -> None:
        """In place of what these rows have. None: zeros."""
        found = self._found(rows)
        if found is not None:
            found.states, found.viewed = states, False
            return
        start, stop = self._cut(rows.start), self._cut(rows.stop)
        self._pieces[start:stop] = [_Piece(rows.stop - rows.start, states)]

    def row_copies(self, row: int) -> States:
        """Copies of what a row has, [1, ...] each."""
        for first, piece in self._placed():
            if first <= row < first + piece.rows and piece.states is not None:
                piece.viewed = True
                here = slice(row - first, row - first + 1)
                return {name: detached(state[here]) for name, state in piece.states.items()}
        return self._zeros(1)

    def resize(self, rows: int) -> None:
        """Rows that are new have zeros."""
        more = rows - sum(piece.rows for piece in self._pieces)
        if more > 0:
            self._pieces.append(_Piece(more, None))
        elif more < 0:
            stop = self._cut(rows)
            del self._pieces[stop:]
            last = self._pieces[-1] if self._pieces else None
            if last is not None and last.states is not None:  # a view would keep what is left out
                last.states = {name: detached(state) for name, state in last.states.items()}

    def _found(self, rows: slice) -> _Piece | None:
        """The piece of just these rows."""
        for first, piece in self._placed():
            if first >= rows.start:
                exact = first == rows.start and first + piece.rows == rows.stop
                return piece if exact else None
        return None

    def _placed(self) -> Iterator[tuple[int, _Piece]]:
        """Each piece with its first row."""
        first = 0
        for piece in self._pieces:
            yield first, piece
            first += piece.rows

    def _cut(self, row: int) -> int:
        """A piece begins with this row; which one."""
        for place, (first, piece) in enumerate(self._placed()):
            if first == row:
                return place
            if row < first + piece.rows:
                self._pieces[place : place + 1] = _halves(piece, row - first)
                return place + 1
        return len(self._pieces)

    def _joined(self, pieces: list[_Piece], room: int) -> _Piece:
        """room: rows that there are from the first of these on."""
        rows = sum(piece.rows for piece in pieces)
        if all(piece.states is None for piece in pieces):
            return _Piece(rows, None)
        if len(pieces) == 1:
            return pieces[0]
        parts, own = [piece.states or self._zeros(piece.rows) for piece in pieces], not pieces[0].viewed
        return _Piece(rows, {name: _together([part[name] for part in parts], room, own) for name in parts[0]})


def _together(pieces: list[mx.array], room: int, own: bool) -> mx.array:
    """By kernels in the first one's memory, where that was made for more rows and nobody else has it."""
    kernels = native.of_processor()
    return mx.concatenate(pieces) if kernels is None else kernels.joined(pieces, room, own)


def _halves(piece: _Piece, rows: int) -> list[_Piece]:
    """The first `rows` rows, and the others."""
    if piece.states is None:
        return [_Piece(rows, None), _Piece(piece.rows - rows, None)]
    first = {name: state[:rows] for name, state in piece.states.items()}
    rest = {name: state[rows:] for name, state in piece.states.items()}
    return [_Piece(rows, first, viewed=True), _Piece(piece.rows - rows, rest, viewed=True)]
