"""Will run time take this adapter? Its own code is asked, with arrays of the right shapes and no numbers."""

import mlx.core as mx

from modelkit.pack.adapters.place import Placed, Placement
from modelkit.source.adapters.value import refuse
from runtime.errors import WeightMismatch
from runtime.loading.shapes import parameters
from runtime.models import Described
from runtime.nn.adapters.adapter import Adapter
from runtime.nn.adapters.low_rank import HEAD, LowRank, LowRanks, Rows


def require_attachable(placement: Placement, described: Described) -> None:
    """Raises SourceError naming what cannot be added at run time."""
    network = described.family.build(described.config)
    try:
        Adapter(network, _hollow(placement, described))
    except WeightMismatch as mismatch:
        refuse(placement.source.label, mismatch.problems)


def _hollow(placement: Placement, described: Described) -> LowRanks:
    """Without magnitudes, whose norms would be computed of weights that are not there, but for stacks of
    experts, which take none.
    """
    shapes = parameters(described)
    tied = f"{HEAD}.weight"
    if placement.tied:
        shapes = {**shapes, tied: shapes[placement.tied]}
    pairs = {one.module: _pair(one) for one in placement.placed}
    whole = {name: _empty(*shapes[name]) for name in placement.whole}
    rows = {
        name: Rows(mx.arange(len(own.ids), dtype=mx.int32), _empty(*own.values.shape))
        for name, own in placement.rows.items()
    }
    return LowRanks(pairs, whole, rows)


def _pair(one: Placed) -> LowRank:
    *stack, rows, columns = one.arrival.shape
    first, last = (rows, columns) if one.kind == "table" else (columns, rows)
    down = _empty(*(stack if one.kind == "experts" else ()), first, one.rank)
    bias = _empty(last) if any(pair.bias for pair in one.pairs) else None
    dora = one.kind == "experts" and any(pair.magnitude for pair in one.pairs)
    magnitude = _empty(*stack, last) if dora else None
    return LowRank(down, _empty(*stack, one.rank, last), 1.0, magnitude, bias)


def _empty(*shape: int) -> mx.array:
    return mx.broadcast_to(mx.zeros(()), shape)
