"""Rows of the tables: which tensors of a GGUF file are which of a checkpoint, and how their rows move.

Names are templates. `{}` is the number of a layer; a template that ends with `.*` stands for weight and bias.
A table is read in both directions and the first rule that knows a name decides, so rules for what only one
side writes (a fused matrix, say) come after those for the usual form.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Protocol

from modelkit.source.gguf.architectures.changes import Change
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.moves import Atom, Link, Shape, Side, row_count
from runtime.records import dataclass

Sizes = Callable[[Facts, int], tuple[int, ...]]
"""Sizes of a grid, or rows of parts, for a layer."""
Reshape = Callable[[Shape, Facts], Shape]


@dataclass(frozen=True, slots=True)
class Members:
    """The tensors that a rule joins, in one layer."""

    theirs: Sequence[str]
    """Their names in the GGUF file."""
    ours: Sequence[str]
    """And in the checkpoint."""
    shapes: Mapping[str, Shape]
    """Those of the given side."""
    facts: Facts
    layer: int
    """0 outside the blocks."""


class Move(Protocol):
    """How the rows of a rule's tensors move."""

    def link(self, members: Members) -> Link | None:
        """None: they cannot be what the rule says."""
        ...


@dataclass(frozen=True, slots=True)
class Rule:
    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    move: Move
    written: bool = True
    """False: a form that some files have, and that is read only."""


def flat(shape: Shape, _: object) -> Shape:
    """A Reshape: all elements along one dimension."""
    return (prod(shape),)


@dataclass(frozen=True, slots=True)
class Kept:
    """One tensor is one tensor; the shape may be written in another way, and the numbers may change."""

    to_ours: Reshape | None = None
    to_theirs: Reshape | None = None
    change: Change | None = None

    def link(self, members: Members) -> Link | None:
        their, our = members.theirs[0], members.ours[0]
        if their in members.shapes:
            given = members.shapes[their]
            sides = given, self.to_ours(given, members.facts) if self.to_ours else given
        else:
            given = members.shapes[our]
            sides = self.to_theirs(given, members.facts) if self.to_theirs else given, given
        return Link(
            (Side(their, sides[0]),), (Side(our, sides[1]),), (Atom(row_count(sides[0])),), self.change
        )


@dataclass(frozen=True, slots=True)
class OfSome:
    """Kept in some layers; in the others it is another tensor that has one of the two names."""

    has: Callable[[Facts, int], bool]

    def link(self, members: Members) -> Link | None:
        return Kept().link(members) if self.has(members.facts, members.layer) else None


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

    def link(self, members: Members) -> Link | None:
        plain = (self.reshape or Kept()).link(members)
        assert plain is not None
        still = self.before(members.facts, members.layer) if self.before else ()
        rows = plain.atoms[0].rows - sum(still)
        sizes = _filled(self.sizes(members.facts, members.layer), rows)
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

    def link(self, members: Members) -> Link | None:
        found = self.sides(members.theirs[0], members.ours, members.shapes, members.facts, members.layer)
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

    def link(self, members: Members) -> Link | None:
        whole = (
            {members.ours[0]: members.shapes[members.ours[0]]} if members.ours[0] in members.shapes else None
        )
        if whole is None:
            return None if self.counts else self._link(members)
        if not self.counts:
            return self._link(replace(members, shapes=whole))
        names = tuple(f"{i}" for i in range(sum(self.counts)))
        found = self.parted.sides(members.ours[0], names, whole, members.facts, members.layer)
        if found is None:
            return None
        sides: list[Side] = []
        for name, count in zip(members.theirs, self.counts, strict=True):
            first = sum(self.counts[: len(sides)])
            held = tuple(range(first, first + count))
            rows = sum(found[2][one].rows for one in held)
            sides.append(Side(name, (rows, *whole[members.ours[0]][1:]), held))
        return Link(tuple(sides), (found[0],), found[2])

    def _link(self, members: Members) -> Link | None:
        found = self.parted.sides(
            members.ours[0], members.theirs, members.shapes, members.facts, members.layer
        )
        return found and Link(found[1], (found[0],), found[2])


@dataclass(frozen=True, slots=True)
class Stacked:
    """One tensor of theirs is a stack of ours, which are alike."""

    def link(self, members: Members) -> Link | None:
        if members.theirs[0] in members.shapes:
            count, *rest = members.shapes[members.theirs[0]]
            one = tuple(rest)
            if count != len(members.ours):
                return None
        else:
            one = members.shapes[members.ours[0]]
            if any(members.shapes[name] != one for name in members.ours):
                return None
        whole = (len(members.ours), *one)
        rows = row_count(whole) // len(members.ours)
        return Link(
            (Side(members.theirs[0], whole, tuple(range(len(members.ours)))),),
            tuple(Side(name, one, (i,)) for i, name in enumerate(members.ours)),
            tuple(Atom(rows) for _ in members.ours),
        )


@dataclass(frozen=True, slots=True)
class OneByOne:
    """The other way round, and read alone: tensors of theirs, which are alike, are a stack of ours."""

    def link(self, members: Members) -> Link | None:
        one = members.shapes[members.theirs[0]]
        if any(members.shapes[name] != one for name in members.theirs):
            return None
        count = len(members.theirs)
        return Link(
            tuple(Side(name, one, (i,)) for i, name in enumerate(members.theirs)),
            (Side(members.ours[0], (count, *one), tuple(range(count))),),
            tuple(Atom(row_count(one)) for _ in members.theirs),
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
