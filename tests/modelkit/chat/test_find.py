import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from modelkit.chat.builtin import builtin_templates
from modelkit.chat.find import find_template, join_tools, no_template
from modelkit.chat.guarded import GuardedTemplate
from modelkit.errors import TemplateError

SOURCE = "{{ messages[0].content }}"


def files(folder: Path, contents: Mapping[str, object]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        found[name] = path
    return found


def test_a_model_without_any_has_none(tmp_path: Path):
    assert find_template(files(tmp_path, {"tokenizer_config.json": {"bos_token": "<s>"}})) is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("chat_template.jinja", SOURCE),
        ("chat_template.json", {"chat_template": SOURCE}),
        ("tokenizer_config.json", {"chat_template": SOURCE}),
        ("tokenizer_config.json", {"chat_template": [{"name": "default", "template": SOURCE}]}),
        ("tokenizer_config.json", {"chat_template": {"default": SOURCE}}),
    ],
)
def test_every_place_of_a_template_is_read(tmp_path: Path, name: str, content: object):
    assert find_template(files(tmp_path, {name: content})) == SOURCE


def test_a_byte_order_mark_is_no_part_of_a_template(tmp_path: Path):
    (tmp_path / "chat_template.jinja").write_text(SOURCE, encoding="utf-8-sig")
    assert find_template({"chat_template.jinja": tmp_path / "chat_template.jinja"}) == SOURCE


def test_the_template_file_wins_over_the_config(tmp_path: Path):
    both = {"tokenizer_config.json": {"chat_template": "other"}, "chat_template.jinja": SOURCE}
    assert find_template(files(tmp_path, both)) == SOURCE


def test_the_modelfile_wins_over_every_file(tmp_path: Path):
    assert find_template(files(tmp_path, {"chat_template.jinja": "other"}), SOURCE) == SOURCE


def test_the_name_of_a_builtin_template_selects_it():
    assert find_template({}, " chatml\n") == builtin_templates()["chatml"].source


def test_a_misspelt_name_is_no_template():
    with pytest.raises(TemplateError, match="'chatmll' is neither jinja nor the name"):
        find_template({}, "chatmll")


@pytest.mark.parametrize("path", ["./chat.txt", "chat_template.jinja", "/srv/template"])
def test_a_template_is_not_the_name_of_a_file(path: str):
    with pytest.raises(TemplateError, match="neither jinja nor") as caught:
        find_template({}, path)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(f"No file is read here: put the text of {path} behind TEMPLATE")


def test_a_go_template_that_is_left_out_is_refused_with_its_line():
    with pytest.raises(TemplateError, match="line 2"):
        find_template({}, "<s>\n{{ .Prompt | html }}")


@pytest.mark.parametrize("second", ["additional_chat_templates/tool_use.jinja", None])
def test_a_template_for_tools_is_joined_to_the_default(tmp_path: Path, second: str | None):
    if second:
        given = files(tmp_path, {"chat_template.jinja": "plain\n", second: "\n  with tools\n"})
    else:
        pair = [
            {"name": "default", "template": "plain\n"},
            {"name": "tool_use", "template": "\n  with tools\n"},
        ]
        given = files(tmp_path, {"tokenizer_config.json": {"chat_template": pair}})
    template = GuardedTemplate(find_template(given) or "")
    assert template.render({"tools": None}) == "plain"
    assert template.render({"tools": [1]}) == "\n  with tools"


def test_joining_equal_templates_changes_nothing():
    assert join_tools(SOURCE, SOURCE) == SOURCE


def test_a_list_without_a_default_is_an_error(tmp_path: Path):
    lonely = {"chat_template": [{"name": "tool_use", "template": SOURCE}]}
    with pytest.raises(TemplateError, match="'default'"):
        find_template(files(tmp_path, {"tokenizer_config.json": lonely}))


def test_a_config_that_is_no_json_is_an_error(tmp_path: Path):
    with pytest.raises(TemplateError, match="not valid JSON"):
        find_template(files(tmp_path, {"chat_template.json": "{"}))


def test_the_error_for_a_model_without_a_template_says_what_to_do():
    error = no_template()
    assert error.hint is not None
    assert "TEMPLATE" in error.hint
    assert "raw" in error.hint
