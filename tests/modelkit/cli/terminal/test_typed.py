"""What was typed is UTF-8, whatever the locale makes of its bytes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import Result
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from modelkit.cli import login
from modelkit.cli.main import COMMANDS, LazyGroup, cli
from modelkit.cli.terminal import lines
from modelkit.cli.terminal.typed import TEXT, as_text
from modelkit.cli.terminal.ui import printable

BYTES = "Zo\udcc3\udcab"
"""What Python makes of `Zoë` in a locale that has no such letter."""


@pytest.mark.parametrize(
    ("typed", "text"), [(BYTES, "Zoë"), ("Zoë", "Zoë"), ("Zo\udcff", "Zo\udcff"), ("\ud800", "\ud800")]
)
def test_bytes_of_utf8_are_text(typed: str, text: str) -> None:
    assert as_text(typed) == text


@pytest.mark.parametrize(
    "arguments",
    [
        ("embed", "story", BYTES),
        ("run", "story", BYTES, "-p", f"stop={BYTES}", "-p", "seed=1", "-p", "num_predict=4"),
        ("run", "story", "--raw", "x", "--format", f'{{"const": "{BYTES}"}}', "-p", "num_predict=40"),
        ("run", "story", "--raw", "x", "--grammar", f'start: "{BYTES}"', "-p", "num_predict=40"),
        ("run", "story", "--raw", "x", "--regex", BYTES, "-p", "num_predict=40"),
    ],
    ids=["embed", "prompt", "format", "grammar", "regex"],
)
def test_arguments_that_are_texts_are_utf8(
    arguments: tuple[str, ...], modelkit: Callable[..., Result], created: Callable[..., None]
) -> None:
    created("story")
    ran = modelkit(*arguments)
    assert ran.exit_code == 0, ran.output
    assert ran.output == modelkit(*(one.replace(BYTES, "Zoë") for one in arguments)).output


def parameters() -> Iterator[tuple[str, click.Parameter]]:
    group = cli
    assert isinstance(group, LazyGroup)
    for name in COMMANDS:
        command = group.get_command(click.Context(group), name)
        assert command is not None
        for one in command.params:
            yield f"{name} {one.opts[0]}", one


def test_every_option_that_takes_a_text_reads_it_so() -> None:
    found = {place for place, one in parameters() if one.metavar == "TEXT" or one.type is TEXT}
    assert {"run --system", "run prompt", "run -p", "run --regex", "embed texts", "embed --adapter"} <= found
    assert all(one.type is TEXT for place, one in parameters() if place in found)


def test_a_line_of_a_plain_terminal_is_utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("builtins.input", lambda _: BYTES)
    assert lines.open_reader()(">>> ") == "Zoë"


def test_a_password_of_a_terminal_is_utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("click.prompt", lambda *_, **__: BYTES)
    assert login._asked(None, False) == ("Zoë", "Zoë")  # pyright: ignore[reportPrivateUsage]


def test_a_line_of_an_editor_is_utf8_and_kept_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prompt_toolkit.PromptSession.prompt", lambda *_: BYTES)
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        assert lines.open_reader()(">>> ") == "Zoë"
    lines.open_history().store_string(BYTES)
    assert list(lines.open_history().load_history_strings()) == ["Zoë"]


def test_bytes_that_are_no_text_are_seen() -> None:
    assert printable(f"{BYTES}, \udcff\x1b") == "Zo\ufffd\ufffd, \ufffd"
    assert printable(BYTES) == "Zoë"


def test_an_interrupt_at_a_plain_prompt_ends_its_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The terminal has written ^C there."""

    def interrupted(prompt: str) -> str:
        print(prompt, end="^C")
        raise KeyboardInterrupt

    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("builtins.input", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lines.open_reader()(">>> ")
    assert capsys.readouterr().out == ">>> ^C\n"
