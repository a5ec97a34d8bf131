"""What the shell completes, asked as each shell asks it, and once through bash itself."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from modelkit.cli.main import cli
from modelkit.modelfile import PARAMETERS


def completed(line: str, shell: str = "bash", word: str | None = None) -> list[str]:
    """The words that complete the last word of `line`. word: what bash takes for that one."""
    words = line.split(" ")
    given = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_MODELKIT_COMPLETE": f"{shell}_complete"}
    if shell == "fish":
        given["COMP_CWORD"] = words[-1]
    if shell == "bash":
        given = {**given, "COMP_LINE": line, "COMP_WORD": words[-1] if word is None else word}
    output = CliRunner().invoke(cli, prog_name="modelkit", env=given).output
    lines = [line for line in output.splitlines() if line]
    match shell:
        case "bash":
            return [line.partition(",")[2] for line in lines]
        case "zsh":
            return lines[1::3]
        case _:
            return [line.partition(",")[2].partition("\t")[0] for line in lines]


def test_a_script_of_clicks_own_that_was_kept_is_answered() -> None:
    given = {"COMP_WORDS": "modelkit ru", "COMP_CWORD": "1", "_MODELKIT_COMPLETE": "bash_complete"}
    assert CliRunner().invoke(cli, prog_name="modelkit", env=given).output == "plain,run\n"


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_parameters_are_completed_by_name(shell: str) -> None:
    assert completed("modelkit run story -p num_", shell) == [
        f"{name}=" for name in PARAMETERS if name.startswith("num_")
    ]
    assert completed("modelkit run story --parameter temp", shell) == ["temperature="]


def test_the_words_of_a_choice_are_completed() -> None:
    assert completed("modelkit run story -p kv_format=q") == ["kv_format=q8", "kv_format=q4"]
    assert completed("modelkit run story -p temperature=0") == []
    assert completed("modelkit run story -p nothing=") == []


@pytest.mark.parametrize(
    ("line", "word", "rest"),
    [
        ("run story -p kv_format=q", "q", ["q8", "q4"]),
        ("run story -p draft_acceptance=", "=", ["coupled", "rejection"]),
        ("create story --quality=me", "me", ["measured"]),
        ("run story:q", "q", ["q4"]),
        ("run STORY:", ":", ["q4"]),
        ("run sto", "sto", ["story:q4", "story"]),
        ("rm story amy/story:v", "v", ["v2"]),
        ('run "story:q', '"story:q', ["story:q4"]),
        ("run story\\:q", "story\\:q", ["story:q4"]),
        ("run ", "", ["story:q4", "story", "amy/story:v2"]),
    ],
)
def test_bash_is_told_what_comes_behind_its_own_marks(
    line: str, word: str, rest: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["story:q4", "story", "amy/story:v2"]
    monkeypatch.setattr("modelkit.cli.home.stored_names", lambda: names)
    assert completed(f"modelkit {line}", word=word) == rest


def test_a_path_is_completed_where_a_model_may_be_one() -> None:
    for line in ("run", "embed", "plan", "compare a"):
        given = {
            "COMP_LINE": f"modelkit {line} ./mod",
            "COMP_WORD": "./mod",
            "_MODELKIT_COMPLETE": "bash_complete",
        }
        assert CliRunner().invoke(cli, prog_name="modelkit", env=given).output == "file,./mod\n"


def test_formats_and_commands_are_completed() -> None:
    assert completed("modelkit create x -q mx") == ["mxfp4", "mxfp8"]
    assert completed("modelkit ca") == ["cache"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_completes_names_and_parameters(
    created: Callable[..., None], home: Path, tmp_path: Path
) -> None:
    created("story")
    (tmp_path / "modelkit").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m modelkit "$@"\n')
    (tmp_path / "modelkit").chmod(0o755)
    script = """
eval "$(_MODELKIT_COMPLETE=bash_source modelkit)"
complete_line() {
    COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
    _modelkit_completion modelkit
    echo "${COMPREPLY[@]}"
}
complete_line modelkit run sto
complete_line modelkit run story -p temp
"""
    ran = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    assert ran.stdout.split() == ["story", "temperature="], ran.stderr
