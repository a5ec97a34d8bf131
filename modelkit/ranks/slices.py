"""Slices of tensors for ranks whose stores lack the weights: what each needs by the plan, from rank 0.

    all       the slices that each needs and has not, told by headers   (nobody: that was all)
    rank 0    slice after slice, in pieces, and the SHA-256 of each: once for all that want it
    all       from time to time: has anybody a problem?

A rank keeps those that it wants (`modelkit.store.slices`), each when it is whole and has that SHA-256; so an
attempt that was interrupted goes on with the first slice that is missing. Rank 0 sends what its own blobs
have, and what those are checked for (`verify`) holds for all. Files that it has not, it has come from a
registry (`streaming`).
"""

import hashlib
import json
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import mlx.core as mx
import numpy as np

from modelkit.errors import LoadError, ModelkitError
from modelkit.ranks.facts import InStep, Member, called
from modelkit.ranks.outline import Outline
from modelkit.ranks.streaming import Coming, Keeping, Ranges, Sieve, SliceBytes, Streaming
from modelkit.requests import attached
from modelkit.source.tensor import TensorInfo
from modelkit.store.digest import Blob
from modelkit.store.slices import Sliced, SliceWriter
from modelkit.units import size
from runtime.device import Device, device
from runtime.errors import RuntimeFault
from runtime.models import describe
from runtime.ranks.group import Group
from runtime.ranks.load import Assignment, slices_of
from runtime.ranks.slices import Headers, Slice
from runtime.records import dataclass

if TYPE_CHECKING:
    from modelkit.opening.opened import Opened

PIECE_BYTES = 8 << 20
ROUND_BYTES = 128 << 20
_WANTS_BYTES = 64 << 20
"""The most that one rank may say of what it needs."""
_SHA256_BYTES = 32
_WRITING_S = 60.0
"""How long a disk may take for what it is given at once, at the least."""

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


@dataclass(frozen=True, slots=True)
class Piece:
    """Numbers of a slice that are sent at once: of some rows, [start, stop), ranges of bytes."""

    rows: tuple[int, int]
    ranges: Ranges
    width: int
    """Bytes of a row in the file."""

    @property
    def nbytes(self) -> int:
        start, stop = self.rows
        return (stop - start) * sum(last - first for first, last in self.ranges)

    def read(self, tensor: TensorInfo) -> "np.ndarray":
        """Its bytes. Raises OSError, and ValueError where the file has become shorter."""
        start, stop = self.rows
        place = tensor.start + start * self.width
        whole = np.memmap(tensor.path, np.uint8, "r", place, (stop - start, self.width))
        return np.concatenate([whole[:, slice(*ends)] for ends in self.ranges], axis=1).reshape(-1)


def give_slices(
    member: Member,
    opened: "Opened",
    outline: Outline | None,
    assigned: Assignment,
    on_bytes: Callable[[int, int], None],
) -> tuple[SlicedWeights | None, tuple[str, ...]]:
    """All call it at the same time, where some rank has an outline. outline: this one's. on_bytes: of the
    bytes that have come, and of all.

    Returns what this rank loads of, None for its files, and sentences for the user. Raises LoadError on all
    ranks where one cannot have what it needs.
    """
    group, patience_s = member.group, _patience_s(member.group)
    wants, mine, problem = _Wants(opened, outline), list[Slice](), None
    try:
        mine = wants.find(assigned)
    except (RuntimeFault, ModelkitError) as fault:
        problem = str(fault)
    asked, apart, notes = _asked(member, problem, mine, wants)
    own = frozenset(mine)
    streamed = [wants.files[number] for number in apart if wants.of_file(wants.files[number], asked)]
    passed = [one for one in asked if wants.tensors[one.tensor].path not in streamed]
    passing = _Passing(group, wants)
    sizes = {path: path.stat().st_size for path in streamed}
    whole_bytes = sum(sizes.values()) + sum(map(wants.nbytes, passed))
    done_bytes = agreed_bytes = 0

    def came(nbytes: int) -> None:
        nonlocal done_bytes, agreed_bytes
        done_bytes += nbytes
        on_bytes(done_bytes, whole_bytes)
        if done_bytes >= min(agreed_bytes + ROUND_BYTES, whole_bytes):
            agree()
            agreed_bytes = done_bytes

    def agree() -> None:
        member.agree({"problem": passing.problem or streaming.problem}, within_s=patience_s)

    streaming = Streaming(group, patience_s, came)
    for one in passed:
        passing.send(one, mine=one in own)
        came(wants.nbytes(one))
    for path in streamed:
        coming = wants.coming(path) if group.rank == 0 else None
        streaming.file(sizes[path], wants.keeping(path, mine), coming)
        agree()
    return wants.sliced(), notes


class _Wants:
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


def bytes_of(one: Slice, tensor: TensorInfo) -> SliceBytes:
    """Where the file has them."""
    whole = tensor.stop - tensor.start
    rows, inner, chosen = 1, whole, ((0, 1),)
    if one.ranges:
        rows, chosen = math.prod(tensor.shape[: one.axis]), one.ranges
        inner = whole // (rows * tensor.shape[one.axis])
    return SliceBytes(rows, tuple((start * inner, stop * inner) for start, stop in chosen), whole // rows)


def pieces_of(one: Slice, tensor: TensorInfo) -> Iterator[Piece]:
    """In the order of its numbers; none is of more than PIECE_BYTES."""
    found = bytes_of(one, tensor)
    rows, ranges, width = found.rows, found.ranges, found.width
    mine = sum(stop - start for start, stop in ranges)
    if mine <= PIECE_BYTES:
        step = PIECE_BYTES // max(mine, 1)
        for row in range(0, rows if mine else 0, step):
            yield Piece((row, min(row + step, rows)), ranges, width)
        return
    for row in range(rows):
        for start, stop in ranges:
            for ends in pairwise([*range(start, stop, PIECE_BYTES), stop]):
                yield Piece((row, row + 1), (ends,), width)


def _asked(
    member: Member, problem: str | None, wanted: Sequence[Slice], wants: _Wants
) -> tuple[list[Slice], list[int], tuple[str, ...]]:
    """What any rank wants, each once, the numbers of the files that rank 0 lacks, too, and notes. problem:
    what went wrong on this one.
    """
    group = member.group
    raw = zlib.compress(json.dumps([one.to_json() for one in wanted]).encode())
    apart = f"{sum(1 << number for number in wants.apart):x}"
    more = {"bytes": len(raw), "wanted": sum(map(wants.nbytes, wanted)), "apart": apart}
    said = member.agree({"problem": problem, **more}, within_s=_patience_s(group))
    longest = max(facts["bytes"] for facts in said)
    if longest > _WANTS_BYTES:
        raise LoadError(f"a rank asks for slices in {longest:,} bytes, and {_WANTS_BYTES:,} is the most")
    with group.bounded():
        gathered = group.gather(mx.array(cast("Any", memoryview(raw.ljust(longest, b"\0")))))
        mx.eval(gathered)
    every, found, notes = bytes(memoryview(cast("Any", gathered))), dict[Slice, None](), list[str]()
    for rank, facts in enumerate(said):
        its = every[rank * longest :][: facts["bytes"]]
        try:
            found |= dict.fromkeys(_parsed(its, wants.headers))
        except (ValueError, RecursionError, zlib.error, RuntimeFault) as error:
            raise LoadError(f"{called(said, rank)} asks for what the model does not have: {error}") from error
        if facts["wanted"]:
            notes.append(
                f"{called(said, rank)} lacks the weights: it has fetched its {size(facts['wanted'])}"
            )
    mask = int(said[0]["apart"], 16)
    return [*found], [number for number in range(len(wants.files)) if mask >> number & 1], tuple(notes)


def _parsed(raw: bytes, headers: Headers) -> list[Slice]:
    text = zlib.decompressobj().decompress(raw, _WANTS_BYTES)
    said = json.loads(text)
    if not isinstance(said, list):
        raise ValueError("a list was expected")
    return [Slice.from_json(one, headers) for one in said]


class _Passing(InStep):
    """Slices on their way."""

    def __init__(self, group: Group, wants: _Wants) -> None:
        self._group, self._wants = group, wants

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

    def _read(self, piece: Piece, tensor: TensorInfo) -> "np.ndarray":
        with self.noting():
            return piece.read(tensor)
        return np.zeros(piece.nbytes, np.uint8)

    def _broadcast(self, read: Callable[[], "np.ndarray"], nbytes: int) -> memoryview:
        """read: what rank 0 sends."""
        sent = mx.array(read()) if self._group.rank == 0 else None
        with self._group.bounded(_patience_s(self._group)):
            came = self._group.broadcast(sent, (nbytes,), mx.uint8)
            mx.eval(came)  # before the next is read: no more than one is on its way from here
        return memoryview(cast("Any", came))


def _patience_s(group: Group) -> float:
    return max(group.limit_s, _WRITING_S)
