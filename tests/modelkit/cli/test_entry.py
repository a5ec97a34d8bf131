"""How the command's process ends."""

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

ROOT = Path(__file__).resolve().parents[3]

PROGRAM = """
import atexit, sys, threading

class Kept:
    def __del__(self):
        print("taken apart")

kept = Kept()
{before}

sys.argv = ["modelkit", *{words!r}]
from modelkit.cli import entry
{change}
def slowly():
    threading.main_thread().join()  # the command is over
    atexit.register(lambda: print("put away"))
    print("thread over")

threading.Thread(target=slowly).start()
entry.main()
"""


def ended(
    home: Path, *words: str, before: str = "", change: str = "", output: int | IO[str] = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(words=list(words), before=before, change=change)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "MODELKIT_HOME": str(home), "PYTHONUNBUFFERED": ""},
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(("words", "code"), [(("list",), 0), (("show", "none"), 1), (("show",), 2)])
def test_it_ends_when_all_is_done_and_takes_nothing_apart(
    tmp_path: Path, words: tuple[str, ...], code: int
) -> None:
    found = ended(tmp_path, *words)
    assert found.returncode == code
    assert found.stdout.splitlines()[-2:] == ["thread over", "put away"]


def test_an_error_that_nobody_caught_ends_it_as_ever(tmp_path: Path) -> None:
    change = "from modelkit.cli import main as m; m.cli = lambda **_: 1 / 0"
    found = ended(tmp_path, "list", change=change)
    assert found.returncode == 1
    assert "ZeroDivisionError" in found.stderr
    assert found.stdout.splitlines()[-1] == "taken apart"


def test_what_is_no_number_is_said_as_ever(tmp_path: Path) -> None:
    change = "from modelkit.cli import main as m; m.cli = lambda **_: sys.exit('a word')"
    found = ended(tmp_path, "list", change=change)
    assert (found.returncode, found.stderr) == (1, "a word\n")


def test_output_that_cannot_be_written_is_an_error_to_the_end(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no device that is always full here")
    change = "from modelkit.cli import main as m; m.cli = lambda **_: (sys.stdout.write('x'), sys.exit(0))"
    with Path("/dev/full").open("w") as full:
        assert ended(tmp_path, "list", change=change, output=full).returncode == 120


def test_what_others_have_put_off_before_us_is_done(tmp_path: Path) -> None:
    found = ended(tmp_path, "list", before='atexit.register(lambda: print("measured"))')
    assert found.returncode == 0
    assert found.stdout.splitlines()[-2:] == ["measured", "taken apart"]


STARTING = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs have it ignored
class Met:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Met())
sys.argv = ["modelkit", "list"]
from modelkit.cli import start
start.main()
"""


@pytest.mark.parametrize("name", ["modelkit.cli.entry", "modelkit.temporary", "click"])
def test_an_interrupt_while_it_starts_is_quiet(tmp_path: Path, name: str) -> None:
    """It ended in a traceback for the first tenths of a second."""
    ran = subprocess.run(
        [sys.executable, "-c", STARTING.format(name=name)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "MODELKIT_HOME": str(tmp_path)},
        capture_output=True,
        timeout=60,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, b"", b"")
