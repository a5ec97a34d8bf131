"""Kernels are used where they are there, belong here and work; else models do without, and it is said."""

import importlib.metadata
import json
import os
import shutil
import time
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import pytest

from runtime.cpu import native
from runtime.cpu.native import loading
from runtime.cpu.native.loading import HERE, MODULE, SUFFIX, VARIABLE, Status, load
from runtime.errors import RuntimeFault
from runtime.nn.operations import ops

if native.kernels is None:
    pytest.skip(f"no kernels: {native.status.reason}", allow_module_level=True)

FILE = f"{MODULE}{SUFFIX}"


@pytest.fixture(autouse=True)
def nothing_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What an installation without sources has."""
    shutil.copy(HERE / FILE, tmp_path)
    return reported(tmp_path)


def reported(folder: Path, suffix: str = SUFFIX, **changed: str | None) -> Path:
    checksum = f"{zlib.crc32((HERE / FILE).read_bytes()):08x}"
    entry = {"mlx": native.kernels.BUILT_FOR, "failed": None, "remedy": None, "crc32": checksum, **changed}
    (folder / "built.json").write_text(json.dumps({suffix: entry}))
    return folder


def refused(folder: Path) -> Status:
    module, status = load(folder)
    assert module is None
    assert status.column is None
    assert status.reason
    return status


def test_a_whole_one_is_used() -> None:
    """As it was loaded for this process: a second time would not be what users do."""
    assert native.status == Status(native.kernels.column(), tuple(native.kernels.columns()))
    assert native.status.column in native.status.columns


def damaged(how: str, whole: bytes) -> bytes:
    if how == "cut short":
        return whole[: len(whole) // 2]
    if how == "without its end":
        return whole[:-1]
    if how == "empty":
        return b""
    if how == "a text":
        return b"version https://git-lfs.github.com/spec/v1\n"
    if how == "with bits that have changed":
        middle = len(whole) // 2
        return whole[:middle] + bytes(64) + whole[middle + 64 :]
    machine = (183).to_bytes(2, "little") if whole[18] == 62 else (62).to_bytes(2, "little")
    return whole[:18] + machine + whole[20:]  # ELF's e_machine: AArch64 in place of x86-64, or the other way


@pytest.mark.parametrize(
    "how",
    ["cut short", "without its end", "empty", "a text", "with bits that have changed", "of another machine"],
)
def test_a_file_that_is_no_extension_of_this_machine(folder: Path, how: str) -> None:
    (folder / FILE).write_bytes(damaged(how, (HERE / FILE).read_bytes()))
    status = refused(folder)
    assert status.reason is not None
    assert "cannot be loaded" in status.reason
    assert status.remedy == "install modelkit again"


def test_a_report_of_before_there_were_checksums(folder: Path) -> None:
    (folder / FILE).write_bytes(b"")
    reason = str(refused(reported(folder, crc32=None)).reason)
    assert "cannot be loaded" in reason
    assert "is not what was built" not in reason


def test_a_file_that_is_not_there(folder: Path) -> None:
    (folder / FILE).unlink()
    assert "cannot be loaded" in str(refused(folder).reason)


def test_another_release_of_mlx(folder: Path) -> None:
    status = refused(reported(folder, mlx="0.0.1"))
    assert status.reason == f"they were built for MLX 0.0.1, and {native.kernels.BUILT_FOR} is installed"
    assert status.remedy == "pip install 'mlx[cpu]==0.0.1'"


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if MLX's records did not lie beside it."""
    monkeypatch.setattr(loading, "SITE", tmp_path)


def test_another_build_of_mlx(folder: Path, elsewhere: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "mlx-cpu":
            raise importlib.metadata.PackageNotFoundError
        return native.kernels.BUILT_FOR

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert "processor build" in str(refused(folder).reason)


def test_a_build_of_mlx_that_is_recorded_elsewhere(folder: Path, elsewhere: None) -> None:
    status = refused(reported(folder, mlx="0.0.1"))
    assert status.reason == f"they were built for MLX 0.0.1, and {native.kernels.BUILT_FOR} is installed"


@pytest.mark.parametrize("report", [None, "", "{", "[]", "{}", '{"mlx": "0.32.4"}'])
def test_without_a_report_that_can_be_read(folder: Path, report: str | None) -> None:
    (folder / "built.json").unlink()
    if report is not None:
        (folder / "built.json").write_text(report)
    assert refused(folder).remedy in ("install modelkit again", "install modelkit with this one")


def test_why_they_were_not_built_is_said(folder: Path) -> None:
    status = refused(reported(folder, failed="no C compiler was found", remedy="install one"))
    assert (status.reason, status.remedy) == ("no C compiler was found", "install one")


def test_a_wheel_without_them_says_why_on_every_python(folder: Path) -> None:
    status = refused(reported(folder, ".cpython-399-x.so", failed="no C compiler was found"))
    assert status.reason == "no C compiler was found"


def test_a_checkout_that_another_python_was_installed_from(folder: Path) -> None:
    assert refused(reported(folder, ".cpython-399-x.so")).reason == "they were built for another Python"


def test_sources_that_have_changed(folder: Path) -> None:
    (folder / "src" / "room").mkdir(parents=True)
    source = folder / "src" / "room" / "kernel.c"
    source.touch()
    os.utime(source, (time.time() + 9, time.time() + 9))
    status = refused(folder)
    assert "sources have changed" in str(status.reason)
    assert "make kernels" in str(status.remedy)


def test_they_can_be_switched_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "off")
    assert refused(folder).reason == "MODELKIT_KERNELS=off is set"


def test_they_can_be_required(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "required")
    (folder / FILE).unlink()
    status = refused(folder)
    assert status.required
    monkeypatch.setattr(native, "status", status)
    with pytest.raises(
        RuntimeFault, match=r"MODELKIT_KERNELS=required is set, and there are none: they cannot"
    ):
        ops.use(None)


def fake(**changed: Any) -> SimpleNamespace:
    """A module like the extension, by MLX's own functions."""

    def use_column(name: str) -> bool:
        module.column = lambda: name
        return name in module.columns()

    def product(x: mx.array, matrix: tuple[Any, ...]) -> mx.array:
        return mx.quantized_matmul(x, *matrix[:3], group_size=matrix[4], bits=matrix[5])

    functions = {
        "columns": lambda: ["plain", "wide"],
        "column": lambda: "wide",
        "use_column": use_column,
        "use_activations": lambda _name: None,
        "rms_norm": mx.fast.rms_norm,
        "Matrix": lambda *parts: parts,
        "product": product,
        "matmul": mx.matmul,
    }
    module = SimpleNamespace(**{**functions, **changed})
    return module


@pytest.mark.parametrize(("wanted", "column"), [("", "wide"), ("required", "wide"), ("plain", "plain")])
def test_the_column(folder: Path, monkeypatch: pytest.MonkeyPatch, wanted: str, column: str) -> None:
    monkeypatch.setattr(loading, "_module", lambda _path, _checksum: fake())
    monkeypatch.setenv(VARIABLE, wanted)
    module, status = load(folder)
    assert module is not None
    assert status == Status(column, ("plain", "wide"))


def test_a_column_that_is_not_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_module", lambda _path, _checksum: fake())
    monkeypatch.setenv(VARIABLE, "avx1024")
    assert refused(folder).reason == "MODELKIT_KERNELS asks for 'avx1024', and there is plain, wide"


def test_where_no_thread_can_be_started(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever imports this is not who is to be told: what computes nothing goes on."""

    def none_left(*_: Any, **__: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(loading, "_module", lambda _path, _checksum: fake())
    monkeypatch.setattr(loading.threading, "Thread", none_left)
    assert "no thread to test them on" in str(refused(folder).reason)


def unlike(_x: mx.array, _weight: mx.array, _eps: float) -> mx.array:
    raise TypeError("incompatible function arguments")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"columns": lambda: ["plain"], "column": lambda: "plain"}, "has none of the instructions"),
        ({"rms_norm": lambda x, _weight, _eps: x}, "came out different"),
        ({"product": lambda x, _matrix: mx.zeros((len(x), 20))}, "came out different"),
        ({"matmul": lambda x, w: x @ w + 1}, "came out different"),
        ({"rms_norm": unlike}, "self-test failed: incompatible"),
    ],
)
def test_kernels_that_are_no_use_here(
    folder: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], reason: str
) -> None:
    monkeypatch.setattr(loading, "_module", lambda _path, _checksum: fake(**changed))
    status = refused(folder)
    assert reason in str(status.reason)
    assert status.columns
