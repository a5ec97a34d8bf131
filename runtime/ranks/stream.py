"""What goes from stage to stage: the residual stream, and beside it what left layers that drafts read.

Rank 0 drafts. A block draft reads hidden states after a few layers (`runtime.trunks.taps`), wherever these
are: what leaves one of them behind the first stage goes on in the stream's own messages, so that a stage
still costs one exchange. Every rank is told which layers are wanted (`runtime.ranks.lead`); the last one's
state is made of what comes back, by rank 0. What a step knows by the trunk's `along`, which layers take of an
earlier one, goes on to the last stage in the same way, and not back.

Where layers are passed several times, the stream goes round as often: what comes back to rank 0 enters its
own again. Such a trunk says by what a layer is called with whether it `goes_round`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from runtime.ranks.stage_rank import StageRank
from runtime.step import Step
from runtime.trunks.taps import Taps


class StageStream:
    """Of a rank that has the layers [start, stop) of `count`. trunk: which calls them. first: layers of the
    first stage.
    """

    def __init__(
        self, stage_rank: StageRank, trunk: Any, start: int, stop: int, count: int, first: int
    ) -> None:
        self._stage_rank = stage_rank
        self._trunk = trunk if isinstance(trunk, Taps) else None
        self._along: str | None = getattr(trunk, "along", None)
        self._goes_round: Callable[[Sequence[Any]], bool] = getattr(trunk, "goes_round", _goes_on)
        self._start, self._stop, self._last, self._first = start, stop, count - 1, first
        if self._trunk is not None:
            vars(self._trunk)["note"] = self.note

    def note(self, layer: int, state: mx.array, step: Step) -> None:
        """In place of the trunk's own: what passes by layers of other ranks is not a state of theirs."""
        if self._trunk is not None and (self._start <= layer < self._stop or layer == self._last):
            Taps.note(self._trunk, layer, state, step)

    def entering(self, x: mx.array, given: Sequence[Any]) -> mx.array:
        """x: a stand-in of the stream's shape and type. given: what layers are called with besides."""
        carried, along = self._carried(self._start), self._along
        packed = self._stage_rank.entering(_wider(x, len(carried) + (along is not None)), x.dtype)
        if along is not None:
            packed, given_on = mx.split(packed, [packed.shape[-1] - x.shape[-1]], axis=-1)
            _step(given).memo(along, lambda: given_on)
        return self._unpacked(packed, carried, given)

    def leaving(self, x: mx.array, given: Sequence[Any]) -> mx.array:
        """x again, which is handed on to the next stage."""
        if self._stop > self._last and not self._returns(given):
            return self._stage_rank.ending(x)
        beside: list[mx.array] = []
        carried = self._carried(self._stop)
        if carried and self._trunk is not None:
            beside.append(self._trunk.tapped(_step(given), carried))
        if self._along is not None and self._stop <= self._last:
            beside.append(_step(given).memo(self._along, _unmade))
        if not beside:
            return self._stage_rank.leaving(x)
        self._stage_rank.leaving(mx.concatenate([x, *beside], axis=-1))
        return x

    def coming_back(self, x: mx.array, given: Sequence[Any]) -> mx.array:
        """Rank 0, and where the stream goes round, all of the first stage: what the last one has made of x;
        x where nobody asks for that.
        """
        again = self._goes_round(given)
        if not (self._stage_rank.leads or again) or not self._returns(given):
            return x
        carried = self._carried(self._last)
        shape = _wider(x, len(carried))
        return self._unpacked(self._stage_rank.coming_back(shape, x.dtype, all_know=again), carried, given)

    def left(self, layer: int, given: Sequence[Any]) -> mx.array:
        """What left this layer in a step, on rank 0: it is one of those that are wanted."""
        assert self._trunk is not None
        return self._trunk.tapped(_step(given), [layer])

    def _returns(self, given: Sequence[Any]) -> bool:
        """Does the last stage answer? Drafts that read states between layers read those of all steps."""
        tapped = self._trunk is not None and self._trunk.is_tapped
        return not _step(given).kept_only or tapped or self._goes_round(given)

    def _carried(self, stop: int) -> list[int]:
        """Layers before `stop`, and not of the first stage, whose states are wanted."""
        wanted = () if self._trunk is None else self._trunk.wanted
        return sorted(layer for layer in wanted if self._first <= layer < min(stop, self._last))

    def _unpacked(self, packed: mx.array, carried: Sequence[int], given: Sequence[Any]) -> mx.array:
        if not carried or self._trunk is None:
            return packed
        x, *states = mx.split(packed, 1 + len(carried), axis=-1)
        for layer, state in zip(carried, states, strict=True):
            Taps.note(self._trunk, layer, state, _step(given))
        return x


def _wider(x: mx.array, more: int) -> Sequence[int]:
    """The shape of x with so many beside it."""
    return *x.shape[:-1], x.shape[-1] * (1 + more)


def _unmade() -> mx.array:
    raise AssertionError("the layer that makes it is of an earlier stage, or of this one")


def _goes_on(_given: Sequence[Any]) -> bool:
    return False


def _step(given: Sequence[Any]) -> Step:
    """Trunks that call their layers in turn give it to them first."""
    assert isinstance(given[0], Step)
    return given[0]
