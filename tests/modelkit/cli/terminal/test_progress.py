"""Progress on terminals: drawn over where that works, else a line now and then."""

import io
import sys

import pytest

from modelkit.cli.terminal import progress
from modelkit.cli.terminal.progress import Bars


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, *works: tuple[str, int]) -> str:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    for label, total in works:
        with Bars() as bars:
            bars.begin(label, total)
            bars.advance(total // 4)
            bars.advance(total // 2)
    return screen.getvalue()


def test_a_dumb_terminal_gets_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(progress, "_EVERY_S", 0.0)
    said = shown(monkeypatch, ("hashing", 4_000_000), ("formats: comparing tokens", 3_000_014))
    assert said.splitlines() == [
        "hashing: 25%, 1 MB of 4 MB",
        "hashing: 75%, 3 MB of 4 MB",
        "formats: comparing tokens: 25%, 750,003 of 3,000,014",
        "formats: comparing tokens: 75%, 2,250,010 of 3,000,014",
    ]
    assert "\r" not in said


def test_quick_work_on_a_dumb_terminal_shows_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert not shown(monkeypatch, ("hashing", 4_000_000))


def test_other_terminals_have_a_bar_that_is_drawn_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert shown(monkeypatch, ("hashing", 4_000_000)).startswith("\rhashing         : ")
