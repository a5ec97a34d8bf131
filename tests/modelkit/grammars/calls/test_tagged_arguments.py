"""Arguments in marks of their own: what a schema is taken apart into is found once for each of them."""

from typing import Any

import pytest

from modelkit.chat.styles.opening import Opening
from modelkit.grammars.answers.shape import shape_of
from modelkit.grammars.calls import tagged_arguments
from tests.support.styles import style_of
from tests.support.walks import words_of


def test_each_argument_is_taken_apart_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, known = list[Any](), tagged_arguments.variants_of

    def taking_apart(rules: Any, variants: Any, schema: Any, at: str) -> Any:
        seen.append((at, str(schema)))
        return known(rules, variants, schema, at)

    monkeypatch.setattr(tagged_arguments, "variants_of", taking_apart)
    properties = {"n": {"type": "integer", "minimum": 1}, "kind": {"enum": ["a", "b"]}}
    style, parameters = style_of("qwen3-coder"), {"type": "object", "properties": properties}
    shape = shape_of(style, Opening(), [{"name": "taken_apart_once", "parameters": parameters}])
    assert shape is not None
    words_of(style, tokens=False).grammars.shaped(shape)
    assert {at for at, _ in seen} >= {"$.n", "$.kind"}
    assert len(seen) == len({*seen})
