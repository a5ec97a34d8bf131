"""How things look: no text takes over the terminal, and quantities read well."""

import io
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkit.cli.terminal import progress, screen, tables, ui

HOSTILE = ["\x1b]52;c;ZXZpbA==\x07", "\x1b[2J", "\x9b31m", "a\rb", "\u202egnp.exe", "\u2028", "\x08\x7f"]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_control_character_is_printed(text: str) -> None:
    assert not set(ui.printable(text)) & set("\x1b\x07\x9b\r\u202e\u2028\x08\x7f")


@given(st.text())
def test_printable_text_can_be_written_and_only_loses_characters(text: str) -> None:
    shown = ui.printable(text)
    shown.encode()
    rest = iter(text)
    assert all(char in rest for char in shown)


@pytest.mark.parametrize("text", ["line\n\ttab", "Grüße, 世界", "👩\u200d🚀 می\u200cخواهم"])
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert ui.printable(text) == text


def test_a_cell_is_one_line() -> None:
    assert tables.table([("stop", "a\n\tb")]) == "stop  a\\n\\tb"


def test_a_long_cell_is_cut() -> None:
    assert ui.one_line("x" * 50, limit=10) == "xxxxxxx..."


def test_columns_are_aligned() -> None:
    shown = tables.table([("a", "10 B"), ("bbb", "2 B")], header=("N", "SIZE"), right=[1])
    assert shown.splitlines() == ["N    SIZE", "a    10 B", "bbb   2 B"]


def test_empty_sections_are_left_out() -> None:
    assert tables.sections({"A": [("x", "1")], "B": []}) == "  A\n    x  1"


@pytest.mark.parametrize(
    ("nbytes", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (1_043_210, "1.04 MB"),
        (999_999, "1 MB"),
        (7 * 10**12, "7 TB"),
    ],
)
def test_sizes_have_three_figures(nbytes: int, shown: str) -> None:
    assert ui.size(nbytes) == shown


@pytest.mark.parametrize(("number", "shown"), [(17, "17"), (260_032, "260K"), (1_240_000_000, "1.24B")])
def test_quantities(number: int, shown: str) -> None:
    assert ui.quantity(number) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "just now"),
        (59, "just now"),
        (60, "1 minute ago"),
        (7200, "2 hours ago"),
        (10 * 86400, "1 week ago"),
    ],
)
def test_times_are_rough(seconds: int, shown: str) -> None:
    assert ui.ago(1000, 1000 + seconds) == shown


def test_timestamps_are_utc() -> None:
    assert ui.timestamp(1_700_000_000.9) == "2023-11-14T22:13:20Z"


def test_bars_are_silent_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.bar("reading", 10) as advance:
        advance(10)
    assert capsys.readouterr() == ("", "")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_bars_show_bytes_and_time_left_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.bar("reading", 2_000_000) as advance:
        advance(1_000_000)
    shown = sys.stderr.getvalue()  # type: ignore[union-attr]
    assert "reading" in shown
    assert "50%" in shown
    assert "1.00M/2.00M" in shown


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb"), ("NO_COLOR", "")])
def test_messages_are_coloured_where_that_is_wanted(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stderr", Terminal())
    screen.note("so it is")
    assert sys.stderr.getvalue().startswith("note: " if value else "\x1b[33mnote:\x1b[0m ")  # type: ignore[attr-defined]


def test_json_output_has_no_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.bar("reading", 10, enabled=False) as advance:
        advance(10)
    assert sys.stderr.getvalue() == ""  # type: ignore[union-attr]


def test_json_has_characters_alone(capsys: pytest.CaptureFixture[str]) -> None:
    screen.emit_json({"path": "/\udcc3\udca9/\udcff", "paths": ["\udcff"]})
    assert json.loads(capsys.readouterr().out) == {"path": "/\ufffd\ufffd/\ufffd", "paths": ["\ufffd"]}
    screen.emit_json({"path": "/\udcc3\udca9"})
    assert json.loads(capsys.readouterr().out) == {"path": "/é"}


def test_json_is_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    screen.emit_json({"text": "\x9b31m\u202e世"})
    assert capsys.readouterr().out == '{\n  "text": "\\u009b31m\\u202e\\u4e16"\n}\n'
