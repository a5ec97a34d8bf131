"""Slices on their way: rank 0 sends each in pieces, and its SHA-256 behind it."""

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, cast

import mlx.core as mx
import numpy as np

from modelkit.ranks.facts import InStep
from modelkit.ranks.pieces import Piece, pieces_of
from modelkit.ranks.wants import Wants
from modelkit.source.tensor import TensorInfo
from modelkit.store.slices import SliceWriter
from runtime.ranks.group import Group
from runtime.ranks.slices import Slice

_SHA256_BYTES = 32


class PassingSlices(InStep):
    """Slices on their way."""

    def __init__(self, group: Group, patience_s: float, wants: Wants) -> None:
        self._group, self._patience_s, self._wants = group, patience_s, wants

    def send(self, one: Slice, *, mine: bool) -> None:
        """Rank 0 sends it, and who wants it (`mine`) keeps it."""
        tensor, state = self._wants.tensors[one.tensor], hashlib.sha256()
        with ExitStack() as stack:
            writer: SliceWriter | None = None
            with self.noting():
                writer = stack.enter_context(self._wants.writer(one)) if mine else None
            for piece in pieces_of(one, tensor):
                came = self._broadcast(lambda piece=piece: self._read(piece, tensor), piece.nbytes)
                state.update(came)
                with self.noting():
                    if writer is not None:
                        writer.write(came)
            sha256 = self._broadcast(lambda: np.frombuffer(state.digest(), np.uint8), _SHA256_BYTES)
            with self.noting():
                if writer is not None:
                    writer.commit(bytes(sha256).hex())

    def _read(self, piece: Piece, tensor: TensorInfo) -> np.ndarray:
        with self.noting():
            return piece.read(tensor)
        return np.zeros(piece.nbytes, np.uint8)

    def _broadcast(self, read: Callable[[], np.ndarray], nbytes: int) -> memoryview:
        """read: what rank 0 sends."""
        sent = mx.array(read()) if self._group.rank == 0 else None
        with self._group.bounded(self._patience_s):
            came = self._group.broadcast(sent, (nbytes,), mx.uint8)
            mx.eval(came)  # before the next is read: no more than one is on its way from here
        return memoryview(cast("Any", came))
