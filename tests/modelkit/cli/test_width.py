"""Everything fits the terminal, down to one of 40 columns; in a pipe a row is a line."""

import fcntl
import json
import os
import re
import struct
import sys
import termios
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from modelkit.cli import cache, repl
from modelkit.cli.main import COMMANDS, cli
from modelkit.cli.terminal import columns, screen, tables, ui
from modelkit.prefixes import Prefix
from tests.support.talking import Model, talk

Run = Callable[..., Result]
LONG = "a-registry.example.org:5000/somebody/a-model-with-a-rather-long-name-instruct:q4-tuned"


@pytest.fixture(params=[40, 80])
def narrow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Standard output is a terminal of so many columns."""
    monkeypatch.setattr(screen, "_columns", lambda _: request.param)
    return request.param


def every_command() -> Iterator[tuple[str, ...]]:
    yield ()
    for name, (module, _) in COMMANDS.items():
        yield (name,)
        command = import_module(module).command
        if isinstance(command, click.Group):
            yield from ((name, one) for one in command.list_commands(click.Context(command)))


@pytest.mark.parametrize("words", list(every_command()), ids=" ".join)
def test_help_fits(words: tuple[str, ...], home: Any) -> None:
    result = CliRunner().invoke(cli, [*words, "--help"])
    assert result.exit_code == 0
    assert "..." not in result.output.replace("]...", "").replace("NAME...", "")
    assert max(map(len, result.output.splitlines())) <= 80
    assert not [
        line for line in result.output.splitlines() if line.endswith("-")
    ]  # names of options are whole


@pytest.mark.parametrize("words", [(), ("run",), ("serve",), ("cache",), ("cache", "list"), ("doctor",)])
def test_help_fits_a_narrow_terminal(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """But for examples, and for a word that is longer than its column."""
    monkeypatch.setenv("COLUMNS", "40")
    lines = CliRunner().invoke(cli, [*words, "--help"]).output.splitlines()
    long = [line for line in lines if len(line) > 40 and not line.startswith("  modelkit ")]
    assert [line for line in long if len(line.split()) > 1] == []


@pytest.mark.parametrize("words", [(), ("cache",)])
def test_a_group_alone_shows_its_help(words: tuple[str, ...], modelkit: Run) -> None:
    alone = modelkit(*words)
    assert (alone.exit_code, alone.stdout) == (0, modelkit(*words, "--help").stdout)


@pytest.mark.parametrize(
    "arguments",
    [
        ("list",),
        ("show", LONG),
        ("show", LONG, "--verbose"),
        ("create", "x", "-f", "MODELFILE", "--dry-run"),
        ("create", "x", "-f", "MODELFILE", "--dry-run", "-q", "q4"),
        ("doctor",),
        ("plan", LONG, "--ranks", "2"),
        ("show", LONG, "--ranks", "2", "--shards", "2"),
        ("compare", LONG, LONG, "--text", "TEXT"),
        ("cache", "list"),
        ("cache", "show", LONG),
        ("prune", "--dry-run"),
        ("verify",),
    ],
    ids=lambda words: " ".join(words).replace(LONG, "LONG"),
)
def test_tables_fit(
    arguments: tuple[str, ...], narrow: int, modelkit: Run, created: Any, modelfile: Any, draft_line: str
) -> None:
    created(LONG, draft_line, "SYSTEM " + "You are brief. " * 20, "LICENSE " + "All rights. " * 30)
    modelkit("run", LONG, "Once", "-p", "num_predict=2", "--cache-disk", "1MB")
    files = {"MODELFILE": modelfile(draft_line), "TEXT": modelfile(folder="text")}
    ran = modelkit(*(str(files.get(word, word)) for word in arguments))
    # What cannot be broken stands alone: a name, a digest, a path.
    lines = ran.stdout.splitlines()
    assert ran.exit_code == 0
    assert [line for line in lines if len(line) > narrow and len(line.split()) > 1] == []


def test_what_a_conversation_says_of_itself_fits(narrow: int) -> None:
    assert max(map(len, tables.table(repl.HELP).splitlines())) <= narrow


def test_what_a_conversation_answers_to_commands_fits(
    narrow: int, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([{"name": f"a_tool_with_a_long_name_{one}"} for one in range(3)]))
    called = f"/tools {tools}", "/tools off"
    talk(
        Model(),
        "a question of " + "many " * 20 + "words",
        "/set system Be brief.",
        "/set system",
        *called,
        "/undo",
    )
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > narrow] == []


def test_a_long_conversation_stays_where_it_is() -> None:
    turns = [Prefix(depth, 40 * depth, 40, 10**6, 0.0, ids=(5,) * 30) for depth in range(1, 40)]
    shown = cache.tree(turns, None).splitlines()
    assert all(line.startswith(str(turn.start)) for line, turn in zip(shown[1:], turns, strict=True))


def test_branches_are_indented() -> None:
    depths = [1, 2, 3, 3, 4, 2, 1]
    nodes = [Prefix(depth, place, 1, 10, 0.0, ids=(1,)) for place, depth in enumerate(depths)]
    starts = [re.match(" *", line)[0] for line in cache.tree(nodes, None).splitlines()[1:]]  # type: ignore[index]
    assert list(map(len, starts)) == [0, 2, 4, 4, 4, 2, 0]


def test_in_a_pipe_a_row_is_a_line(modelkit: Run, created: Any) -> None:
    created(LONG)
    assert modelkit("list").stdout.splitlines()[1].startswith(f"{LONG}  ")


def test_a_table_gives_way_in_its_last_column_first() -> None:
    rows = [("a", "many words " * 5), ("b", "c")]
    assert tables.table(rows, width=40).splitlines() == [
        "a  many words many words many words many",
        "   words many words",
        "b  c",
    ]


def test_a_first_cell_that_is_too_long_stands_alone() -> None:
    rows = [("n" * 50, "10 B", "2 days ago"), ("m", "1 B", "3 days ago")]
    assert tables.table(rows, right=[1], width=40).splitlines() == [
        "n" * 50,
        " " * 24 + "10 B  2 days ago",
        "m" + " " * 23 + " 1 B  3 days ago",
    ]


def test_names_in_one_cell_are_parted_between_them() -> None:
    rows = [("story:latest, another:latest", "10 B", "2 days ago")]
    shown = ["story:latest,", "another:latest", "      10 B  2 days ago"]
    assert tables.table(rows, width=22).splitlines() == shown
    assert tables.table(rows, header=("NAMES", "SIZE", "USED"), width=14).splitlines()[1:3] == shown[:2]


def test_rows_that_fit_nowhere_side_by_side_become_lines() -> None:
    rows = [("story:latest", "9.56 MB", "2 weeks ago"), ("n" * 40, "1 B", ""), ("", "all", "")]
    assert tables.table(rows, header=("NAME", "SIZE", "MODIFIED"), right=[1], width=22).splitlines() == [
        "NAME      story:latest",
        "SIZE      9.56 MB",
        "MODIFIED  2 weeks ago",
        "",
        "NAME",
        "n" * 40,
        "SIZE      1 B",
        "",
        "SIZE      all",
    ]


def test_where_nothing_fits_beside_a_name_it_stands_above() -> None:
    rows = [("story", "2 weeks ago")]
    shown = tables.table(rows, header=("NAME", "MODIFIED"), width=12).splitlines()
    assert shown == ["NAME", "story", "MODIFIED", "    2 weeks", "    ago"]


def test_rows_without_a_header_that_fit_nowhere_go_on_in_other_lines() -> None:
    rows = [
        ("full", "8 layers", "f32", "8.19 kB per token", "8.39 MB per sequence"),
        ("all", "", "", "", "1 B"),
    ]
    assert tables.table(rows, width=30).splitlines() == [
        "full  8 layers  f32",
        "    8.19 kB per token",
        "    8.39 MB per sequence",
        "all  1 B",
    ]


def test_titles_of_sections_are_broken_too() -> None:
    shown = tables.sections({"Memory (float32, of 1024 tokens)": [("KL", "SAME"), ("1", "2")]}, width=24)
    assert shown.splitlines() == ["  Memory (float32, of", "    1024 tokens)", "    KL  SAME", "    1   2"]


def test_wide_letters_take_two_columns() -> None:
    rows = [("燈台", "誰が灯台に住んでいますか"), ("ab", "e\u0301")]
    lines = tables.table(rows, header=("A", "B"), right=[0], width=30).splitlines()
    assert lines == ["   A  B", "燈台  誰が灯台に住んでいますか", "  ab  e\u0301"]
    assert ui.wrapped("誰が灯台に住んでいますか", 10) == "誰が灯台に\n住んでいま\nすか"


def test_what_verbose_says_fits(narrow: int, modelkit: Run, created: Any) -> None:
    created("story")
    said = modelkit("run", "story", "Once", "--verbose", "-p", "num_predict=2").stderr.splitlines()
    assert any("free)" in line for line in said)
    assert max(map(len, said)) <= narrow


def test_a_stream_is_as_wide_as_its_own_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    controlling, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, 43, 0, 0))
    with open(terminal, "w") as stream, open(controlling, "rb"):
        monkeypatch.setattr(sys, "stderr", stream)
        assert (screen.width(err=True), screen.width()) == (43, None)


@given(st.text(st.sampled_from("ab \n世e\u0301"), max_size=60), st.integers(4, 20), st.booleans())
def test_folding_loses_blanks_alone(text: str, width: int, whole: bool) -> None:
    lines = columns.folded(text, width, hang="  ", whole=whole)
    assert "".join("".join(lines).split()) == "".join(text.split())
    words = [] if whole else lines
    assert all(columns.columns_of(line) <= width for line in words)


def test_sentences_are_broken_between_words_and_never_in_a_path() -> None:
    path = "/a/rather/long/path/that/nobody/could/copy/if/it/were/broken"
    assert ui.wrapped(f"the file is {path}, as it seems", 30) == f"the file is\n{path},\nas it seems"


def test_a_message_of_a_hundred_kilobytes_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    screen.show_error("it begins " + "x" * 100_000 + " and ends", "y" * 100_000)
    shown = capsys.readouterr().err
    assert len(shown) < 10_000
    assert shown.startswith("Error: it begins xxx")
    assert "characters left out" in shown
    assert " and ends\n" in shown
