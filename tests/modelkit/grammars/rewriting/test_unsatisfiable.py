"""What no value fits is left out where it may be, also where it is only referred to."""

from typing import Any

import pytest

from modelkit.errors import RequestError
from tests.modelkit.grammars.rewriting.test_conditions import NUMBER, grammar_of, of, taken

NEVER: dict[str, Any] = {
    "false": False,
    "not anything": {"not": {}},
    "no choice": {"anyOf": [False, {"enum": []}]},
    "two types": {"allOf": [{"type": "string"}, NUMBER]},
    "bounds": {"type": "integer", "minimum": 3, "maximum": 2},
    "what must be there": {**of("x", x={"$ref": "#/$defs/other"})},
    "an item": {"type": "array", "prefixItems": [{"$ref": "#/$defs/other"}], "minItems": 1},
    "by another": {"$ref": "#/$defs/other", "title": "other"},
}
REFERENCE = {"$ref": "#/$defs/never"}


@pytest.mark.parametrize("case", NEVER)
def test_a_reference_to_what_no_value_fits_is_nothing(case: str) -> None:
    held = of(a=REFERENCE, b={"anyOf": [REFERENCE, NUMBER]}, c={"type": "array", "items": REFERENCE})
    grammar = grammar_of({**held, "$defs": {"never": NEVER[case], "other": {"not": {}}}})
    assert [value for value in ({}, {"b": 1}, {"b": 1, "c": []}) if not taken(grammar, value)] == []
    assert [value for value in ({"a": 1}, {"b": "x"}, {"c": [1]}) if taken(grammar, value)] == []


def test_what_must_be_there_is_refused_all_the_same() -> None:
    for schema in (of("a", a=REFERENCE), {"$ref": "#/$defs/never"}):
        with pytest.raises(RequestError, match="Unsatisfiable"):
            grammar_of({**schema, "$defs": {"never": {"not": {}}}})


def test_what_ends_nowhere_is_no_such_thing() -> None:
    endless = of("next", next={"$ref": "#/$defs/endless"})
    with pytest.raises(RequestError, match="requires itself without end"):
        grammar_of({**of(a={"$ref": "#/$defs/endless"}), "$defs": {"endless": endless, "no": False}})
