"""Building of kernels: what is needed is looked for, and what is missing is said with what helps."""

import json
import os
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

from runtime.cpu.native import building
from runtime.cpu.native.building import CannotBuild, compilers, refusal, report

if sys.platform != "linux":
    pytest.skip("kernels are built on Linux", allow_module_level=True)

ROOT = Path(__file__).parents[4]


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)


def program(folder: Path, name: str) -> None:
    path = folder / name
    path.write_text("#!/bin/sh\necho 'kernel.c:1:2: error: no such thing' >&2; exit 1\n")
    path.chmod(0o755)


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    refused = refusal()
    assert refused is not None
    assert refused.reason == "no C compiler was found"
    assert "g++" in str(refused.remedy)
    program(tmp_path, "gcc")
    assert str(refusal()) == "no C++ compiler was found"
    program(tmp_path, "clang++")
    assert compilers() == (["gcc"], ["clang++"])


def test_the_compilers_that_the_environment_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("gcc", "ccache", "mine"):
        program(tmp_path, name)
    monkeypatch.setenv("CC", "ccache gcc")
    monkeypatch.setenv("CXX", "mine")
    assert compilers() == (["ccache", "gcc"], ["mine"])
    monkeypatch.setenv("CXX", "absent")
    with pytest.raises(CannotBuild, match="CXX names absent, which was not found"):
        compilers()


def test_no_headers_of_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(tmp_path))
    refused = refusal()
    assert refused is not None
    assert refused.reason == "the headers of Python were not found"


def test_another_libc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building.platform, "libc_ver", lambda: ("", ""))
    assert "needs glibc" in str(refusal())


@pytest.mark.skipif(refusal() is not None, reason="nothing can be compiled here")
def test_a_compiler_that_refuses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("nanobind")
    program(tmp_path, "cc")
    monkeypatch.setenv("CC", str(tmp_path / "cc"))
    monkeypatch.setattr(building, "OBJECTS", tmp_path / "objects")
    with pytest.raises(CannotBuild, match=r"the compiler \(cc\) refused: kernel.c:1:2: error: no such thing"):
        building.build(tmp_path)
    assert not list(tmp_path.glob("_kernels*"))


@pytest.mark.parametrize("machine", building.COLUMNS)
def test_columns_that_the_compiler_does_not_know_are_left_out(tmp_path: Path, machine: str) -> None:
    old = tmp_path / "cc"
    old.write_text('#!/bin/sh\ncase "$*" in *avxvnni*|*i8mm*) exit 1;; esac\n')
    old.chmod(0o755)
    without = building.left_out([str(old)], machine)
    assert without == ({"x86_64": "avxvnni", "aarch64": "i8mm"}[machine],)
    assert building.denials(without) == [f"-DMK_NO_{without[0].upper()}"]
    source = building.SOURCES / "products" / "products.c"
    every, some = (building.of_columns(source, machine, left) for left in ((), without))
    assert [flags[-1] for flags in every if flags not in some] == [f"-DMK_COLUMN={without[0]}"]


def test_what_is_compiled_of_c_serves_every_python(tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text(f'#!/bin/sh\nfor last; do :; done; touch "$last"; echo "$3" >> {tmp_path}/compiled\n')
    compiler.chmod(0o755)
    sources = [tmp_path / "kernel.c", tmp_path / "node.cpp"]
    for python in ("one", "another"):
        found = building.Tools([], [], [], tmp_path, tmp_path, "gcc 12", python)
        for source in sources:
            source.touch()
            building._compile(([str(compiler)], source), found, tmp_path, say=False)
    compiled = (tmp_path / "compiled").read_text().split()
    assert compiled == [str(path) for path in (sources[0], sources[1], sources[1])]


def test_old_objects_go_and_what_goes_meanwhile_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two Pythons that install from one checkout build side by side."""
    monkeypatch.setattr(building, "OBJECTS", tmp_path)
    (tmp_path / "renamed.part").symlink_to(tmp_path / "gone")  # listed, and not found any more
    old, new = tmp_path / "old.o", tmp_path / "new.o"
    for path in (old, new):
        path.touch()
    os.utime(old, (0, 0))
    with building._objects() as folder:
        assert folder == tmp_path
    assert not old.exists()
    assert new.exists()


@pytest.mark.skipif(refusal() is not None, reason="nothing can be compiled here")
def test_another_mlx(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(building, "MLX_VERSION", "0.0.1")
    with pytest.raises(CannotBuild, match=r"made for MLX 0\.0\.1, and ") as refused:
        building.build(tmp_path)
    assert refused.value.remedy == "pip install 'mlx[cpu]==0.0.1'"


def test_each_python_has_its_entry_in_the_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    report(CannotBuild("no C compiler was found", "install one"), tmp_path)
    monkeypatch.setattr(building, "SUFFIX", ".another.so")
    (tmp_path / building.FILE).write_bytes(b"123456789")
    said = json.loads(report(None, tmp_path).read_text())
    assert [entry["failed"] for entry in said.values()] == ["no C compiler was found", None]
    assert said[".another.so"]["mlx"] == building.MLX_VERSION
    assert [entry["crc32"] for entry in said.values()] == [None, "cbf43926"]


def test_the_extra_brings_the_mlx_that_kernels_are_built_for() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert any(each.startswith(f"mlx[cpu]=={building.MLX_VERSION};") for each in extras["cpu"])
