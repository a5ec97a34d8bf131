"""What one rank needs of stored tensors, by the plan, and where it keeps that."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from modelkit.ranks.outline import Outline
from modelkit.ranks.pieces import bytes_of
from modelkit.ranks.streaming import Coming, Keeping, Sieve
from modelkit.requests import attached
from modelkit.source.tensor import TensorInfo
from modelkit.store.digest import Blob
from modelkit.store.slices import Sliced, SliceWriter
from runtime.device import Device, device
from runtime.models import describe
from runtime.ranks.load import Assignment, slices_of
from runtime.ranks.slices import Headers, Slice
from runtime.records import dataclass

if TYPE_CHECKING:
    from modelkit.opening.opened import Opened

Tensors = Mapping[str, TensorInfo]


@dataclass(frozen=True, slots=True)
class SlicedWeights:
    """What a rank loads of that has not all the files."""

    slices: Mapping[Slice, Path]
    files: tuple[Path, ...]
    """Of weights that are here whole."""
    headers: Headers
    on: Device
    """That the slices were found for."""


class Wants:
    """What one rank needs of stored tensors."""

    def __init__(self, opened: "Opened", outline: Outline | None) -> None:
        self._opened, self._outline = opened, outline
        self.tensors: Tensors = opened.inventory.tensors
        self.headers: Headers = {name: (one.dtype, one.shape) for name, one in self.tensors.items()}
        self.files = [one.path for one in opened.inventory.weights]
        self._on = device()
        self._needed: list[Slice] = []

    @property
    def apart(self) -> list[int]:
        """Numbers of the files that are not here."""
        hollow = {} if self._outline is None else self._outline.hollow
        return [number for number, path in enumerate(self.files) if path in hollow]

    def find(self, assigned: Assignment) -> list[Slice]:
        """Those that it has not."""
        if self._outline is None:
            return []
        opened = self._opened
        sources = attached.sources(opened.adapters, describe(opened.inventory.config))
        adapters = {source.name: source.read() for source in sources}
        config = opened.inventory.config
        found = slices_of(config, self.headers, assigned, on=self._on, adapters=adapters)
        self._needed = [one for one in found if self.tensors[one.tensor].path in self._outline.hollow]
        wanted = [one for one in self._needed if self._outline.new.find_slice(self.stored(one)) is None]
        self._outline.new.require_space(sum(map(self.nbytes, wanted)))
        return wanted

    def sliced(self) -> SlicedWeights | None:
        if self._outline is None:
            return None
        paths = {one: self._outline.new.find_slice(self.stored(one)) for one in self._needed}
        here = tuple(path for path in self.files if path not in self._outline.hollow)
        slices = {one: path for one, path in paths.items() if path is not None}
        return SlicedWeights(slices, here, self.headers, self._on)

    def nbytes(self, one: Slice) -> int:
        tensor = self.tensors[one.tensor]
        each = (tensor.stop - tensor.start) // max(math.prod(tensor.shape), 1)
        return math.prod(one.shape(tensor.shape)) * each

    def stored(self, one: Slice) -> Sliced:
        assert self._outline is not None
        tensor = self.tensors[one.tensor]
        blob, which = self._outline.hollow[tensor.path], json.dumps(one.to_json()[1:])
        return Sliced(blob, one.tensor, which, tensor.dtype, one.shape(tensor.shape), self.nbytes(one))

    def writer(self, one: Slice) -> SliceWriter:
        assert self._outline is not None
        return self._outline.new.write_slice(self.stored(one))

    def of_file(self, path: Path, slices: Iterable[Slice]) -> list[Slice]:
        return [one for one in slices if self.tensors[one.tensor].path == path]

    def coming(self, path: Path) -> Coming:
        assert self._outline is not None
        return Coming(self._outline, Blob(self._outline.hollow[path], path.stat().st_size))

    def keeping(self, path: Path, mine: Sequence[Slice]) -> Keeping | None:
        """None where it keeps nothing of this file."""
        if self._outline is None:
            return None
        found = [(one, self.tensors[one.tensor]) for one in self.of_file(path, mine)]
        slices = [
            (Sieve(tensor, bytes_of(one, tensor)), self.nbytes(one), partial(self.writer, one))
            for one, tensor in found
        ]
        return Keeping(path, self._outline.hollow[path], slices) if slices else None
