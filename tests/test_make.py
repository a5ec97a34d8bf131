"""What `make` does where another is at it, or was stopped. A stand-in for Python notes what it is asked."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
ROOT = Path(__file__).resolve().parents[1]
PYTHON = f"""#!/bin/sh
case "$*" in
    -c*) exec {sys.executable} -IS "$@";;
    *venv*) mkdir -p .venv/bin && cp python .venv/bin/python;;
esac
echo "begin $*" >> log
case "$*" in *pip*) [ -e broken ] && exit 1;; esac
sleep 0.05
echo end >> log
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    sources = tmp_path / "runtime" / "cpu" / "native"
    sources.mkdir(parents=True)
    (sources / "building.py").touch()
    (tmp_path / "python").write_text(PYTHON, encoding="utf-8")
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def begin(checkout: Path) -> subprocess.Popen[bytes]:
    command = ["make", "kernels", "PYTHON=./python"]
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, cwd=checkout, stdout=quiet, stderr=quiet, env=outside)


def log(checkout: Path) -> list[str]:
    return (checkout / "log").read_text(encoding="utf-8").splitlines()


def test_two_at_once_install_once_and_one_after_the_other(checkout: Path) -> None:
    both = [begin(checkout), begin(checkout)]
    assert [make.wait(60) for make in both] == [0, 0]
    said = log(checkout)
    assert [line == "end" for line in said] == [False, True] * (len(said) // 2)
    assert sum("--editable" in line for line in said) == 1
    assert sum("building.py" in line for line in said) == 1


def test_what_was_stopped_is_begun_anew(checkout: Path) -> None:
    (checkout / "broken").touch()
    assert begin(checkout).wait(60) != 0
    (checkout / "broken").unlink()
    assert [begin(checkout).wait(60) for _ in range(2)] == [0, 0]
    assert [line.removeprefix("begin ") for line in log(checkout) if "venv" in line] == [
        "-m venv .venv",
        "-m venv .venv --clear",
    ]
