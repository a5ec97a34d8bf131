"""References by names lead where the standard has them, and what stands beside them holds."""

from typing import Any

import pytest

from modelkit.errors import RequestError
from tests.modelkit.grammars.rewriting.test_conditions import NUMBER, TEXT, grammar_of, of, taken
from tests.support.effort import at_most

LIST = {
    "$id": "list",
    "type": "array",
    "items": {"$dynamicRef": "#item"},
    "$defs": {"any": {"$dynamicAnchor": "item"}},
}
CASES: dict[str, tuple[dict[str, Any], list[Any], list[Any]]] = {
    "an anchor": (
        {**of("a", a={"$ref": "#number"}), "$defs": {"n": {"$anchor": "number", **NUMBER}}},
        [{"a": 1}],
        [{"a": "x"}],
    ),
    "its own address": (
        {
            "$id": "https://a.b/c",
            **of(next={"$ref": "https://a.b/c"}, n={"$ref": "c#/$defs/n"}),
            "$defs": {"n": NUMBER},
        },
        [{"next": {"n": 1}}],
        [{"next": 1}, {"next": {"n": "x"}}],
    ),
    "a pointer from where an address begins": (
        {
            **of("a", a={"$ref": "other"}),
            "$defs": {
                "n": TEXT,
                "other": {"$id": "other", "$ref": "#/$defs/n", "$defs": {"n": NUMBER}},
            },
        },
        [{"a": 1}],
        [{"a": "x"}],
    ),
    "a condition beside a name": (
        {
            **of("a", a={"$ref": "#n"}),
            "if": {"properties": {"a": {"const": 1}}},
            "then": {"required": ["b"]},
            "$defs": {"n": {"$anchor": "n", "enum": [1, 2]}},
            "additionalProperties": True,
        },
        [{"a": 2}, {"a": 1, "b": 0}],
        [{"a": 1}, {"a": 3}],
    ),
    "an address of draft 7": (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            **of("a", a={"$ref": "#n"}),
            "definitions": {"x": {"$id": "#n", **NUMBER}},
        },
        [{"a": 1}],
        [{"a": "x"}],
    ),
    "the same list of two kinds": (
        {
            "$id": "https://a.b/root",
            **of(texts={"$ref": "texts"}, numbers={"$ref": "numbers"}, any={"$ref": "list"}),
            "$defs": {
                "list": LIST,
                "texts": {"$id": "texts", "$ref": "list", "$defs": {"t": {"$dynamicAnchor": "item", **TEXT}}},
                "numbers": {
                    "$id": "numbers",
                    "$ref": "list",
                    "$defs": {"n": {"$dynamicAnchor": "item", **NUMBER}},
                },
            },
        },
        [{"texts": ["x"]}, {"numbers": [1]}, {"any": [1, "x", None]}],
        [{"texts": [1]}, {"numbers": ["x"]}],
    ),
    "a tree that is held to more": (
        {
            "$schema": "https://json-schema.org/draft/2019-09/schema",
            "$id": "https://a.b/strict",
            "$recursiveAnchor": True,
            "$ref": "tree",
            "required": ["n"],
            "$defs": {
                "tree": {
                    "$id": "tree",
                    "$recursiveAnchor": True,
                    **of(n=NUMBER, kids={"type": "array", "items": {"$recursiveRef": "#"}}),
                },
            },
        },
        [{"n": 1}, {"n": 1, "kids": [{"n": 2, "kids": []}]}],
        [{}, {"n": 1, "kids": [{}]}, {"n": 1, "kids": [1]}],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_names_lead_where_they_do(case: str) -> None:
    schema, good, bad = CASES[case]
    grammar = grammar_of(schema)
    assert [value for value in good if not taken(grammar, value)] == []
    assert [value for value in bad if taken(grammar, value)] == []


def test_what_leads_out_of_the_schema_is_refused_as_it_is_written() -> None:
    with pytest.raises(RequestError, match=r"http://a\.b/other"):
        grammar_of(of("a", a={"$ref": "http://a.b/other"}))


def test_names_in_many_ways_take_no_longer_than_a_schema_may() -> None:
    """Each address on the way may have another meaning of a name: of fourteen there are 2 ** 14 ways."""
    bundled = {
        f"r{n}": {
            "$id": f"r{n}",
            **of(
                next={"anyOf": [{"$ref": f"r{other}"} for other in range(n + 1, 14)] or [True]},
                named={"$dynamicRef": f"#n{n}"},
            ),
            "$defs": {"x": {"$dynamicAnchor": f"n{n}"}},
        }
        for n in range(14)
    }
    with at_most(3), pytest.raises(RequestError, match=r"dynamic"):
        grammar_of({"$id": "https://a.b/root", "$ref": "r0", "$defs": bundled})
