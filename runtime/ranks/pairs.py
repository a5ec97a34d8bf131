"""Adapters on ranks: of what one adds behind a module, a rank has what goes with its part of that module.

    outputs of W   all of A, and B's own columns; magnitudes and biases likewise
    inputs of W    A's own rows, and all of B: products add up, as those of W do; a bias is the first rank's
    heads of W     one A for all of them, and B of its own heads
    experts of W   A and B of its own
    all of W       all of it
    none of W      nothing

DoRA's norms run over all inputs of W, of which a rank may have a part: they are computed of the stored
weights, some rows at a time, on each rank for itself, and not exchanged.

Every rank checks every adapter against the whole network first, so that all refuse the same, by name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import mlx.core as mx

from runtime.errors import CannotCut, WeightMismatch
from runtime.nn.adapters.adapter import Adapter
from runtime.nn.adapters.fusion import floats, product
from runtime.nn.adapters.low_rank import HEAD, LEAVES, LowRank, LowRanks, Rows
from runtime.ranks.pieces import Piece
from runtime.ranks.ranges import taken
from runtime.ranks.shards import Splits, Take

_NUMBERS = 16 << 20
"""Of a matrix, so many at a time become floats."""


def check_adapters(network: Any, adapters: Mapping[str, LowRanks]) -> None:
    """Raise WeightMismatch for what does not fit the whole network. Nothing is read."""
    problems: list[str] = []
    for name, brought in adapters.items():
        try:
            Adapter(network, _hollow(brought))
        except WeightMismatch as error:
            problems += [f"adapter {name}: {problem}" for problem in error.problems]
        for module, pair in brought.pairs.items():
            wanted = (*pair.up.shape[:-2], pair.up.shape[-1])
            if pair.magnitude is not None and pair.magnitude.shape != wanted:
                problems.append(f"adapter {name}: {module}.lora_magnitude does not fit its lora_up")
    if problems:
        raise WeightMismatch(problems)


def brought_share(splits: Splits, name: str) -> float:
    """How much one rank of a stage has of an adapter's tensor of this name, as `Pairs` cuts it."""
    module, _, leaf = name.rpartition(".")
    if leaf not in LEAVES:
        return splits.share(name)
    cut = splits.piece(f"{module}.weight")
    if cut is None:
        return 1.0
    piece = cut[0]
    if leaf == "lora_bias" and piece.along == "inputs":
        return float(piece.first)
    own = piece.along == "each" or (leaf == "lora_down") == (piece.along == "inputs")
    return piece.share("weight") if own else 1.0


class Pairs:
    """Of one rank, whose network has been cut."""

    def __init__(
        self,
        network: Any,
        splits: Splits | None,
        here: Iterable[str],
        whole: Mapping[str, mx.array],
        take: Take,
    ) -> None:
        """splits: what was cut of sublayers; None: nothing. here: names of the network's tensors now. whole:
        the tensors before.
        """
        self._modules: dict[str, Any] = dict(network.named_modules())
        self._splits, self._here, self._whole, self._take = splits, frozenset(here), whole, take

    def cut(self, adapter: str, brought: LowRanks, *, head: bool) -> LowRanks:
        """This rank's. head: is the output head here? Raises CannotCut."""
        pairs = {
            name: self._pair(name, pair)
            for name, pair in brought.pairs.items()
            if self._is_here(f"{name}.weight", head=head)
        }
        whole = {
            name: self._some(name, array)
            for name, array in brought.whole.items()
            if self._is_here(name, head=head)
        }
        rows = {name: rows for name, rows in brought.rows.items() if self._is_here(name, head=head)}
        for name in rows:
            if self._piece(name) is not None:
                raise CannotCut(f"adapter {adapter}: it has rows of {name}, of which ranks have parts")
        return LowRanks(pairs, whole, rows)

    def reads(self, brought: LowRanks) -> list[mx.array]:
        """What `cut` reads of the network's own tensors: matrices whose norms run over inputs of others."""
        found: list[mx.array] = []
        for name, pair in brought.pairs.items():
            piece = self._piece(f"{name}.weight")
            if pair.magnitude is not None and piece is not None and piece.along == "inputs":
                found += self._stored(name).values() if self._is_here(f"{name}.weight", head=False) else ()
        return found

    def _stored(self, module: str) -> dict[str, mx.array]:
        names = {leaf: f"{module}.{leaf}" for leaf in _LEAVES}
        return {leaf: self._whole[name] for leaf, name in names.items() if name in self._whole}

    def _is_here(self, tensor: str, *, head: bool) -> bool:
        return head if tensor.startswith(f"{HEAD}.") else tensor in self._here

    def _piece(self, tensor: str) -> Piece | None:
        found = None if self._splits is None else self._splits.piece(tensor)
        return None if found is None else found[0]

    def _some(self, tensor: str, array: mx.array) -> mx.array:
        piece, leaf = self._piece(tensor), tensor.rpartition(".")[2]
        return array if piece is None else taken(array, *piece.where(leaf, array.shape))

    def _pair(self, name: str, pair: LowRank) -> LowRank:
        piece = self._piece(f"{name}.weight")
        if piece is None:
            return pair
        if piece.along == "each":
            down, up = (taken(part, piece.axis, piece.ranges) for part in (pair.down, pair.up))
            return replace(pair, down=down, up=up)
        if piece.along == "inputs":
            norms = None if pair.magnitude is None else self._norms(name, pair)
            down = taken(pair.down, pair.down.ndim - 2, piece.ranges)
            return replace(pair, down=down, norms=norms, bias=pair.bias if piece.first else None)
        own = [None if array is None else _own(array, piece) for array in (pair.magnitude, pair.bias)]
        return replace(pair, up=_own(pair.up, piece), magnitude=own[0], bias=own[1])

    def _norms(self, name: str, pair: LowRank) -> mx.array:
        """[out], float32, of the rows of W + scale · (A B)ᵀ, all of them whole."""
        module, found = self._modules[name], list[mx.array]()
        stored = self._stored(name)
        held = {leaf: module[leaf] for leaf in stored}
        outputs, width = pair.up.shape[-1], pair.down.shape[-2]
        step = min(max(_NUMBERS // width, 1), -(-outputs // 2))  # never all: that would stay in memory
        try:
            for start in range(0, outputs, step):
                some = (start, min(start + step, outputs))
                for leaf, array in stored.items():
                    module[leaf] = self._take(array, array.ndim - 2, [some])
                more = product(replace(pair, up=pair.up[..., slice(*some)]), table=False)
                found.append(mx.linalg.norm(floats(module) + more, axis=-1))
                mx.eval(found)
        finally:
            for leaf, array in held.items():
                module[leaf] = array
        return mx.concatenate(found)


_LEAVES = ("weight", "scales", "biases")


def _own(array: mx.array, piece: Piece) -> mx.array:
    """Of what has outputs last, or heads first."""
    return taken(array, piece.axis if piece.along == "stack" else array.ndim - 1, piece.ranges)


def _hollow(brought: LowRanks) -> LowRanks:
    """Of the same shapes, without numbers; and without magnitudes, whose norms would be computed."""
    pairs = {
        name: LowRank(
            _empty(pair.down), _empty(pair.up), 1.0, None, None if pair.bias is None else _empty(pair.bias)
        )
        for name, pair in brought.pairs.items()
    }
    rows = {name: Rows(rows.ids, _empty(rows.values)) for name, rows in brought.rows.items()}
    return LowRanks(pairs, {name: _empty(array) for name, array in brought.whole.items()}, rows)


def _empty(array: mx.array) -> mx.array:
    return mx.broadcast_to(mx.zeros(()), array.shape)
