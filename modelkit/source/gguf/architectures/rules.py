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
    spare: bool = False
    """Written by the converter and not read here: nothing is lost without it."""


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

    def link(
        self,
        theirs: Sequence[str],
        ours: Sequence[str],
        shapes: Mapping[str, Shape],
        facts: Facts,
        layer: int,
    ) -> Link | None:
        sizes, given = self.sizes(facts, layer), shapes.get(theirs[0]) or shapes.get(ours[0])
        assert given is not None
        stack, rest = (given[:1], given[2:]) if len(given) == 3 else ((), given[1:])
        count = stack[0] if stack else 1
        whole = (*stack, sum(sizes), *rest)
        if theirs[0] in shapes and given != whole:
            return None
        if any(
            name in shapes and shapes[name] != (*stack, n, *rest) for name, n in zip(ours, sizes, strict=True)
        ):
            return None
        atoms: list[Atom] = []
        for place, size in enumerate(sizes):
            grid = self.grids[place] if self.grids else None
            cut = _filled(grid.sizes(facts, layer), size) if grid else ()
            if cut is None:
                return None
            atoms.append(Atom(size * count, cut, grid.order) if grid else Atom(size * count))
        return Link(
            (Side(theirs[0], whole, tuple(range(len(sizes))), count),),
            tuple(
                Side(n, (*stack, rows, *rest), (i,))
                for i, (n, rows) in enumerate(zip(ours, sizes, strict=True))
            ),
            tuple(atoms),
        )


@dataclass(frozen=True, slots=True)
class Joined:
    """Several tensors of theirs are one of ours: each of its `groups` has a share of every one.

    shapes: theirs, for a given shape of ours.
    """

    sizes: Sizes
    """Rows of the parts."""
    groups: Callable[[Facts], int] = lambda _: 1

    def link(
        self,
        theirs: Sequence[str],
        ours: Sequence[str],
        shapes: Mapping[str, Shape],
        facts: Facts,
        layer: int,
    ) -> Link | None:
        sizes = self.sizes(facts, layer)
        rest = (shapes.get(ours[0]) or shapes[theirs[0]])[1:]
        if any(name in shapes and shapes[name] != (n, *rest) for name, n in zip(theirs, sizes, strict=True)):
            return None
        if ours[0] in shapes and shapes[ours[0]] != (sum(sizes), *rest):
            return None
        every = tuple(range(len(sizes)))
        return Link(
            tuple(
                Side(n, (rows, *rest), (i,)) for i, (n, rows) in enumerate(zip(theirs, sizes, strict=True))
            ),
            (Side(ours[0], (sum(sizes), *rest), every, self.groups(facts)),),
            tuple(Atom(rows) for rows in sizes),
        )


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
