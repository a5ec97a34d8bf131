"""Temporary folders: gone when nobody needs them, whatever ends their process; nobody else's is touched."""

import errno
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from modelkit.errors import DiskFull
from modelkit.temporary import TemporaryFolder, Unwritable, put_away

HELD = """
import signal, sys, time
from modelkit.cli.terminal import interrupts
from modelkit.temporary import TemporaryFolder
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs have it ignored
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and what runs under nohup has this one
interrupts.install()
folder = TemporaryFolder("test", "notes")
(folder.path / "note").write_text("some")
print(folder.path, flush=True)
time.sleep(60)
"""
HELD_FOR_LONG = f"""{HELD.replace("time.sleep(60)", "")}
interrupts._at_once, interrupts._pending = 0, True  # the first one is on its way
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What TMPDIR says."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def killed() -> Callable[..., Path]:
    """A process that holds a folder and is ended by a signal; the path of the folder."""

    def run(number: int, program: str = HELD) -> Path:
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                path = Path(process.stdout.readline().strip())
                assert (path / "note").exists()
                process.send_signal(number)
                code = process.wait(100)
            finally:
                process.kill()
        assert code == (130 if number == signal.SIGINT else -number)
        return path

    return run


def test_a_folder_is_made_when_it_is_needed_and_goes_with_its_block(above: Path) -> None:
    with TemporaryFolder("test", "notes") as folder:
        assert not list(above.iterdir())
        (folder.new() / "note").write_text("some")
        (folder.new() / "note").write_text("more")
        assert list(above.iterdir()) == [folder.path]
    assert not list(above.iterdir())


def test_a_folder_goes_with_its_object(above: Path) -> None:
    folder = TemporaryFolder("test", "notes")
    assert folder.path.is_dir()
    del folder
    assert not list(above.iterdir())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("program", [HELD, HELD_FOR_LONG], ids=["first", "second"])
def test_a_command_that_is_ended_leaves_none(killed: Callable[..., Path], number: int, program: str) -> None:
    assert not killed(number, program).exists()


def test_whoever_has_them_ignored_is_not_ended_by_them() -> None:
    program = (
        "import signal; from modelkit.cli.terminal import interrupts; "
        "signal.signal(signal.SIGHUP, signal.SIG_IGN); "
        "interrupts.install(); signal.raise_signal(signal.SIGHUP); print('here')"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "here\n"


def test_what_a_killed_process_left_is_taken_away_by_the_next(killed: Callable[..., Path]) -> None:
    left = killed(signal.SIGKILL)
    assert left.exists()
    with TemporaryFolder("other", "notes") as mine, TemporaryFolder("other", "notes") as second:
        assert mine.path != second.path
        assert mine.path.exists()
    assert not left.exists()


def test_a_fork_leaves_those_of_its_parent_alone() -> None:
    program = (
        "import os; from modelkit.temporary import TemporaryFolder, put_away; "
        "folder = TemporaryFolder('test', 'notes'); path = folder.path; child = os.fork(); "
        "child or (put_away(), folder.remove(), os._exit(0)); os.waitpid(child, 0); print(path.exists())"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "True\n"


def test_what_is_no_folder_of_ours_stays(above: Path, tmp_path: Path) -> None:
    (above / "modelkit-gguf-examples").mkdir()
    (above / "modelkit-notes").write_text("mine")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "modelkit-lease").touch()
    (above / "modelkit-link").symlink_to(tmp_path / "elsewhere")
    with TemporaryFolder("test", "notes") as folder:
        assert folder.path.exists()
    assert {path.name for path in above.iterdir()} == {
        "modelkit-gguf-examples",
        "modelkit-notes",
        "modelkit-link",
    }
    assert (tmp_path / "elsewhere" / "modelkit-lease").exists()


def test_one_that_was_taken_before_its_lease_was_held_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    real, taken = fcntl.flock, list[int]()

    def late(descriptor: int, how: int) -> None:
        if not taken:
            taken.append(descriptor)
            put_away()
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with TemporaryFolder("test", "notes") as folder:
        (folder.path / "note").write_text("some")
    assert taken


def test_where_none_can_be_made_it_is_said_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", os.devnull)
    with pytest.raises(Unwritable, match="cannot write notes: not a directory\nSet TMPDIR to a folder"):
        _ = TemporaryFolder("test", "notes").path


def test_a_full_disk_is_told_from_other_faults() -> None:
    with pytest.raises(Unwritable) as found, TemporaryFolder("test", "notes").writing():
        raise OSError(28, "No space left on device")
    assert isinstance(found.value, DiskFull)
    assert found.value.message == "cannot write notes: no space left on device"


def test_another_place_is_no_advice_where_files_are_too_large() -> None:
    with pytest.raises(DiskFull, match="ulimit -f"), TemporaryFolder("test", "notes").writing():
        raise OSError(errno.EFBIG, "File too large")
