"""Slices of stored tensors: what a rank needs of the files of a model, told from headers and a plan alone.

The network is made and cut as loading makes and cuts it, of tensors that are never computed (`Noting`): what
it holds then is a stored tensor, ranges of one, or made of some by its family. Of the last it is asked which
(`made_of`), and those are needed whole.

A rank that has slices alone loads of them (`Sliced`): a stand-in takes the place of every tensor that is not
there whole. What would be made of a stand-in is refused: nothing that is missing is read as numbers.
"""

import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import mlx.core as mx

from runtime.errors import CannotCut
from runtime.quoting import quoted
from runtime.ranks.pieces import Range
from runtime.ranks.ranges import Taking, taken
from runtime.records import dataclass
from runtime.weights.files import DTYPES

Headers = Mapping[str, tuple[str, tuple[int, ...]]]
"""name -> (safetensors dtype name, shape)."""

_EDGE = re.compile(r'("[^"]*"|\d+) -> ("[^"]*"|\d+)')


@dataclass(frozen=True, slots=True, order=True)
class Slice:
    """A stored tensor, or ranges of it along one axis."""

    tensor: str
    axis: int = 0
    ranges: tuple[Range, ...] = ()
    """One behind the other; () for all of it."""

    @classmethod
    def from_json(cls, value: object, headers: Headers) -> Self:
        """What `to_json` gave, of another machine. CannotCut for what is not a slice of these tensors."""
        match value:
            case [str(tensor), int(axis), [*ranges]] if tensor in headers:
                found = cls(tensor, axis, tuple(map(_range, ranges)))
                if not ranges or found._fits(headers[tensor][1]):
                    return found
            case _:
                pass
        raise CannotCut(f"{quoted(value)} is not a slice of a tensor of this model")

    def to_json(self) -> list[Any]:
        return [self.tensor, self.axis, [list(one) for one in self.ranges]]

    def shape(self, whole: Sequence[int]) -> tuple[int, ...]:
        """Of what is left of a tensor of that shape."""
        if not self.ranges:
            return tuple(whole)
        length = sum(stop - start for start, stop in self.ranges)
        return (*whole[: self.axis], length, *whole[self.axis + 1 :])

    def _fits(self, shape: Sequence[int]) -> bool:
        if not 0 <= self.axis < len(shape):
            return False
        return all(0 <= start < stop <= shape[self.axis] for start, stop in self.ranges)


class Noting:
    """Takes ranges of tensors as `Taking` does, and notes of which they are; nothing is computed."""

    def __init__(self, headers: Headers) -> None:
        self.stored = {name: _hollow(dtype, shape) for name, (dtype, shape) in headers.items()}
        """Stands in for what is stored."""
        self._known = {id(array): Slice(name) for name, array in self.stored.items()}
        self._held = [*self.stored.values()]

    def __call__(self, array: mx.array, axis: int, ranges: Sequence[Range]) -> mx.array:
        if list(ranges) == [(0, array.shape[axis])]:
            return array
        known = self._known.get(id(array))
        if known is None or known.ranges:
            return taken(array, axis, ranges)
        mine = taken(array, axis, ranges)
        self._held.append(mine)  # ids are of what lives
        self._known[id(mine)] = Slice(known.tensor, axis, tuple(ranges))
        return mine

    def noted(self, arrays: Iterable[mx.array]) -> list[Slice]:
        """What these are made of. Of a tensor that is needed whole there is nothing else."""
        arrays = list(arrays)
        known = [self._known.get(id(array)) for array in arrays]
        found = {one for one in known if one is not None}
        others = [array for array, one in zip(arrays, known, strict=True) if one is None]
        found |= {Slice(name) for name in made_of(others, self.stored)}
        whole = {one.tensor for one in found if not one.ranges}
        return sorted(one for one in found if not one.ranges or one.tensor not in whole)


class Sliced:
    """Tensors of which some slices are here.

    headers: of all of them. here: arrays of the slices that are. whole: takes ranges of those that are whole.
    """

    def __init__(self, headers: Headers, here: Mapping[Slice, mx.array], whole: Taking) -> None:
        self._here, self._whole = here, whole
        there = {one.tensor: array for one, array in here.items() if not one.ranges}
        self._absent = {
            name: _hollow(dtype, shape) for name, (dtype, shape) in headers.items() if name not in there
        }
        self._names = {id(array): name for name, array in self._absent.items()}
        self.stored = there | self._absent
        """To load of."""

    def __call__(self, array: mx.array, axis: int, ranges: Sequence[Range]) -> mx.array:
        name = self._names.get(id(array))
        if name is None:
            return self._whole(array, axis, ranges)
        found = self._here.get(Slice(name, axis, tuple(ranges)))
        return taken(array, axis, ranges) if found is None else found

    def check(self, arrays: Iterable[mx.array]) -> None:
        """Raise CannotCut where one of these would be made of what is not here."""
        missing = sorted(made_of(arrays, self._absent))
        if missing:
            raise CannotCut(f"what this rank was given of {missing[0]} is not what it needs")


Take = Callable[[mx.array, int, Sequence[Range]], mx.array]


def made_of(arrays: Iterable[mx.array], stored: Mapping[str, mx.array]) -> set[str]:
    """The names of those among `stored` that any of these arrays is, or is computed of. Nothing is computed.

    MLX draws how arrays come to be; the drawing is walked from the arrays back. Raises CannotCut where it
    draws what nobody here can read.
    """
    ids = {id(array): name for name, array in stored.items()}
    arrays = list(arrays)
    found = {ids[id(array)] for array in arrays if id(array) in ids}
    made = [array for array in arrays if id(array) not in ids]
    if not made or not stored:
        return found
    names = {f"stored {number}": name for number, name in enumerate(stored)}
    # One step further, or an array that is a stored one, whole, would be drawn as that and come from nowhere.
    ends = {f"made {number}": mx.expand_dims(array, 0) for number, array in enumerate(made)}
    known = next(iter(names))
    drawing = io.StringIO()
    tried = mx.expand_dims(stored[names[known]], 0)
    mx.export_to_dot(drawing, **{key: stored[name] for key, name in names.items()}, **ends, tried=tried)
    before: dict[str, list[str]] = {}
    for source, target in _EDGE.findall(drawing.getvalue()):
        before.setdefault(target.strip('"'), []).append(source.strip('"'))
    if known not in _behind(["tried"], before):
        raise CannotCut("this MLX does not say what arrays are made of")
    return found | {names[node] for node in _behind(ends, before) if node in names}


def _behind(ends: Iterable[str], before: Mapping[str, Sequence[str]]) -> set[str]:
    left = [*ends]
    seen = set(left)
    while left:
        more = [node for node in before.get(left.pop(), ()) if node not in seen]
        seen.update(more)
        left += more
    return seen


def _hollow(dtype: str, shape: Sequence[int]) -> mx.array:
    """Of this shape and type, without numbers: NaN where there is one."""
    kind = DTYPES[dtype]
    return mx.full(shape, math.nan if mx.issubdtype(kind, mx.floating) else 0, kind)


def _range(said: object) -> Range:
    match said:
        case [int(start), int(stop)]:
            return start, stop
        case _:
            raise CannotCut(f"{quoted(said)} is not a range")
