"""Give MLX a fast BLAS where its own wheel has none: the decision, the self-test and the report.

On Linux CPU MLX's wheel links the reference BLAS: 4 GFLOP/s where the processor does 230, and matrix-vector
products at a fifth of memory speed. The package scipy-openblas32 (extra `cpu`) carries OpenBLAS under
prefixed names; binding it means pointing MLX's three import slots at it, in this process only. Nothing on
disk changes.

Invariants: nothing is bound unless MLX computes on the CPU here and small exact products come out equal
before and after; else the old addresses are put back. Absence is a report, never an error; a limit of
addresses in which nothing can compute is one. Call it before the first product, on any thread.
"""

import ctypes
import importlib.util
import math
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.cpu.gemv import switch
from runtime.cpu.slots import Slot, find_slots, library_of
from runtime.cpu.thread_limits import as_allowed
from runtime.errors import ProcessLimit
from runtime.host import address_room, cores, startable, task_limit
from runtime.records import dataclass

if TYPE_CHECKING:
    import mlx.core as mx

ROUTINES = ("cblas_sgemm", "cblas_dgemm", "cblas_cgemm")  # all that MLX imports
PREFIX = "scipy_"
SPIN, SPIN_VARIABLE = 20, "OPENBLAS_THREAD_TIMEOUT"
"""For how many ticks of the processor, as a power of two, an idle thread of the library spins: about 0.4 ms,
longer than from one product of a forward pass to the next. By its own default each product of two threads
keeps a core busy for 25 ms more, and what runs then, rounds of one token or other programs, is slower.
"""
ROOM_BYTES, THREAD_ROOM_BYTES = 320 * 2**20, 64 * 2**20
"""Addresses that must be left where `ulimit -v` bounds them, in all and for each core: what the library takes
for its threads (133 MB on two cores), and stacks and arenas of a dozen others. With 320 MB a small model
failed there, now and then.
"""
THREADS = 8
"""That must be left beside one for each core: the engine's and MLX's, which has one for each stream; where it
gets none for one, it ends the process.
"""
MANY_TASKS = 4096  # of this limit nobody asks what is left: that would cost every start a millisecond
FAST = ("openblas", "mkl", "blis", "armpl", "nvpl")  # in the file or folder name of a BLAS worth keeping


@dataclass(frozen=True, slots=True)
class BlasReport:
    """Which BLAS multiplies MLX's float32 matrices on the CPU."""

    name: str
    """For example "OpenBLAS 0.3.34", or the file MLX was linked with."""
    config: str = ""
    """The library's own description."""
    threads: int = 0
    """0 where this process does not decide it."""
    bound: bool = False
    """This process put it there."""
    gemv: bool = False
    """One-row products take the fast way."""
    reason: str | None = None
    """Why nothing was bound; None when it was."""


_lock = threading.Lock()
_most = 1
_library: ctypes.CDLL | None = None
_report = BlasReport("unknown", reason="bind_blas was not called")


def bind_blas(enabled: bool = True) -> BlasReport:
    """Bind the fast BLAS once per process, with `most_threads`; later calls return the report.

    Threads spin while they wait, so more of them than free cores is slow, not fast: runtime.cpu.threads
    chooses a number step by step. Raises ProcessLimit: whoever calls this is about to compute.
    """
    global _report
    with _lock:
        if not _report.bound:
            _check_room()
            _report = _bind() if enabled else BlasReport(_linked(), reason="switched off")
        return _report


def _check_room() -> None:
    room, wanted = address_room(), ROOM_BYTES + THREAD_ROOM_BYTES * cores()
    if room is not None and room < wanted:
        raise ProcessLimit(
            f"`ulimit -v` leaves this process {room:,} bytes of addresses, and to compute takes {wanted:,}, "
            "weights not counted; raise that limit"
        )
    limit, threads = task_limit(), THREADS + as_allowed(cores())
    if limit is not None and limit < MANY_TASKS and (left := startable(threads)) < threads:
        raise ProcessLimit(
            f"to compute takes {threads} more threads, and the system gives this process {left}; raise the "
            "limit (`ulimit -u`, or that of its container)"
        )


def report() -> BlasReport:
    """What the last `bind_blas` or `set_threads` left."""
    return _report


def most_threads() -> int:
    """The physical cores this process may use, and never more than the library's own default, which follows
    OPENBLAS_NUM_THREADS; 1 where nothing is bound.
    """
    return _most


def set_threads(count: int) -> BlasReport:
    """Let the bound BLAS use `count` threads; without a bound one nothing changes. ValueError below 1."""
    global _report
    if count < 1:
        raise ValueError(f"a BLAS needs at least one thread, not {count}")
    with _lock:
        if _report.bound:
            _report = _with_threads(count)
        return _report


def _bind() -> BlasReport:
    global _library, _most
    try:
        reason, path = _refusal(), openblas_path()
        if reason or path is None:
            return BlasReport(_linked(), reason=reason or "the package scipy-openblas32 is not installed")
        slots = find_slots("libmlx.so", ROUTINES)
        if set(slots) != set(ROUTINES):
            return BlasReport("unknown", reason="MLX's library does not import BLAS in the way known here")
        expected = (
            _products()
        )  # also makes the loader resolve the slots, so the next line can tell whose they are
        linked = Path(library_of(slots["cblas_sgemm"][0].read()))
        if any(mark in "/".join(linked.parts[-2:]).lower() for mark in FAST):
            return BlasReport(linked.name, reason="MLX is linked with a fast BLAS already")
        _library = _load(path)
        _library.scipy_openblas_get_config.restype = ctypes.c_char_p
        _most = min(cores(), _library.scipy_openblas_get_num_threads())
        _library.scipy_openblas_set_num_threads(_most)
        way = _install(_library, slots, expected)
        if way is None:
            return BlasReport(linked.name, reason="the self-test products came out different")
        return _describe(_library, gemv=way)
    except (OSError, AttributeError) as error:  # unreadable library, missing routine, sealed page
        return BlasReport("unknown", reason=str(error))


def _load(path: Path) -> ctypes.CDLL:
    """The library, whose idle threads sleep after SPIN. It looks at its environment only as it is loaded."""
    own = SPIN_VARIABLE in os.environ
    if not own:
        os.environ[SPIN_VARIABLE] = str(SPIN)
    try:
        return ctypes.CDLL(str(path))
    finally:
        if not own:
            del os.environ[SPIN_VARIABLE]


def _refusal() -> str | None:
    """Why this machine needs no binding, or None."""
    if sys.platform != "linux":
        return "only MLX's Linux wheel lacks a fast BLAS"
    import mlx.core as mx

    return None if mx.default_device().type == mx.DeviceType.cpu else "MLX computes on a GPU here"


def _linked() -> str:
    """The BLAS that MLX came with, as far as it is known without a product."""
    return "Accelerate" if sys.platform == "darwin" else "the one MLX was linked with"


def openblas_path() -> Path | None:
    """The library of the package scipy-openblas32, where that is installed."""
    spec = importlib.util.find_spec("scipy_openblas32")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in Path(folder, "lib").glob("libscipy_openblas*.so*"):
            return path
    return None


def _install(library: ctypes.CDLL, slots: dict[str, list[Slot]], expected: "list[mx.array]") -> bool | None:
    """Point the slots at `library`.

    True: with the one-row switch. False: without it. None: products differed both ways, and all is as before.
    """
    before = [(slot, slot.read()) for cells in slots.values() for slot in cells]
    targets = {name: _address(library, name) for name in ROUTINES}
    one_row = switch(targets["cblas_sgemm"], _address(library, "cblas_sgemv"))
    try:
        for sgemm in filter(None, (one_row, targets["cblas_sgemm"])):
            for name, cells in slots.items():
                for slot in cells:
                    slot.write(sgemm if name == "cblas_sgemm" else targets[name])
            if _equal(expected, _products()):
                return sgemm == one_row
    except OSError:
        _restore(before)
        raise
    _restore(before)
    return None


def _restore(before: list[tuple[Slot, int]]) -> None:
    for slot, target in before:
        if slot.read() != target:
            slot.write(target)


def _address(library: ctypes.CDLL, name: str) -> int:
    address = ctypes.cast(library[PREFIX + name], ctypes.c_void_p).value
    assert address is not None
    return address


def _with_threads(count: int) -> BlasReport:
    assert _library is not None
    _library.scipy_openblas_set_num_threads(count)
    return replace(_report, threads=_library.scipy_openblas_get_num_threads())


def _describe(library: ctypes.CDLL, gemv: bool) -> BlasReport:
    """The library describes itself like "OpenBLAS 0.3.34 DYNAMIC_ARCH SkylakeX MAX_THREADS=64"."""
    config = library.scipy_openblas_get_config().decode(errors="replace")
    return BlasReport(
        name=" ".join(config.split()[:2]),
        config=config,
        threads=library.scipy_openblas_get_num_threads(),
        bound=True,
        gemv=gemv,
    )


def _products() -> "list[mx.array]":
    """Products of small whole numbers, exact in every float type and every order of summation.

    They cover what MLX asks of a BLAS: both transposes, one and many rows, batches, alpha and beta, three
    element types, and one product large enough to be shared among threads.
    """
    import mlx.core as mx

    def grid(*shape: int, dtype: mx.Dtype = mx.float32) -> mx.array:
        return (mx.arange(math.prod(shape)) * 37 % 11 - 5).astype(dtype).reshape(shape)

    f32 = [
        grid(3, 33) @ grid(33, 17),
        grid(33, 3).T @ grid(17, 33).T,
        grid(1, 33) @ grid(17, 33).T,
        grid(1, 33) @ grid(33, 17),
        grid(4, 1, 33) @ grid(4, 33, 17),
        mx.addmm(grid(1, 17), grid(1, 33), grid(17, 33).T, alpha=2.0, beta=3.0),
        mx.addmm(grid(1, 17), grid(1, 33), grid(33, 17), alpha=2.0, beta=3.0),
        grid(1, 200) @ grid(201, 200).T,
        grid(100, 110) @ grid(110, 120),
    ]
    other = [
        grid(rows, 33, dtype=dtype) @ grid(17, 33, dtype=dtype).T
        for dtype in (mx.float64, mx.complex64)
        for rows in (1, 3)
    ]
    mx.eval(f32, other)
    return f32 + other


def _equal(expected: "list[mx.array]", found: "list[mx.array]") -> bool:
    import mlx.core as mx

    return all(mx.array_equal(a, b).item() for a, b in zip(expected, found, strict=True))
