"""A JSON schema in a grammar: read once, whatever the layouts in which a style writes it."""

import json
from typing import Any

import pytest

from modelkit.grammars.rules import rules
from modelkit.grammars.rules.rules import Rules


def options_of(grammar: Rules, schema: dict[str, Any]) -> list[dict[str, Any]]:
    """What the library is told of the schema, in both layouts."""
    for layout in ("spaced", "flexible"):
        grammar.json(schema, layout)
    written = [line.partition("%json ")[2] for line in grammar.text("").splitlines() if "%json " in line]
    return [json.loads(one) for one in written]


def test_a_schema_is_read_once_for_all_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, read = list[Any](), rules.for_llguidance

    def reading(schema: Any) -> Any:
        seen.append(schema)
        return read(schema)

    monkeypatch.setattr(rules, "for_llguidance", reading)
    schema = {"type": "object", "properties": {"only here": {"type": "string", "format": "date"}}}
    spaced, flexible = options_of(Rules({}), schema)
    assert len(seen) == 1
    assert spaced.pop("x-guidance") != flexible.pop("x-guidance")
    assert spaced == flexible


def test_a_schemas_own_options_are_not_the_librarys() -> None:
    for schema in ({"x-guidance": {"own": 1}}, {"type": "string", "x-guidance": {"own": 1}}):
        assert all("own" not in one["x-guidance"] for one in options_of(Rules({}), schema))
