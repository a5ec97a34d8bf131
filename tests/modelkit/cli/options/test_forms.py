"""--format, --grammar and --regex: what is read from where, and what is refused."""

from pathlib import Path

import click
import pytest

from modelkit.cli.options.forms import is_whole, wanted_form


def test_a_schema_comes_from_the_argument_or_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text('{"type": "null"}', encoding="utf-8")
    assert wanted_form("json", None, None) == {"format": "json"}
    assert wanted_form('{"type": "null"}', None, None) == wanted_form(f"@{file}", None, None)


def test_a_grammar_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "answer.lark"
    file.write_text('start: "é"', encoding="utf-8")
    assert wanted_form(None, f"@{file}", "a+") == {"grammar": 'start: "é"', "regex": "a+"}


def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text('{"type": "null"}', encoding="utf-8-sig")
    assert wanted_form(f"@{file}", None, None) == {"format": '{"type": "null"}'}


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"a\xe9")
    for name, why in (("missing", "no such file"), ("latin", r"byte 1 \(0xe9\) is not UTF-8")):
        with pytest.raises(click.BadParameter, match=f"{name} cannot be read: {why}"):
            wanted_form(f"@{tmp_path / name}", None, None)
    with pytest.raises(click.BadParameter, match="a file name must follow the @"):
        wanted_form("@", None, None)


def test_a_grammar_comes_from_the_argument() -> None:
    assert wanted_form(None, 'start: "a"', None) == {"grammar": 'start: "a"'}
    assert wanted_form(None, 'root ::= "a"', None) == {"grammar": 'root ::= "a"'}


@pytest.mark.parametrize("option", ["--format", "--grammar"])
def test_a_file_without_its_sign_is_no_text(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shape").write_text("x")
    for name in ("shape", "missing.json", "missing.lark"):
        values = (name, None) if option == "--format" else (None, name)
        with pytest.raises(click.BadParameter, match=f"write {option} @{name}"):
            wanted_form(*values, None)


@pytest.mark.parametrize(
    ("form", "text", "whole"),
    [
        ({"format": "json"}, '{"a": 1}', True),
        ({"format": "json"}, '{"a": 1', False),
        ({"format": "json"}, "", False),
        ({"regex": "a+"}, "aaa", False),
        ({"grammar": "start: A"}, "A", False),
    ],
)
def test_only_json_can_be_whole_although_it_was_cut(form: dict[str, str], text: str, whole: bool) -> None:
    assert is_whole(form, text) is whole
