"""A Modelfile that was written for Ollama: what means nothing here is noted, and all that is wrong is told at
once.
"""

from pathlib import Path

import pytest

from modelkit.errors import ModelfileError, ModelNotFound, ParameterError, TemplateError
from modelkit.modelfile import REFUSED, Modelfile, Parameters
from modelkit.modelfile.parameter_table import AS_HERE, PASSED_OVER
from modelkit.modelfile.recipe import Recipe

LLAMA3 = '''FROM ./gone
TEMPLATE """{{ if .System }}<|start|>{{ .System }}{{ end }}"""
PARAMETER num_keep 24
PARAMETER stop "<|start|>"
PARAMETER temp 0.5
PARAMETER num_predict many
SYSTEM one
SYSTEM two
REQUIRES new
'''


def recipe(text: str, folder: Path) -> Recipe:
    return Modelfile.parse(text).recipe(folder)


def test_everything_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ModelfileError) as caught:
        recipe(LLAMA3, tmp_path)
    error = caught.value
    places = [line.split(" ")[0] for line in error.message.splitlines() if line.startswith("Modelfile:")]
    assert places == [f"Modelfile:{line}:1:" for line in (1, 5, 6, 8, 9)]
    assert "Here it is temperature." in error.message
    assert "num_keep" not in error.message
    assert (error.line, error.column) == (1, 1)


def test_a_single_mistake_keeps_its_hint_apart(tmp_path: Path) -> None:
    with pytest.raises(ModelfileError) as caught:
        recipe("FROM a\nPARAMETER temp 1\n", tmp_path)
    assert caught.value.message == "Modelfile:2:1: unknown parameter 'temp'"
    assert caught.value.hint == "Here it is temperature."


def test_a_file_that_is_all_wrong_is_not_told_at_length(tmp_path: Path) -> None:
    with pytest.raises(ModelfileError) as caught:
        recipe("FROM a\n" + "PARAMETER x 1\n" * 5000, tmp_path)
    assert caught.value.message.endswith("and 4980 more")


@pytest.mark.parametrize(
    "line",
    [
        *(f"{name} 1" for name in sorted(PASSED_OVER)),
        *(f"{name} {value}" for name in AS_HERE for value in AS_HERE[name]),
    ],
)
def test_what_changes_nothing_is_a_note(line: str, tmp_path: Path) -> None:
    made = recipe(f"FROM a\nPARAMETER {line}\n", tmp_path)
    assert dict(made.parameters) == {}
    assert len(made.notes) == 1
    assert made.notes[0].startswith(f"Modelfile:2: PARAMETER {line.split()[0]} is passed over: ")


@pytest.mark.parametrize(
    "line", ["mirostat 1", "tfs_z 0.9", "penalize_newline false", "vocab_only true", "f16_kv false"]
)
def test_what_would_change_the_text_is_refused(line: str, tmp_path: Path) -> None:
    with pytest.raises(ModelfileError, match="has no meaning here"):
        recipe(f"FROM a\nPARAMETER {line}\n", tmp_path)


def test_asked_for_by_name_all_of_them_are_refused() -> None:
    assert set(REFUSED) >= PASSED_OVER
    for name in REFUSED:
        with pytest.raises(ParameterError):
            Parameters().added(name, "1")


@pytest.mark.parametrize("kind", [TemplateError, ModelNotFound])
def test_what_is_found_later_gets_its_place(kind: type[TemplateError], tmp_path: Path) -> None:
    made = recipe("FROM a\n# a comment\n  TEMPLATE chatlm\n", tmp_path)
    with pytest.raises(kind) as caught, made.at("TEMPLATE"):
        raise kind("no such thing", hint="Look again.")
    assert (caught.value.message, caught.value.hint) == ("Modelfile:3:3: no such thing", "Look again.")
    with pytest.raises(kind) as caught, made.at("DRAFT"):
        raise kind("no such thing")
    assert caught.value.message == "no such thing"
