"""What zod 4 writes of texts: its own formats, and patterns that look ahead from their middle on."""

import random
from typing import Any

import pytest

from modelkit.chat.styles.opening import Opening
from modelkit.grammars.answers.shape import shape_of
from tests.modelkit.grammars.rewriting.test_conditions import grammar_of, of, taken
from tests.support.styles import style_of
from tests.support.walks import walk, words_of

LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
WRITTEN: dict[str, tuple[dict[str, str], list[str], list[str]]] = {
    "a beginning": ({"format": "starts_with", "pattern": "^ab.*"}, ["ab", "abc"], ["a", "xab"]),
    "another's format": ({"format": "cuid", "pattern": "^[cC][0-9a-z]{6,}$"}, ["c123456"], ["c", "d123456"]),
    "a duration": (
        {
            "format": "duration",
            "pattern": r"^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?"
            r"(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?)$",
        },
        ["P1D", "PT1H", "P2W"],
        ["P", "PT", "1D"],
    ),
    "a host": (
        {
            "format": "hostname",
            "pattern": rf"^(?=.{{1,253}}\.?$){LABEL}"
            r"(?:\.[a-zA-Z0-9](?:[-0-9a-zA-Z]{0,61}[0-9a-zA-Z])?)*\.?$",
        },
        ["a", "a-b.org"],
        ["-a", "a_b", ".".join(["a" * 63] * 4)],
    ),
    "signs": (
        {
            "format": "emoji",
            "pattern": r"^(?=[\s\S]*[\p{Extended_Pictographic}\p{Regional_Indicator}\u20E3])"
            r"[\p{Extended_Pictographic}\p{Emoji_Component}]+$",
        },
        ["🙂", "🙂🚀"],
        ["a", "", "1"],
    ),
    "base 64": (
        {"format": "base64", "contentEncoding": "base64", "pattern": "^[A-Za-z0-9+/=]*$"},
        ["", "TQ=="],
        ["TQ", "T-Q="],
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_zod_writes_is_held(name: str) -> None:
    schema, good, bad = WRITTEN[name]
    grammar = grammar_of({"type": "string", **schema})
    assert [one for one in good if not taken(grammar, one)] == []
    assert [one for one in bad if taken(grammar, one)] == []
    assert grammar.notes == ()


def test_a_strict_tool_may_have_it() -> None:
    style = style_of("qwen3-coder")
    named: dict[str, Any] = {
        str(n): {"type": "string", **said} for n, (said, _, _) in enumerate(WRITTEN.values())
    }
    tool = {"name": "f", "parameters": of(*named, **named), "strict": True}
    shape = shape_of(style, Opening("call"), [tool], "f")
    assert shape is not None
    words = words_of(style, tokens=True)
    grammar = words.grammars.shaped(shape)
    assert grammar.notes == ()
    walk(words, grammar.matcher(), random.Random(0), most=300)


def test_a_format_that_nothing_explains_is_noted() -> None:
    (note,) = grammar_of({"type": "string", "format": "starts_with"}).notes
    assert "any text is taken for 'starts_with'" in note
    (note,) = grammar_of({"type": "string", "pattern": "a", "contentEncoding": "base64"}).notes
    assert "any text is taken for 'base64'" in note
