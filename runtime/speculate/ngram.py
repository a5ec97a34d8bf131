"""Prompt lookup: what followed the last few tokens the last time they stood here.

Needs no model and no memory: answers that quote, correct or continue their prompt repeat long runs of it. How
long a run has matched says how far it can be trusted, so guesses come in grades; and whether there is a match
at all is known from the tokens read so far, so where nothing repeats, no step waits for an answer.
Source: prompt lookup decoding (A. Saxena, 2023).
"""

from collections.abc import Sequence

import mlx.core as mx

from runtime.speculate.drafter import Proposal, Rows

GRADES = (4, 8)  # tokens that must match for the second and the third grade
MOST_PLACES = 32  # earlier places of a run that are compared


class NgramDrafter:
    """Continues from the place whose run before it, of `shortest` to `longest` tokens, equals the row's last
    tokens: the longest run, and of equal ones the newest.
    """

    token_cost = 0.0

    def __init__(self, *, longest: int = GRADES[-1], shortest: int = 2, limit: int = 15) -> None:
        assert longest >= shortest >= 1
        self.limit = limit
        self._longest, self._shortest = longest, shortest
        self._indexes: list[_Index] = []

    def begin(self, row: int, ids: Sequence[int], space: str = "") -> None:
        """The prompt is indexed here, beside the device's work on it."""
        self.resize(max(row + 1, len(self._indexes)))
        self._indexes[row].read(ids)

    def end(self, row: int, ids: Sequence[int]) -> None:
        """Nothing to do: `clear` follows."""

    def grade(self, ids: Sequence[Sequence[int]], forced: Sequence[int] = ()) -> int:
        length = max(match for _, match in self._matches(ids))
        return 1 + sum(length >= least for least in GRADES) if length else 0

    def propose(self, rows: Rows, depth: int) -> Proposal | None:
        matches = self._matches(rows.ids)
        if not any(length for _, length in matches):
            return None
        found = [
            _continued(ids, end, depth) if length else [0] * depth
            for ids, (end, length) in zip(rows.ids, matches, strict=True)
        ]
        counts = tuple(depth if length else 0 for _, length in matches)
        return Proposal(mx.array(found, dtype=mx.int32), counts)

    def settle(self, lengths: Sequence[int]) -> None:
        """Nothing to do: the index only ever holds emitted tokens."""

    def move(self, src: int, dst: int) -> None:
        self.resize(max(src, dst) + 1)
        self._indexes[dst], self._indexes[src] = self._indexes[src], _Index(self._shortest)

    def clear(self, row: int) -> None:
        if row < len(self._indexes):
            self._indexes[row] = _Index(self._shortest)

    def resize(self, rows: int) -> None:
        self._indexes += [_Index(self._shortest) for _ in range(rows - len(self._indexes))]
        del self._indexes[rows:]

    def _matches(self, rows: Sequence[Sequence[int]]) -> "list[tuple[int, int]]":
        """Per row, where what matches its last tokens ends, and how many match; 0 for none."""
        self.resize(max(len(rows), len(self._indexes)))
        return [self._indexes[row].match(ids, self._longest) for row, ids in enumerate(rows)]


class _Index:
    """Runs of `size` tokens of one row: where each last ended, and from there to all its earlier ends.

    Holds every run but the one that ends the text, since nothing has followed that yet.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._newest: dict[tuple[int, ...], int] = {}
        self._before = [0]

    def read(self, ids: Sequence[int]) -> None:
        """Take in what is new. An end costs one dictionary entry, whatever lengths are asked for later."""
        if len(self._before) > len(ids):  # another sequence took this place without `clear`
            self._newest.clear()
            self._before = [0]
        for end in range(len(self._before), len(ids)):
            run = tuple(ids[max(end - self._size, 0) : end])
            self._before.append(self._newest.get(run, 0))
            if end >= self._size:
                self._newest[run] = end

    def match(self, ids: Sequence[int], longest: int) -> tuple[int, int]:
        """(end, length) of the longest earlier run that equals the last tokens; (0, 0) for none."""
        self.read(ids)
        best = (0, 0)
        end = self._newest.get(tuple(ids[-self._size :]), 0)
        for _ in range(MOST_PLACES):
            if not end or best[1] >= longest:
                break
            length = _agreement(ids, end, self._size, longest)
            if length > best[1]:
                best = (end, length)
            end = self._before[end]
        return best


def _agreement(ids: Sequence[int], end: int, known: int, longest: int) -> int:
    """How many tokens before `end` equal the last ones, from `known` to `longest`."""
    length = known
    while length < min(longest, end) and ids[end - 1 - length] == ids[-1 - length]:
        length += 1
    return length


def _continued(ids: Sequence[int], end: int, count: int) -> list[int]:
    """What followed. It may run into the end of `ids`: then they end in a repetition, which goes on."""
    period = len(ids) - end
    return [ids[end + ahead % period] for ahead in range(count)]
