"""Loads the kernels where they are there, belong here and work; else says why not, and what to do about it.

Relies on the report that `building` leaves beside the extension. Whatever is wrong (never built, built for
another release of MLX or another Python, older than its sources, a broken file, a self-test that fails) ends
in a Status with a reason, and models compute without kernels. Only MODELKIT_KERNELS=required makes it an
error, of whoever is about to compute (`runtime.nn.operations.ops.use`).
"""

import importlib.machinery
import importlib.util
import json
import os
import sys
import threading
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import mlx.core as mx

from runtime.forks import claim
from runtime.quoting import quoted
from runtime.records import dataclass

VARIABLE = "MODELKIT_KERNELS"
ACTIVATIONS = "MODELKIT_KERNELS_ACTIVATIONS"
"""What products with packed integers make of activations: i16 (the default) or f32."""
HERE = Path(__file__).parent
SITE = Path(mx.__file__).parents[1]
"""Where MLX is installed."""
SUFFIX = importlib.machinery.EXTENSION_SUFFIXES[0]
"""That of extensions of this Python and no other."""
MODULE = "_kernels"


@dataclass(frozen=True, slots=True)
class Status:
    """What there is of kernels in this process."""

    column: str | None
    """The instruction set they compute by; None: they are not used."""
    columns: tuple[str, ...] = ()
    """Those that this processor has."""
    reason: str | None = None
    """Why they are not used, a clause; None where they are."""
    remedy: str | None = None
    """What the user can do about it; None where nothing helps, or nothing is wrong."""
    required: bool = False
    """They are asked for and not there: nothing may compute without them."""


class _Absent(Exception):
    """Why there are no kernels, and what helps."""

    def __init__(self, reason: str, remedy: str | None = None, columns: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.status = Status(None, columns, reason, remedy)


def load(folder: Path = HERE) -> tuple[Any, Status]:
    """The extension module in `folder`, or None; and what there is to say."""
    wanted = os.environ.get(VARIABLE, "").strip().lower()
    try:
        if wanted == "off":
            raise _Absent(f"{VARIABLE}=off is set", f"unset {VARIABLE}")
        module = _module(folder / f"{MODULE}{SUFFIX}", _check(folder))
        column, columns = _choose(module, "" if wanted == "required" else wanted)
        _test(module, columns)
    except _Absent as absent:
        return None, replace(absent.status, required=wanted == "required")
    return module, Status(column, columns)


def _check(folder: Path) -> str | None:
    """Were they built for this Python and this MLX, of the sources that are there? Their checksum."""
    built = _reported(folder)
    if built.failed is not None:
        raise _Absent(built.failed, built.remedy)
    installed = _processor_build()
    if installed is None:
        raise _Absent("they work with MLX's processor build (mlx-cpu), and another is installed")
    if installed != built.mlx:
        raise _Absent(
            f"they were built for MLX {built.mlx}, and {installed} is installed",
            f"pip install 'mlx[cpu]=={built.mlx}'",
        )
    if _outdated(folder):
        raise _Absent(
            "their sources have changed since they were built",
            "run `make kernels`, or install modelkit again",
        )
    return built.checksum


def _processor_build() -> str | None:
    """The release of MLX's processor build that is installed; None: of another one, or none."""
    release: str = mx.__version__  # pyright: ignore[reportAttributeAccessIssue] -- not in MLX's stubs
    if (SITE / f"mlx_cpu-{release}.dist-info").is_dir():
        return release
    from importlib.metadata import PackageNotFoundError, version  # late: slower than all else that is asked

    try:
        version("mlx-cpu")
    except PackageNotFoundError:
        return None
    return version("mlx")


@dataclass(frozen=True, slots=True)
class _Report:
    """What `building` has left beside the extension."""

    failed: str | None
    """Why there is none, a clause; None: there is one."""
    remedy: str | None = None
    mlx: str | None = None
    """The release of MLX that it was built for."""
    checksum: str | None = None
    """Of the extension; None in reports of before there was one."""


def _reported(folder: Path) -> _Report:
    try:
        entries: dict[str, dict[str, str | None]] = json.loads((folder / "built.json").read_text())
        own = entries.get(SUFFIX)
        if own is None:  # a wheel without them serves every Python; a checkout may have those of another
            own = next((entry for entry in entries.values() if entry["failed"]), None)
            if own is None:
                return _Report("they were built for another Python", "install modelkit with this one")
        return _Report(own["failed"], own.get("remedy"), own["mlx"], own.get("crc32"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return _Report("they were not built when modelkit was installed", "install modelkit again")


def _outdated(folder: Path) -> bool:
    """Only a checkout has sources."""
    try:
        built = (folder / f"{MODULE}{SUFFIX}").stat().st_mtime
        return any(changed > built for changed in _changes(folder / "src"))
    except OSError:
        return False


def _changes(folder: str | Path) -> Iterator[float]:
    """When each file in a folder and in the folders in it was changed."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _changes(entry.path)
            else:
                yield entry.stat().st_mtime


def _module(path: Path, checksum: str | None) -> Any:
    """checksum: what the file must have; None in reports of before there was one. One that was cut, or whose
    bits have changed, would end the process in the system's loader or later.
    """
    name = f"runtime.cpu.native.{MODULE}"
    try:
        if checksum is not None and checksum != _checksum(path):
            raise ImportError(f"{path} is not what was built: it is damaged, or was changed since")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except (ImportError, OSError, RuntimeError, SystemError, TypeError) as error:
        raise _Absent(f"they cannot be loaded: {error!s:.300}", "install modelkit again") from error
    sys.modules[name] = module
    return module


def _checksum(path: Path) -> str:
    """Of a file, in pieces: memory for all of it takes longer to come by than the sum."""
    buffer, found = memoryview(bytearray(1 << 18)), 0
    with path.open("rb") as file:
        while count := file.readinto(buffer):
            found = zlib.crc32(buffer[:count], found)
    return f"{found:08x}"


def _choose(module: Any, wanted: str) -> tuple[str, tuple[str, ...]]:
    """The column that is computed by, and all that this processor has."""
    columns = tuple(module.columns())
    if wanted and not module.use_column(wanted):
        raise _Absent(
            f"{VARIABLE} asks for {quoted(wanted)}, and there is {', '.join(columns)}",
            f"unset {VARIABLE}",
            columns,
        )
    activations = os.environ.get(ACTIVATIONS, "").strip().lower() or "i16"
    if activations not in ("i16", "f32"):
        raise _Absent(
            f"{ACTIVATIONS} asks for {quoted(activations)}, and there is i16, f32",
            f"unset {ACTIVATIONS}",
            columns,
        )
    module.use_activations(activations)
    if module.column() == "plain" and not wanted:
        raise _Absent("this processor has none of the instructions they are made for", columns=columns)
    return module.column(), columns


def _test(module: Any, columns: tuple[str, ...]) -> None:
    """Do arrays pass between MLX and the kernels as they should, and do these compute?"""
    outcome: SimpleQueue[bool | BaseException] = SimpleQueue()

    def run() -> None:
        try:
            outcome.put(_is_sound(module))
        except BaseException as error:  # noqa: BLE001 -- raised again below
            outcome.put(error)
        finally:
            mx.clear_streams()

    claim()
    # MLX makes a worker for every thread that computes, and one whose thread has ended aborts the process at
    # its exit. Who loads a model may be such a thread.
    try:
        threading.Thread(target=run, name="modelkit-kernels").start()
    except RuntimeError as error:  # nothing computes then, and whoever tries is told
        raise _Absent(f"there is no thread to test them on: {error}", columns=columns) from error
    equal = outcome.get()
    if isinstance(equal, AttributeError | TypeError | ValueError | RuntimeError):
        raise _Absent(f"their self-test failed: {equal!s:.300}", "install modelkit again", columns) from equal
    if isinstance(equal, BaseException):
        raise equal
    if not equal:
        raise _Absent("their self-test came out different from MLX", "report it", columns)


def _is_sound(module: Any) -> bool:
    with mx.stream(mx.cpu):
        x, weight = mx.arange(60.0).reshape(20, 3).T, mx.arange(20.0)  # seen through strides
        equal = _alike(module.rms_norm(x, weight, 1e-5), mx.fast.rms_norm(x, weight, 1e-5))
        rows, codes = mx.sin(mx.arange(192.0)).reshape(3, 64), mx.arange(160, dtype=mx.uint32) * 2654435761
        packed = codes.reshape(20, 8), mx.full((20, 1), 0.01), mx.full((20, 1), -0.07)
        matrix = module.Matrix(*packed, None, 64, 4, "affine")
        equal = equal and _alike(module.product(rows, matrix), mx.quantized_matmul(rows, *packed))
        return equal and _alike(module.matmul(rows, rows.T), rows @ rows.T)


def _alike(got: mx.array, wanted: mx.array) -> bool:
    return bool(mx.allclose(got, wanted, rtol=1e-4, atol=1e-3).item())
