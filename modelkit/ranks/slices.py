"""Slices of tensors for ranks whose stores lack the weights: what each needs by the plan, from rank 0.

    all       the slices that each needs and has not, told by headers   (nobody: that was all)
    rank 0    slice after slice, in pieces, and the SHA-256 of each: once for all that want it
    all       from time to time: has anybody a problem?

A rank keeps those that it wants (`modelkit.store.slices`), each when it is whole and has that SHA-256; so an
attempt that was interrupted goes on with the first slice that is missing. Rank 0 sends what its own blobs
have, and what those are checked for (`verify`) holds for all. Files that it has not, it has come from a
registry (`streaming`).
"""

import json
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import mlx.core as mx

from modelkit.errors import LoadError, ModelkitError
from modelkit.ranks.facts import Member, called
from modelkit.ranks.outline import Outline
from modelkit.ranks.passing import PassingSlices
from modelkit.ranks.streaming import Streaming
from modelkit.ranks.wants import SlicedWeights, Wants
from modelkit.units import size
from runtime.errors import RuntimeFault
from runtime.ranks.group import Group
from runtime.ranks.load import Assignment
from runtime.ranks.slices import Headers, Slice

if TYPE_CHECKING:
    from modelkit.opening.opened import Opened

ROUND_BYTES = 128 << 20
_WANTS_BYTES = 64 << 20
"""The most that one rank may say of what it needs."""
_WRITING_S = 60.0
"""How long a disk may take for what it is given at once, at the least."""


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
    wants, mine, problem = Wants(opened, outline), list[Slice](), None
    try:
        mine = wants.find(assigned)
    except (RuntimeFault, ModelkitError) as fault:
        problem = str(fault)
    asked, apart, notes = _asked(member, problem, mine, wants)
    streamed = [wants.files[number] for number in apart if wants.of_file(wants.files[number], asked)]
    passed = [one for one in asked if wants.tensors[one.tensor].path not in streamed]
    _Giving(member, wants, mine, on_bytes).give(passed, streamed)
    return wants.sliced(), notes


class _Giving:
    """All that is on its way to the ranks, which now and then agree that nobody has a problem."""

    def __init__(
        self, member: Member, wants: Wants, mine: Sequence[Slice], on_bytes: Callable[[int, int], None]
    ) -> None:
        self._member, self._wants, self._mine, self._on_bytes = member, wants, mine, on_bytes
        self._patience_s = _patience_s(member.group)
        self._passing = PassingSlices(member.group, self._patience_s, wants)
        self._streaming = Streaming(member.group, self._patience_s, self._came)
        self._whole_bytes = self._done_bytes = self._agreed_bytes = 0

    def give(self, passed: Sequence[Slice], streamed: Sequence[Path]) -> None:
        """passed: slices of files that rank 0 has. streamed: files that it reads from elsewhere."""
        wants, own = self._wants, frozenset(self._mine)
        sizes = {path: path.stat().st_size for path in streamed}
        self._whole_bytes = sum(sizes.values()) + sum(map(wants.nbytes, passed))
        for one in passed:
            self._passing.send(one, mine=one in own)
            self._came(wants.nbytes(one))
        for path, size_bytes in sizes.items():
            coming = wants.coming(path) if self._member.rank == 0 else None
            self._streaming.file(size_bytes, wants.keeping(path, self._mine), coming)
            self._agree()

    def _came(self, nbytes: int) -> None:
        self._done_bytes += nbytes
        self._on_bytes(self._done_bytes, self._whole_bytes)
        if self._done_bytes >= min(self._agreed_bytes + ROUND_BYTES, self._whole_bytes):
            self._agree()
            self._agreed_bytes = self._done_bytes

    def _agree(self) -> None:
        problem = self._passing.problem or self._streaming.problem
        self._member.agree({"problem": problem}, within_s=self._patience_s)


def _asked(
    member: Member, problem: str | None, wanted: Sequence[Slice], wants: Wants
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


def _patience_s(group: Group) -> float:
    return max(group.limit_s, _WRITING_S)
