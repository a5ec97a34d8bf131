"""What was refused is refused again without another look at it."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from modelkit.chat.styles.opening import Opening
from modelkit.chat.styles.table import style_named
from modelkit.errors import RequestError
from modelkit.grammars.answers.shape import shape_of
from modelkit.grammars.compiling.refusals import Refusals, Verdicts
from modelkit.grammars.forms import Form
from modelkit.grammars.schemas import limits
from tests.support.walks import words_of

GRAMMARS = words_of(None, tokens=False).grammars


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, Any]]:
    """The schemas that are analysed."""
    seen, look = list[Mapping[str, Any]](), limits.schema_fault

    def seeing(schema: Mapping[str, Any]) -> str | None:
        seen.append(schema)
        return look(schema)

    monkeypatch.setattr(limits, "schema_fault", seeing)
    return seen


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "number", "multipleOf": 99_999_989},
        {"propertyNames": {"pattern": r"^\p{L}", "maxLength": 3}},
    ],
    ids=["by us", "by the library"],
)
def test_a_form_is_refused_by_its_reason_again(
    schema: dict[str, Any], looked_at: list[Mapping[str, Any]]
) -> None:
    said = list[str]()
    for _ in range(3):
        with pytest.raises(RequestError) as caught:
            GRAMMARS.compile(Form("format", "schema", json.dumps(schema)))
        said.append(str(caught.value))
    assert said == said[:1] * 3
    assert len(looked_at) == 1


@pytest.mark.parametrize("step", [99_999_971, 17], ids=["refused", "taken"])
def test_a_tool_is_not_looked_at_again_beside_others(looked_at: list[Mapping[str, Any]], step: int) -> None:
    style = style_named("hermes")
    wrong = {"type": "object", "properties": {"x": {"multipleOf": step}}}
    counts = set[int]()
    for choice in ("auto", "required", "f"):
        shape = shape_of(style, Opening(), [{"name": "f", "parameters": wrong}], choice)
        assert shape is not None
        assert len(words_of(style, tokens=True).grammars.shaped(shape).notes) == (step > 17)
        counts.add(len(looked_at))
    assert len(counts) == 1


def test_only_the_last_verdicts_are_remembered() -> None:
    asked = list[str]()

    def look(schema: str) -> str | None:
        asked.append(schema)
        return None if schema == "a" else f"no {schema}"

    verdicts = Verdicts(look, 2)
    assert [verdicts.of(one) for one in "abababcb"] == [None, "no b"] * 3 + ["no c", "no b"]
    assert asked == ["a", "b", "c"]
    assert verdicts.of("a") is None
    assert asked == ["a", "b", "c", "a"]


def test_only_the_last_refusals_are_remembered() -> None:
    refusals = Refusals(2)
    for key in ("a", "b", "c"):
        with pytest.raises(RequestError, match=key), refusals.remembered(key):
            raise RequestError(key)
    refusals.say_again("a")
    with pytest.raises(RequestError, match="c"):
        refusals.say_again("c")
