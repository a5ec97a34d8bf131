"""Rows of the tables: which tensors of a GGUF file are which of a checkpoint, and how their rows move.

Names are templates. `{}` is the number of a layer; a template that ends with `.*` stands for weight and bias.
A table is read in both directions and the first rule that knows a name decides, so rules for what only one
side writes (a fused matrix, say) come after those for the usual form.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from modelkit.source.gguf.architectures.changes import Change
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.moves import Atom, Link, Shape, Side, row_count

Sizes = Callable[[Facts, int], tuple[int, ...]]
"""Sizes of a grid, or rows of parts, for a layer."""
Reshape = Callable[[Shape, Facts], Shape]


class Move(Protocol):
    """How the rows of a rule's tensors move."""

    def link(
        self,
        theirs: Sequence[str],
        ours: Sequence[str],
        shapes: Mapping[str, Shape],
        facts: Facts,
        layer: int,
    ) -> Link | None:
        """shapes: those of the given side. None: they cannot be what the rule says."""
        ...


@dataclass(frozen=True, slots=True)
class Rule:
    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    move: Move
    written: bool = True
    """False: a form that some files have, and that is read only."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One tensor is one tensor; the shape may be written in another way, and the numbers may change."""

    to_ours: Reshape | None = None
    to_theirs: Reshape | None = None
    change: Change | None = None

    def link(
        self,
        theirs: Sequence[str],
        ours: Sequence[str],
        shapes: Mapping[str, Shape],
        facts: Facts,
        layer: int,
    ) -> Link | None:
        their, our = theirs[0], ours[0]
        if their in shapes:
            given = shapes[their]
            sides = given, self.to_ours(given, facts) if self.to_ours else given
        else:
            given = shapes[our]
            sides = self.to_theirs(given, facts) if self.to_theirs else given, given
        return Link(
            (Side(their, sides[0]),), (Side(our, sides[1]),), (Atom(row_count(sides[0])),), self.change
        )


@dataclass(frozen=True, slots=True)
class Regrouped:
    """Rows seen as a grid whose axes change places. One size of the grid may be -1: what is left.

    parts: the rows that stay in place before those of the grid.
    """

    sizes: Sizes
    order: tuple[int, ...]
    before: Sizes | None = None
    change: Change | None = None
    reshape: "Kept | None" = None

    def link(
        self,
        theirs: Sequence[str],
        ours: Sequence[str],
        shapes: Mapping[str, Shape],
        facts: Facts,
        layer: int,
    ) -> Link | None:
        plain = (self.reshape or Kept()).link(theirs, ours, shapes, facts, layer)
        assert plain is not None
        still = self.before(facts, layer) if self.before else ()
        rows = plain.atoms[0].rows - sum(still)
        sizes = _filled(self.sizes(facts, layer), rows)
        if sizes is None:
            return None
        atoms = (*(Atom(n) for n in still), Atom(rows, sizes, self.order))
        every = tuple(range(len(atoms)))
        (their,), (our,) = plain.theirs, plain.ours
        return Link(
            (Side(their.name, their.shape, every),), (Side(our.name, our.shape, every),), atoms, self.change
        )


@dataclass(frozen=True, slots=True)
class Parted:
    """One tensor on their side holds several of ours, atom after atom, in each of its groups."""

    sizes: Sizes
    """Rows of the parts; of a stack's, in each matrix."""
    grids: tuple["Regrouped | None", ...] = ()
    """How the rows of each part move besides."""
    groups: Callable[[Facts], int] = lambda _: 1
    """Of the rows of a matrix; a stack's are its matrices."""

    def link(
        self,
        theirs: Sequence[str],
        ours: Sequence[str],
        shapes: Mapping[str, Shape],
        facts: Facts,
        layer: int,
    ) -> Link | None:
        found = self.sides(theirs[0], ours, shapes, facts, layer)
        return found and Link((found[0],), found[1], found[2])

    def sides(
        self, whole: str, parts: Sequence[str], shapes: Mapping[str, Shape], facts: Facts, layer: int
    ) -> tuple[Side, tuple[Side, ...], tuple[Atom, ...]] | None:
        sizes, given = self.sizes(facts, layer), shapes[next(iter(shapes))]
        stack, rest = (given[:1], given[2:]) if len(given) == 3 else ((), given[1:])
        fitting = {n: (*stack, rows, *rest) for n, rows in zip(parts, sizes, strict=True)}
        fitting[whole] = (*stack, sum(sizes), *rest)
        if any(fitting[name] != shape for name, shape in shapes.items()):
            return None
        atoms: list[Atom] = []
        count = stack[0] if stack else 1
        for place, size in enumerate(sizes):
            grid = self.grids[place] if self.grids else None
            cut = _filled(grid.sizes(facts, layer), size) if grid else ()
            if cut is None:
                return None
            atoms.append(Atom(size * count, cut, grid.order) if grid else Atom(size * count))
        groups = count if stack else self.groups(facts)
        if any(atom.rows % groups for atom in atoms):
            return None
        return (
            Side(whole, fitting[whole], tuple(range(len(sizes))), groups),
            tuple(Side(name, fitting[name], (i,)) for i, name in enumerate(parts)),
            tuple(atoms),
        )


@dataclass(frozen=True, slots=True)
class Joined:
    """The other way round: several tensors of theirs are one of ours."""

    parted: Parted
    counts: tuple[int, ...] = ()
    """How many of the parts each of their tensors holds; one each if empty."""

    def link(
        self,
        theirs: Sequence[str],
        ours: Sequence[str],
        shapes: Mapping[str, Shape],
        facts: Facts,
        layer: int,
    ) -> Link | None:
        whole = {ours[0]: shapes[ours[0]]} if ours[0] in shapes else None
        if whole is None:
            return None if self.counts else self._link(theirs, ours, shapes, facts, layer)
        if not self.counts:
            return self._link(theirs, ours, whole, facts, layer)
        names = tuple(f"{i}" for i in range(sum(self.counts)))
        found = self.parted.sides(ours[0], names, whole, facts, layer)
        if found is None:
            return None
        sides: list[Side] = []
        for name, count in zip(theirs, self.counts, strict=True):
            first = sum(self.counts[: len(sides)])
            members = tuple(range(first, first + count))
            rows = sum(found[2][member].rows for member in members)
            sides.append(Side(name, (rows, *whole[ours[0]][1:]), members))
        return Link(tuple(sides), (found[0],), found[2])

    def _link(
        self,
        theirs: Sequence[str],
        ours: Sequence[str],
        shapes: Mapping[str, Shape],
        facts: Facts,
        layer: int,
    ) -> Link | None:
        found = self.parted.sides(ours[0], theirs, shapes, facts, layer)
        return found and Link(found[1], (found[0],), found[2])


@dataclass(frozen=True, slots=True)
class Stacked:
    """One tensor of theirs is a stack of ours, which are alike."""

    def link(
        self,
        theirs: Sequence[str],
        ours: Sequence[str],
        shapes: Mapping[str, Shape],
        facts: Facts,
        layer: int,
    ) -> Link | None:
        if theirs[0] in shapes:
            count, *rest = shapes[theirs[0]]
            one = tuple(rest)
            if count != len(ours):
                return None
        else:
            one = shapes[ours[0]]
            if any(shapes[name] != one for name in ours):
                return None
        whole = (len(ours), *one)
        rows = row_count(whole) // len(ours)
        return Link(
            (Side(theirs[0], whole, tuple(range(len(ours)))),),
            tuple(Side(name, one, (i,)) for i, name in enumerate(ours)),
            tuple(Atom(rows) for _ in ours),
        )


def _filled(sizes: Shape, rows: int) -> Shape | None:
    """The grid's sizes with the free one (-1) filled in; None where they do not fit."""
    known = 1
    for size in sizes:
        known *= size if size > 0 else 1
    if not known or rows % known:
        return None
    filled = tuple(rows // known if size < 0 else size for size in sizes)
    total = 1
    for size in filled:
        total *= size
    return filled if total == rows else None
