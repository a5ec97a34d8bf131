"""One stage of a network: its own layers between two exchanges.

    rank 0         table, its layers, sends the stream on ............ receives the last's, norm, head
    other stages   receive the stream, their layers, send it on
    the last one   receives the stream, its layers, sends it to rank 0

Where several ranks share a stage, `runtime.ranks.stage_rank` says which of them sends and receives;
`runtime.ranks.stream` says what.

An encoder that reads prompts is a network of the same kind beside it: each rank has layers of both, and what
rank 0 makes of the last one's goes from rank to rank, as the decoder's layers of all of them read it.

Every rank keeps all places of the list of layers, so that names, layouts and whatever counts layers stay as
they are; a layer of another rank is an `Elsewhere`, which remembers nothing and hands on what it is given.
The places before and behind a rank's own layers exchange.

What goes out is evaluated at once, without waiting for it: it has to leave even where nobody here asks for
what this step computes. So all exchanges happen in the order in which steps are called.
"""

from collections.abc import Collection, Sequence
from typing import Any

import mlx.core as mx

from runtime.cache.attention import KVCache
from runtime.cache.layout import LayerSpec, Stateless
from runtime.cache.memory import LayerMemory
from runtime.errors import NotSupported
from runtime.nn.module import Module
from runtime.ranks.calls import then_given
from runtime.ranks.stage_rank import StageRank
from runtime.ranks.stream import StageStream
from runtime.ranks.trunk import LayerChain, inside, is_table
from runtime.step import Step


class Elsewhere(Module):
    """A layer, or a norm, that another rank has."""

    def __call__(self, x: mx.array, *given: Any) -> mx.array:
        return x

    def remember(self, *given: Any) -> None:
        """What an encoder has read: so does the layer, where it is."""


class Before(Elsewhere):
    """The layers of the ranks before: what they made of the stream."""

    def __init__(self, stream: StageStream) -> None:
        super().__init__()
        self._stream = stream

    def __call__(self, x: mx.array, *given: Any) -> mx.array:
        """x: a stand-in of the stream's shape and type, never computed."""
        return self._stream.entering(x, given)


class Behind(Elsewhere):
    """The layers of the ranks behind, and the way back to the first stage."""

    def __init__(self, stream: StageStream, *, opens: bool) -> None:
        super().__init__()
        self._stream, self._opens = stream, opens

    def __call__(self, x: mx.array, *given: Any) -> mx.array:
        x = self._stream.leaving(x, given)
        return self._stream.coming_back(x, given) if self._opens else x


def come_together(x: mx.array, given: Sequence[Any]) -> mx.array:
    """Behind a trunk whose layers all ranks share: their sums are computed, on every rank the same ones, in
    the same order. given: the step and the memory.
    """
    mx.async_eval(kept_alone(given[0], given[1]) or x)
    return x


def known_to_all(x: mx.array, stage_rank: StageRank) -> mx.array:
    """Behind an encoder: what it has read is on every rank, in the same order beside whatever else goes from
    rank to rank.
    """
    x = stage_rank.to_all(x)
    mx.async_eval(x)
    return x


def kept_alone(step: Step, memory: LayerMemory) -> list[mx.array]:
    """What layers keep of a step that was just computed, where nobody wants more, and all that they keep lies
    in their buffers by now; else []. The same on every rank: what comes behind it is computed on none.
    """
    if step.kept_only and all(isinstance(one, KVCache) and one.settled for one in memory.caches):
        return [array for one in memory.caches for array in one.arrays]
    return []


class TableElsewhere(Module):
    """A table that the first stage has: a stand-in of what it gives, never computed."""

    def __init__(self, hidden: int, dtype: mx.Dtype) -> None:
        super().__init__()
        self._hidden, self._dtype = hidden, dtype

    def __call__(self, ids: mx.array) -> mx.array:
        return mx.zeros((*ids.shape, self._hidden), self._dtype)

    def as_linear(self, x: mx.array) -> mx.array:
        return HeadElsewhere()(x)


class HeadElsewhere(Module):
    """The output head, which rank 0 has."""

    def __call__(self, _x: mx.array) -> mx.array:
        raise NotSupported("only rank 0 has the output head: the others follow, and draw no tokens")


def become_stage(
    chain: LayerChain,
    start: int,
    stop: int,
    first: int,
    stage_rank: StageRank,
    dtype: mx.Dtype,
    copied: Collection[int] = (),
) -> None:
    """Put stand-ins in the place of what other ranks have. first: how many layers the first stage has.
    dtype: of activations. copied: layers of others that rank 0 has, too, for what they remember.
    """
    layers, lent = chain.layers, [one for one in chain.lent if one.reaches(start, stop)]
    stream = StageStream(stage_rank, chain.trunk, start, stop, len(layers), first)
    elsewhere = Elsewhere()
    mine = [layer if start <= place < stop else elsewhere for place, layer in enumerate(layers)]
    if start:
        mine[start - 1] = Before(stream)
    if stop < len(mine):
        mine[stop] = Behind(stream, opens=stage_rank.opens)
        for place in copied:
            stand_in, mine[place] = mine[place], layers[place]
            _remembers_alone(layers[place], place, stream, stand_in)
    else:
        # Without the stream, which a layer is given first: as in `Behind`.
        then_given(mine[-1], lambda x, given: stream.leaving(x, given[1:]))
    for one in lent:
        mine[one.owner] = mine[one.owner] if mine[one.owner] is not elsewhere else Elsewhere()
        _put(mine[one.owner], one.name, inside(layers[one.owner], one.name))
    chain.trunk[chain.name] = mine
    if not stage_rank.opens:
        _leave_around(chain, dtype)


def _put(holder: Any, path: str, module: Any) -> None:
    """Under its name, so that tensors and adapters find it."""
    name, _, rest = path.partition(".")
    if not rest:
        holder[name] = module
        return
    place, _, below = rest.partition(".")
    if place.isdecimal():
        holder[name] = [Elsewhere() for _ in range(int(place) + 1)]
        _put(holder[name][-1], below, module)
    else:
        holder[name] = Elsewhere()
        _put(holder[name], rest, module)


def _remembers_alone(layer: Any, place: int, stream: StageStream, stand_in: Elsewhere) -> None:
    """Compute this layer from what enters it, which has come with the stream, and hand on what its stand-in
    does: what the layer answers has been computed elsewhere.
    """
    kind = type(layer)

    def call(self: Any, x: mx.array, *given: Any) -> mx.array:
        x = stand_in(x, *given)
        mx.async_eval(kind.__call__(self, stream.left(place - 1, given), *given))
        return x

    layer.__class__ = type(kind.__name__, (kind,), {"__call__": call})


def stage_layout(
    layout: Sequence[LayerSpec], chain: LayerChain, start: int, stop: int, copied: Collection[int] = ()
) -> tuple[LayerSpec, ...]:
    """What the places of a stage remember, and those of layers that it has copies of."""
    here = {*range(start, stop), *copied}
    return tuple(spec if chain.remembers(i) in here else Stateless() for i, spec in enumerate(layout))


def leave_head(network: Any, chain: LayerChain, stage_rank: StageRank) -> None:
    """To rank 0: no other draws tokens."""
    own = {one.path.partition(".")[0] for one in (*chain.both, *chain.tables)}
    if not stage_rank.leads:
        for name in [name for name in network.children() if name not in own]:
            network[name] = HeadElsewhere()


def _leave_around(chain: LayerChain, dtype: mx.Dtype) -> None:
    """To the first stage: what stands around the layers in the trunk, but for what every rank has."""
    for one in [*chain.around()]:
        if one.name not in chain.everywhere:
            table = is_table(one.module)
            one.holder[one.name] = TableElsewhere(_width(one.module), dtype) if table else Elsewhere()


def _width(table: Any) -> int:
    """Of a table's vectors, packed or not."""
    width = table.weight.shape[-1]
    return width * 32 // table.bits if "scales" in table else width
