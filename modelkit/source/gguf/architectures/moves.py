"""How rows stand in a file of llama.cpp's, and where the same rows stand in a checkpoint of transformers'.

A converter takes weights apart, joins them, and puts rows into another order, because its program reads them
so. All of it moves whole rows, and a row keeps its packing when it moves, so a `Link` says it for floats and
for packed weights alike: both sides are cut into the same `Atom`s, and each side says in which order its
tensors hold them. What changes numbers or columns stands beside it (`changes.Change`).

A row is what lies along the last dimension of the GGUF file's tensor (in one of one dimension each number is
a row); its twin in the checkpoint may be shaped in another way, so a run says into how many rows its tensor
is cut. Pure: nothing here knows of arrays.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

from modelkit.source.gguf.architectures.changes import Change
from runtime.records import dataclass

Shape = tuple[int, ...]

_AXES = {
    "norm_exps.weight": 1,
    **dict.fromkeys(("_exps.weight", "_chexps.weight"), 3),
    **dict.fromkeys(
        ("_exps.bias", "ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight", "token_types.weight"), 2
    ),
}
"""How many dimensions tensors have whose first one may be 1, by the ends of their names in a GGUF file."""


def meant_shape(name: str, shape: Shape, least: int = 1) -> Shape:
    """Every tensor of ggml has four sizes, and ones in front say nothing: llama-quantize leaves them out, and
    some converters write them of vectors. least: so many dimensions it has.
    """
    least = max(least, next((axes for end, axes in _AXES.items() if name.endswith(end)), 1))
    first = next((place for place, size in enumerate(shape) if size != 1), len(shape))
    kept = shape[min(first, max(len(shape) - least, 0)) :]
    return (1,) * (least - len(kept)) + kept


@dataclass(frozen=True, slots=True)
class Run:
    """Rows start, start+step, ... below stop of one tensor."""

    tensor: str
    of: int
    """How many rows the tensor has. Its elements in order, cut into that many equal parts, are the rows."""
    start: int
    stop: int
    step: int = 1

    @property
    def rows(self) -> int:
        return len(range(self.start, self.stop, self.step))


@dataclass(frozen=True, slots=True)
class Origin:
    """What a tensor is made of: rows of others in this order, then a change of the numbers."""

    name: str
    shape: Shape
    runs: tuple[Run, ...]
    change: Change | None = None
    """None: the rows as they lie, packed or not. Else floats are needed."""

    @property
    def whole(self) -> bool:
        """Is it one tensor's bytes, unchanged (but that the shape may be written in another way)?"""
        (first, *others) = self.runs
        return not others and self.change is None and first.rows == first.of and first.step == 1

    @property
    def tensors(self) -> tuple[str, ...]:
        """Those that it is made of, each once."""
        return tuple(dict.fromkeys(run.tensor for run in self.runs))


@dataclass(frozen=True, slots=True)
class Atom:
    """Rows that stay together on both sides. The checkpoint's are llama.cpp's seen as a grid of `sizes` whose
    axes are put into `order`; without sizes they are in the same order.
    """

    rows: int
    sizes: Shape = ()
    order: Shape = ()

    @property
    def backwards(self) -> "Atom":
        """The same, from the checkpoint to llama.cpp."""
        sizes = tuple(self.sizes[axis] for axis in self.order)
        return Atom(self.rows, sizes, tuple(self.order.index(axis) for axis in range(len(self.order))))

    def strides(self) -> Iterator[tuple[int, int, int]]:
        """(start, step, count) of the source's rows, in the order of the target's."""
        if not self.sizes:
            yield 0, 1, self.rows
            return
        steps = [prod(self.sizes[axis + 1 :]) for axis in range(len(self.sizes))]
        *outer, last = self.order
        for place in product(*(range(self.sizes[axis]) for axis in outer)):
            start = sum(index * steps[axis] for index, axis in zip(place, outer, strict=True))
            yield start, steps[last], self.sizes[last]


@dataclass(frozen=True, slots=True)
class Side:
    """One tensor of a link, on one side of it."""

    name: str
    shape: Shape
    atoms: tuple[int, ...] = (0,)
    """Which of the link's, by number."""
    groups: int = 1
    """Its rows are that many groups, each with its share of every atom; 1: atom after atom."""
    change: Change | None = None
    """What is done to this tensor alone, from the other side to this one; the link is then read this way
    only.
    """


@dataclass(frozen=True, slots=True)
class Link:
    """Tensors of a GGUF file and those of a checkpoint that hold the same rows."""

    theirs: tuple[Side, ...]
    """In the GGUF file."""
    ours: tuple[Side, ...]
    """In the checkpoint."""
    atoms: tuple[Atom, ...]
    change: Change | None = None
    """From the checkpoint's numbers to the file's; a link that has one joins one tensor with one."""

    def undo(self) -> tuple[Origin, ...]:
        """What the checkpoint's tensors are made of."""
        change = None if self.change is None else self.change.backwards
        return tuple(_origin(side, self.theirs, self.atoms, change) for side in self.ours)

    def do(self) -> tuple[Origin, ...]:
        """What the file's tensors are made of."""
        atoms = tuple(atom.backwards for atom in self.atoms)
        return tuple(_origin(side, self.ours, atoms, self.change) for side in self.theirs)


def row_count(shape: Sequence[int]) -> int:
    return prod(shape[:-1]) if len(shape) > 1 else prod(shape)


def _origin(side: Side, sources: Sequence[Side], atoms: tuple[Atom, ...], change: Change | None) -> Origin:
    runs: list[Run] = []
    for group, atom in product(range(side.groups), side.atoms):
        share = atoms[atom].rows // side.groups
        places = _places(sources, atoms, atom)
        for stride in _cut(atoms[atom], group * share, share):
            runs += _located(stride, places)
    return Origin(side.name, side.shape, tuple(_merged(runs)), side.change or change)


class RowsDiffer(Exception):
    """A tensor has other rows than what its model says it is made of."""


@dataclass(frozen=True, slots=True)
class _Place:
    first: int
    """Row of the atom."""
    rows: int
    tensor: str
    of: int
    """Rows of the tensor."""
    at: int
    """Row of the tensor."""


def _places(sides: Sequence[Side], atoms: tuple[Atom, ...], atom: int) -> list[_Place]:
    """Each stretch of an atom's rows, in order."""
    found: list[_Place] = []
    for side in sides:
        if atom not in side.atoms:
            continue
        of = sum(atoms[member].rows for member in side.atoms)
        before = side.atoms[: side.atoms.index(atom)]
        first = sum(atoms[member].rows for member in before) // side.groups
        share = atoms[atom].rows // side.groups
        found += [
            _Place(g * share, share, side.name, of, g * (of // side.groups) + first)
            for g in range(side.groups)
        ]
    return found


def _cut(atom: Atom, start: int, count: int) -> Iterator[tuple[int, int, int]]:
    """(start, step, count) of the source's rows for rows start .. start+count of the target's."""
    for first, step, length in atom.strides():
        skipped = min(start, length)
        taken = min(length - skipped, count)
        if taken:
            yield first + skipped * step, step, taken
        start, count = start - skipped, count - taken
        if not count:
            return


def _located(stride: tuple[int, int, int], places: Sequence[_Place]) -> Iterator[Run]:
    """A stride of an atom's rows as runs of the tensors that have them."""
    start, step, count = stride
    while count:
        place = next((p for p in places if p.first <= start < p.first + p.rows), None)
        if place is None:
            raise RowsDiffer
        taken = min(count, -(-(place.first + place.rows - start) // step))
        begin = place.at + start - place.first
        yield Run(place.tensor, place.of, begin, begin + (taken - 1) * step + 1, step)
        start, count = start + taken * step, count - taken


def _merged(runs: Sequence[Run]) -> Iterator[Run]:
    """Runs that continue each other as one."""
    held: Run | None = None
    for run in runs:
        if held and held.tensor == run.tensor and held.step == run.step == 1 and held.stop == run.start:
            held = Run(run.tensor, run.of, held.start, run.stop)
            continue
        if held:
            yield held
        held = run
    if held:
        yield held
