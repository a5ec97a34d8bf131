"""One forward pass over several rows: who takes part, from which index, with which tokens.

A row is a sequence's place in the batch; a model's caches hold rows 0..R-1. A step covers the half-open range
`first <= row < first + len(starts)`, so that every cache can hand out plain slices of its buffers. Rows may
be ragged: row b brings `counts[b]` tokens at indices `starts[b] .. starts[b] + counts[b]`, right-padded to
`width`. What a padded query computes is never read, and what it writes lies beyond the row's length, where
nobody looks.

A token's index says where it stands in its row: memory and masks go by it. Its position says how far it is
turned: rotations and tables of positions go by that. They are the same numbers unless a step brings others.

Dimensions: B rows, L = `width` token columns, D hidden size.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import field
from typing import Any, Protocol, TypeVar

import mlx.core as mx

from runtime.errors import NotSupported
from runtime.records import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a step brings into a network."""

    ids: mx.array | None = None
    """int32 [B, L]."""

    embeddings: mx.array | None = None
    """[B, L, D] in place of what the network makes of ids: as its `embed` gives them, scaled and normed. A
    network that looks ids up in more places than one needs both.
    """

    positions: mx.array | None = None
    """int32 [B, L]; None: each token's index."""

    @property
    def shape(self) -> tuple[int, ...] | None:
        """(B, L) of what is there, None where nothing is."""
        given = self.embeddings if self.ids is None else self.ids
        return None if given is None else given.shape[:2]


NOTHING = Inputs()


class Adapters(Protocol):
    """What is added for some of a step's rows behind products and tables (`runtime.nn.adapters.adapter`).

    module: the one whose answer y is. The first axis of every array is the step's rows.
    """

    made: dict[Any, Any]
    """What a column keeps of them."""

    @property
    def stacks(self) -> Any:
        """`stacks.get(module)`: what all adapters in memory add behind a module (`nn.adapters.stacks`)."""
        ...

    @property
    def members(self) -> list[list[tuple[int, float]]]:
        """Of each row its adapters, as `stacks` counts them, in order, each with its scale."""
        ...

    def linear(self, module: object, x: mx.array, y: mx.array) -> mx.array: ...

    def head(self, module: object, x: mx.array, y: mx.array) -> mx.array:
        """module: a table that is the output head, too."""
        ...

    def by_heads(self, module: object, x: mx.array, y: mx.array) -> mx.array:
        """x [B, H or 1, L, in], y [B, H, L, out], by a matrix per head."""
        ...

    def by_heads_back(self, module: object, x: mx.array, y: mx.array) -> mx.array:
        """x [B, H, L, out], y [B, H, L, in], by the same matrices the other way."""
        ...

    def embed(self, module: object, ids: mx.array, y: mx.array) -> mx.array: ...

    def gather(self, module: object, x: mx.array, chosen: mx.array, y: mx.array) -> mx.array: ...

    def mixed(self, module: Mapping[str, object]) -> bool:
        """Do they add different things for different rows behind a child of this module? Where not, `gather`
        takes x and chosen in any order.
        """
        ...


@dataclass(slots=True)
class Step:
    starts: tuple[int, ...]
    """Index of the first new token of each row, that is, the row's length before the step."""

    counts: tuple[int, ...]
    """New tokens of each row, 1 <= counts[b] <= width."""

    first: int = 0
    """The first of the rows that take part."""

    long: tuple[bool, ...] | None = None
    """Which rows are read as long ones, for models that treat long sequences differently from their first
    token on; None: those that this step takes past the border.
    """

    inputs: Inputs = NOTHING
    """Left out where only memory is looked at."""

    adapters: Adapters | None = None
    """What some rows have that others do not; None: no row has an adapter."""

    kept_only: bool = False
    """Only what layers remember of it is wanted, and nobody looks at what leaves the last one."""

    width: int = field(init=False)
    _memo: dict[Hashable, Any] = field(default_factory=dict[Hashable, Any])

    def __post_init__(self) -> None:
        assert len(self.starts) == len(self.counts) > 0
        assert min(self.counts) > 0
        assert min(self.starts) >= 0
        self.width = max(self.counts)
        assert self.inputs.shape in (None, (len(self.starts), self.width)), "inputs are [B, L]"

    @property
    def rows(self) -> range:
        return range(self.first, self.first + len(self.starts))

    @property
    def uniform(self) -> bool:
        """All rows start together and bring the same number of tokens: no padding, one shared mask."""
        return len(set(self.starts)) == 1 and len(set(self.counts)) == 1

    @property
    def ids(self) -> mx.array:
        """int32 [B, L]. NotSupported where the step brings none."""
        if self.inputs.ids is None:
            raise NotSupported(
                "this step brings embeddings alone, and the network looks up its tokens' ids too: "
                "give ids beside the embeddings"
            )
        return self.inputs.ids

    @property
    def vectors(self) -> mx.array:
        """[B, L, D], for networks with no table of their own. NotSupported where the step brings none."""
        if self.inputs.embeddings is None:
            raise NotSupported("this network has no table of tokens: a step must bring embeddings")
        return self.inputs.embeddings

    def embedded(self, embed: "Callable[[mx.array, Step], mx.array]") -> mx.array:
        """What enters the first layer, [B, L, D]: the step's own vectors, else what `embed` makes of ids."""
        own = self.inputs.embeddings
        return embed(self.ids, self) if own is None else own

    @property
    def moved(self) -> bool:
        """Does the step bring positions that need not be its tokens' indices?"""
        return self.inputs.positions is not None

    def refuse_positions(self, why: str) -> None:
        """For networks that would not notice positions. why: a clause about the network."""
        if self.moved:
            raise NotSupported(f"this step says at which positions its tokens stand, and {why}")

    @property
    def offset(self) -> "int | mx.array":
        """Indices of the first tokens in the form `mx.fast.rope` takes: an int when all rows agree, else
        int32 [B].
        """
        if len(set(self.starts)) == 1:
            return self.starts[0]
        return self.memo("offset", lambda: mx.array(self.starts, dtype=mx.int32))

    @property
    def indices(self) -> mx.array:
        """Index of every token in its row, int32 [B, L]; padding columns simply count on."""

        def build() -> mx.array:
            starts = mx.array(self.starts, dtype=mx.int32)
            return starts[:, None] + mx.arange(self.width, dtype=mx.int32)

        return self.memo("indices", build)

    @property
    def positions(self) -> mx.array:
        """Position of every token, int32 [B, L]: what the step brings, else the indices."""
        return self.indices if self.inputs.positions is None else self.inputs.positions

    def may_reach(self, position: float) -> bool:
        """Can a token of this step stand at `position` or later? Who brings positions is not asked which."""
        return self.moved or max(self.starts) + self.width > position

    def again(self, inputs: Inputs) -> "Step":
        """The same tokens' places with other inputs: masks and tables that were made for this serve that."""
        assert inputs.positions is self.inputs.positions
        other = Step(self.starts, self.counts, self.first, self.long, inputs, self.adapters, self.kept_only)
        other._memo = self._memo
        return other

    def memo(self, key: Hashable, build: Callable[[], T]) -> T:
        """`build()` once per step for each key: layers of one kind share masks and positions."""
        try:
            return self._memo[key]
        except KeyError:
            pass
        made = self._memo[key] = build()
        return made

    def shared(self, key: Hashable, asking: range, build: Callable[[], T]) -> T:
        """What is large and asked for all queries as in `memo`; that of some of them is made anew for each
        layer.
        """
        return self.memo(key, build) if len(asking) == self.width else build()
