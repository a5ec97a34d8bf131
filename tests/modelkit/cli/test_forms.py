"""--format, --grammar and --regex: what is read from where, and what is refused."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from modelkit.cli.forms import wanted_form
from modelkit.cli.run import command


def test_a_schema_comes_from_the_argument_or_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text('{"type": "null"}', encoding="utf-8")
    assert wanted_form("json", None, None) == {"format": "json"}
    assert wanted_form('{"type": "null"}', None, None) == wanted_form(f"@{file}", None, None)


def test_a_grammar_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "answer.lark"
    file.write_text('start: "é"', encoding="utf-8")
    assert wanted_form(None, file, "a+") == {"grammar": 'start: "é"', "regex": "a+"}


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"\xe9")
    for name in ("missing", "latin"):
        with pytest.raises(click.BadParameter, match=name):
            wanted_form(f"@{tmp_path / name}", None, None)


def test_a_conversation_takes_no_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modelkit.cli.run._piped", lambda: None)
    said = CliRunner().invoke(command, ["story", "--format", "json"])
    assert said.exit_code == 2
    assert "--format is for one PROMPT" in said.output
