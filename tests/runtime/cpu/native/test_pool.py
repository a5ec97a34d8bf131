"""The pool of threads, by trials in C (`pool_trial.c`): every chunk once, whoever calls, whatever changes."""

import functools
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.cpu.native.building import C_FLAGS, SOURCES, CannotBuild, compilers

if sys.platform != "linux":
    pytest.skip("the pool sleeps on Linux's futexes", allow_module_level=True)

HERE = Path(__file__).parent


@functools.cache
def compiler() -> list[str]:
    try:
        return compilers()[0]
    except CannotBuild as error:
        pytest.skip(str(error))


def trial(folder: Path, *flags: str) -> Path:
    """The program, compiled."""
    program = folder / "pool_trial"
    sources = [str(SOURCES / "threads/pool.c"), str(HERE / "pool_trial.c")]
    argv = [
        *compiler(),
        *C_FLAGS,
        *flags,
        "-Werror",
        f"-I{SOURCES}",
        *sources,
        "-o",
        str(program),
        "-lpthread",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if "-fsanitize=thread" in flags and "cannot find" in done.stderr:
        pytest.skip("this compiler has no ThreadSanitizer")
    assert done.returncode == 0, done.stderr
    return program


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trial(tmp_path_factory.mktemp("pool"))


def run(program: Path, name: str, seconds: float) -> None:
    argv = [program, name, str(seconds)]
    if "tsan" in str(program) and shutil.which("setarch"):
        argv = ["setarch", platform.machine(), "-R", *argv]  # its map of memory needs addresses as they were
    done = subprocess.run(argv, capture_output=True, text=True, timeout=100 + 3 * seconds, check=False)
    assert done.returncode == 0, done.stderr


EVERY = [
    "every_chunk",
    "two_callers",
    "many_callers",
    "forks",
    "at_rest",
    "caller_waits",
    "helper_waits",
    "fair_shares",
    "no_more_than_asked",
]


@pytest.mark.parametrize("name", EVERY)
def test_trial(program: Path, name: str) -> None:
    run(program, name, 0.3)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in EVERY if name != "forks"])  # a fork may hang the sanitizer
def test_no_race_is_seen(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    run(trial(tmp_path_factory.mktemp("tsan"), "-O1", "-g", "-fsanitize=thread"), name, 20)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two_callers", "many_callers", "forks", "fair_shares"])
def test_trial_for_long(program: Path, name: str) -> None:
    run(program, name, 60)
