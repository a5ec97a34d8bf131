"""What goes through standard streams: bytes that are exact, descriptors that the caller closed, and readers
that leave. Each command runs as a process of its own, as a shell would start it.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from modelkit.arguments import on_disk
from modelkit.store.store import Store

Create = Callable[..., None]
HOSTILE = "a\x1b[2Jb\x1b]52;c;ZXZpbA==\x07\rc\u202ed"
GREEDY = ("-p", "temperature=0", "-p", "num_predict=4")

# One of each family: reads small files, writes the store, loads a model, prints a stored text.
COMMANDS = [
    ("list",),
    ("show", "story"),
    ("show", "story", "--system"),
    ("show", "story", "--json"),
    ("create", "other", "-f", "MODELFILE"),
    ("create", "other", "-f", "MODELFILE", "--dry-run"),
    ("run", "story", "Once", *GREEDY),
    ("run", "story", "Once", *GREEDY, "--json", "--verbose"),
    ("cp", "story", "second"),
    ("verify",),
    ("cache",),
    ("cache", "list"),
    ("prune", "--dry-run"),
    ("doctor",),
]


def shell(
    line: str, *arguments: str, home: Path, encoding: str = "UTF-8"
) -> subprocess.CompletedProcess[bytes]:
    """`line` in sh, with `"$@"` standing for modelkit and its arguments; streams are buffered, as users
    have them.
    """
    as_users = {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0", "PYTHONUNBUFFERED": ""}
    return subprocess.run(
        ["sh", "-c", line, "sh", sys.executable, "-m", "modelkit", *arguments],
        capture_output=True,
        check=False,
        env={**os.environ, "MODELKIT_HOME": str(home), **as_users},
    )


ALL_THREE = "0<&- 1>&- 2>&-"
ONE_BY_ONE = [
    (COMMANDS[place], closed) for place in (0, 6) for closed in ("0<&-", "1>&-", "2>&-", "0<&- 2>&-")
]


@pytest.mark.parametrize(("arguments", "closed"), [*((one, ALL_THREE) for one in COMMANDS), *ONE_BY_ONE])
def test_a_closed_descriptor_is_no_reason_to_fail(
    arguments: tuple[str, ...], closed: str, home: Path, created: Create, modelfile: Callable[..., Path]
) -> None:
    created("story", "SYSTEM Be brief.")
    words = [str(modelfile()) if word == "MODELFILE" else word for word in arguments]
    ran = shell(f'"$@" {closed}', *words, home=home)
    assert (ran.returncode, b"Traceback" in ran.stderr) == (0, False), ran.stderr.decode()
    if arguments[0] == "create" and "--dry-run" not in arguments:
        assert "other" in [str(package.name) for package in Store(home).packages()]


def test_a_pipe_that_does_not_wait_is_waited_for(home: Path, created: Create) -> None:
    """`embed` took one that was still empty for no text at all; others ended in a traceback."""
    created("story", "SYSTEM " + "Be brief. " * 20_000)
    (theirs, mine), (out, full) = os.pipe(), os.pipe()
    os.set_blocking(theirs, False)
    os.set_blocking(full, False)
    line = [sys.executable, "-m", "modelkit"]
    as_users = {**os.environ, "MODELKIT_HOME": str(home), "PYTHONUNBUFFERED": ""}
    reading = subprocess.Popen([*line, "create", "other", "-f", "-"], stdin=theirs, env=as_users)
    writing = subprocess.Popen([*line, "show", "story", "--system"], stdout=full, env=as_users)
    os.close(full)
    with open(out, "rb") as file:
        while reading.poll() is None and len(file.peek(1)) == 0:
            time.sleep(0.01)
        time.sleep(0.3)  # the pipe is full by now
        said = file.read()
    os.write(mine, b"FROM story\n")
    os.close(mine)
    assert (writing.wait(60), len(said)) == (0, 199_999)
    assert reading.wait(60) == 0


def test_standard_input_that_cannot_be_read_is_named(home: Path, created: Create, tmp_path: Path) -> None:
    created("story")
    for words in (("run", "story"), ("embed", "story"), ("create", "other", "-f", "-")):
        ran = shell(f'"$@" 0>{tmp_path / "written"}', *words, home=home)
        assert (ran.returncode, ran.stderr) == (1, b"Error: standard input: bad file descriptor\n")


@pytest.mark.parametrize("encoding", ["UTF-8", "ascii"])
@pytest.mark.parametrize("part", ["--system", "--template", "--modelfile", "--license"])
def test_a_stored_text_is_exact_in_a_pipe(part: str, encoding: str, home: Path, created: Create) -> None:
    template = "{% for m in messages %}{{ m.content }}{% endfor %}" + HOSTILE
    created("story", f'SYSTEM """{HOSTILE}"""', f'TEMPLATE """{template}"""', f'LICENSE """{HOSTILE}ü"""')
    found = shell('"$@" | cat', "show", "story", part, home=home, encoding=encoding).stdout.decode()
    wanted = {"--system": HOSTILE, "--template": template, "--license": f"{HOSTILE}ü"}
    assert wanted[part] == found if part in wanted else found.count(HOSTILE) == 3


def test_what_show_prints_makes_the_same_package(home: Path, created: Create, tmp_path: Path) -> None:
    created("story", f'SYSTEM """{HOSTILE}"""', 'LICENSE "\x1b"')
    (tmp_path / "again").write_bytes(shell('"$@" | cat', "show", "story", "--modelfile", home=home).stdout)
    ran = shell('"$@"', "create", "again", "-f", str(tmp_path / "again"), home=home)
    assert ran.returncode == 0, ran.stderr.decode()
    assert Store(home).resolve("again").digest == Store(home).resolve("story").digest


def test_a_licence_that_is_not_utf8_is_exact_too(
    home: Path, created: Create, checkpoints: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "licensed"
    folder.mkdir()
    for file in (checkpoints / "target").iterdir():
        (folder / file.name).symlink_to(file)
    (folder / "LICENSE").write_bytes(b"Lizenz f\xfcr alle\n")
    (tmp_path / "Modelfile").write_text(f"FROM {folder}\n")
    assert shell('"$@"', "create", "story", "-f", str(tmp_path / "Modelfile"), home=home).returncode == 0
    assert shell('"$@" | cat', "show", "story", "--license", home=home).stdout == b"Lizenz f\xfcr alle\n"


def test_what_is_piped_in_is_utf8_in_every_locale(home: Path, created: Create) -> None:
    created("story")
    piped = r'printf "\357\273\277f\303\274r\n" | "$@"'
    found = shell(piped, "embed", "story", home=home, encoding="latin-1").stdout
    assert found == shell('"$@"', "embed", "story", "für", home=home).stdout


def test_names_and_texts_are_utf8_where_the_locale_has_no_such_letters(
    home: Path, tmp_path: Path, checkpoints: Path
) -> None:
    """In arguments and in a Modelfile they name the same bytes."""
    folder = tmp_path / "modèle"
    folder.symlink_to(checkpoints / "target")
    (tmp_path / "Modelfile").write_text("FROM ./modèle\nSYSTEM é\n", encoding="utf-8")
    made = shell('LC_ALL=C "$@"', "create", "story", "-f", str(tmp_path / "Modelfile"), home=home)
    assert made.returncode == 0, made.stderr
    for name in ("story", str(folder)):
        ran = shell('LC_ALL=C "$@"', "run", name, "café", *GREEDY, home=home)
        assert ran.returncode == 0, ran.stderr


def test_a_file_that_a_text_names_is_asked_for_in_the_locales_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def ascii_only(name: str) -> bytes:
        return name.encode("ascii", "surrogateescape")

    monkeypatch.setattr("os.fsencode", ascii_only)
    monkeypatch.setattr("os.fsdecode", lambda name: name.decode("ascii", "surrogateescape"))
    assert on_disk("é/a") == on_disk("\udcc3\udca9/a") == "\udcc3\udca9/a"
    assert on_disk("\ud800") == "\ud800"


def test_under_json_a_failure_leaves_standard_output_empty(home: Path) -> None:
    for arguments in (("show", "nothing"), ("run", "nothing", "x"), ("rm", "nothing"), ("list", "--nope")):
        ran = shell('"$@"', *arguments, "--json", home=home)
        assert (ran.returncode in (1, 2), ran.stdout) == (True, b"")
        assert b"rror: " in ran.stderr


@pytest.mark.parametrize(
    "arguments",
    [("list",), ("show", "story", "--modelfile"), ("--help",), ("--version",), ()],
    ids=" ".join,
)
def test_a_full_disk_behind_standard_output_is_an_error_and_named(
    arguments: tuple[str, ...], home: Path, created: Create
) -> None:
    created("story")
    ran = shell('"$@" > /dev/full', *arguments, home=home)
    assert (ran.returncode, ran.stderr) == (1, b"Error: standard output: no space left on device\n")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("show",), 2),
        (("nonsense",), 2),
        (("list", "--nope"), 2),
        (("show", "nothing"), 1),
        (("list", "--json"), 0),
        (("list",), 0),  # with a note that there is nothing
        (("create", "story", "-f", "MODELFILE"), 0),
        (("run", "FOLDER", "Once", *GREEDY, "--verbose"), 0),
        (("doctor", "-f"), 2),
    ],
    ids=str,
)
def test_the_exit_code_is_the_same_where_nobody_hears_why(
    arguments: tuple[str, ...], code: int, home: Path, modelfile: Callable[..., Path], checkpoints: Path
) -> None:
    places = {"MODELFILE": str(modelfile("RENDERER unknown")), "FOLDER": str(checkpoints / "target")}
    arguments = tuple(places.get(word, word) for word in arguments)
    for nobody in ("2> /dev/full", "2>&-"):
        ran = shell(f'"$@" {nobody}', *arguments, home=home)
        assert (ran.returncode, ran.stderr) == (code, b"")
    ran = shell('{ "$@" 2>&3 > /dev/null; echo $? >&2; } 3>&1 | true', *arguments, home=home)
    assert ran.stderr.split() == [b"%d" % code]


def test_a_reader_that_leaves_ends_an_answer_quietly(home: Path, created: Create) -> None:
    created("story")
    ran = shell('{ "$@"; echo $? >&2; } | true', "run", "story", "Once", "-p", "num_predict=200", home=home)
    assert ran.stderr.split()[-1] == b"141"
    assert b"Traceback" not in ran.stderr


@pytest.mark.parametrize(
    "arguments", [("list",), ("doctor",), ("run", "story", "Once", *GREEDY)], ids=" ".join
)
def test_an_interrupt_in_the_first_moments_is_quiet(
    arguments: tuple[str, ...], home: Path, created: Create
) -> None:
    created("story")
    for delay_s in (0.08, 0.18, 0.4):
        command = subprocess.Popen(
            [sys.executable, "-c", SLOW, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "MODELKIT_HOME": str(home)},
        )
        assert command.stdout is not None
        assert command.stdout.readline() == b"begins\n"  # the handler is set; heavy imports follow
        time.sleep(delay_s)
        command.send_signal(signal.SIGINT)
        _, errors = command.communicate(timeout=60)
        assert command.returncode in (0, 130)
        assert b"Traceback" not in errors
        assert errors in (b"", b"interrupted\n") or b"note:" in errors


# The entry point, saying when its handler is set.
SLOW = """
from modelkit.cli import entry
from modelkit.cli.terminal import interrupts
set_handler = interrupts.install
def install():
    set_handler()
    print("begins", flush=True)
interrupts.install = install
entry.main()
"""
