"""Every column gives the same bits on the same inputs, by a program in C around the kernels (`digests/`).

`make columns` runs it. The columns of ARM take a compiler and an emulator: Debian's gcc-aarch64-linux-gnu and
qemu-user, or what MODELKIT_ARM_CC and MODELKIT_ARM_RUN name. `make sanitize` runs the same program where the
compiler watches each access to memory and all arithmetic that C leaves open.
"""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runtime.cpu.native.building import C_FLAGS, SOURCES, denials, left_out, of_columns, refusal

if sys.platform != "linux":
    pytest.skip("the kernels are built on Linux", allow_module_level=True)

DIGESTS = Path(__file__).parent / "digests"
SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1", "-O1", "-DMK_NO_INLINE"]
"""Without the last two, the compiler is not done within 50 minutes: see `simd/registers.h`."""
FLAGS = [*(flag for flag in C_FLAGS if flag not in ("-O3", "-fPIC")), "-O2", f"-I{SOURCES}", f"-I{DIGESTS}"]


def program(folder: Path, compiler: Sequence[str], machine: str, last: Sequence[str] = ()) -> Path:
    """The kernels of a machine and what digests their results. last: flags behind all others."""
    steps: list[list[str]] = []
    without = left_out(list(compiler), machine)
    flags_of_all = [*FLAGS, *denials(without)]
    for source in (*sorted(SOURCES.rglob("*.c")), *sorted(DIGESTS.glob("*.c"))):
        for i, flags in enumerate(of_columns(source, machine, without)):
            made = folder / f"{source.parent.name}-{source.stem}-{i}.o"
            steps.append([*compiler, *flags_of_all, *flags, *last, "-c", str(source), "-o", str(made)])
    with ThreadPoolExecutor(os.cpu_count()) as several:
        list(several.map(run, steps))
    objects = [step[-1] for step in steps]
    run([*compiler, *last, *objects, "-o", str(folder / "digests"), "-lpthread", "-lm"])
    return folder / "digests"


def run(argv: Sequence[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}\n{done.stderr}"
    return done.stdout


def digests(argv: Sequence[str], column: str, threads: int = 1) -> dict[str, str]:
    """Case -> digest."""
    lines = run([*argv, column, str(threads)]).splitlines()
    return dict(line.rsplit(" ", 1) for line in lines)


def different(one: dict[str, str], other: dict[str, str]) -> list[str]:
    assert one.keys() == other.keys()
    return [case for case in one if one[case] != other[case]]


@pytest.fixture(scope="module")
def compiler() -> list[str]:
    """That of this machine."""
    refused = refusal()
    if refused is not None:
        pytest.skip(str(refused))
    return os.environ.get("CC", "").split() or ["cc"]


@pytest.fixture(scope="module")
def own(compiler: list[str], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The program of this machine."""
    return [str(program(tmp_path_factory.mktemp("digests"), compiler, platform.machine()))]


@pytest.mark.slow
def test_every_column_of_this_machine_has_the_same_bits(own: list[str]) -> None:
    columns = run(own).split()
    plain = digests(own, "plain")
    assert len(plain) > 200
    assert len(set(plain.values())) > 0.9 * len(plain), "many cases that have nothing to tell apart"
    assert {column: different(plain, digests(own, column)) for column in columns} == {
        column: [] for column in columns
    }
    assert different(plain, digests(own, columns[-1], threads=3)) == []


@pytest.mark.slow
def test_arm_s_columns_have_the_bits_of_this_machine(own: list[str], tmp_path: Path) -> None:
    compiler = os.environ.get("MODELKIT_ARM_CC", "aarch64-linux-gnu-gcc -static").split()
    runner = os.environ.get("MODELKIT_ARM_RUN", "qemu-aarch64").split()
    missing = [argv[0] for argv in (compiler, runner) if argv and shutil.which(argv[0]) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not found")
    argv = [*runner, str(program(tmp_path, compiler, "aarch64"))]
    plain = digests(own, "plain")
    columns = run(argv).split()
    assert "neon" in columns
    assert {column: different(plain, digests(argv, column)) for column in columns} == {
        column: [] for column in columns
    }


@pytest.mark.slow
def test_sanitizers_find_nothing(
    compiler: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = [*compiler, *SANITIZED, "-x", "c", "-", "-o", str(tmp_path / "empty")]
    made = subprocess.run(empty, input=b"int main(void) { return 0; }", capture_output=True, check=False)
    if made.returncode:
        pytest.skip("this compiler has no AddressSanitizer")
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")  # threads keep their memory, and never end
    watched = [str(program(tmp_path, compiler, platform.machine(), SANITIZED))]
    for column in run(watched).split():
        for threads in (1, 3):
            assert digests(watched, column, threads)
