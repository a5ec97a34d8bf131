"""Schemas of several tools tried in one grammar: those that are taken so are taken alone."""

import json
from typing import Any

import llguidance
import pytest

from modelkit.grammars.calls.tools import read_tools
from modelkit.grammars.compiling import matchers
from modelkit.grammars.compiling.joint_trial import accepted_together
from modelkit.grammars.compiling.refusals import Verdicts
from modelkit.grammars.forms import Form


def of(**properties: Any) -> str:
    return json.dumps({"type": "object", "properties": properties, "additionalProperties": False})


GOOD = [of(a={"type": "string"}), of(n={"type": "integer", "minimum": 3}), of(of={"enum": [1, "x"]})]
LONG = {name: {"const": name * 11_000} for name in "ab"}
BAD = [
    of(a={"type": "string", "pattern": "(?<=a)b"}),
    json.dumps({"type": "object", "required": ["a", "b"], "properties": LONG}),
    json.dumps({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}),
    "[",
]


def alone(text: str) -> bool:
    try:
        form = Form("parameters", "schema", text)
        return not matchers.made_of(llguidance.LLTokenizer("byte"), form, {}).matcher.is_error()
    except matchers.RequestError:
        return False


def test_what_is_taken_together_is_taken_alone() -> None:
    every = [*GOOD[:2], *BAD, GOOD[2]]
    assert accepted_together(llguidance.LLTokenizer("byte"), every) == [one for one in every if alone(one)]


def test_no_schema_is_looked_at_by_itself_where_all_are_taken() -> None:
    looked = list[str]()
    byte = llguidance.LLTokenizer("byte")
    verdicts = Verdicts(lambda one: looked.append(one), 64, lambda some: accepted_together(byte, some))
    verdicts.look_at(GOOD)
    assert [verdicts.of(one) for one in GOOD] == [None] * 3
    assert looked == []
    verdicts.of(BAD[0])
    assert looked == [BAD[0]]


@pytest.mark.parametrize("key", ["title", "description", "$comment"])
def test_remarks_are_not_part_of_what_a_grammar_is_made_of(key: str) -> None:
    said = {"properties": {key: {"type": "string", key: "for the model"}}, key: "for the model"}
    (tool,) = read_tools([{"name": "f", "parameters": said}])
    assert tool.parameters["properties"] == {key: {"type": "string"}}
    assert key not in tool.parameters
