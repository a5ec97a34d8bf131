"""Added tokens are never text: where a grammar has their names as text, it is written letter by letter."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, models

from modelkit.chat.styles.opening import Opening
from modelkit.chat.styles.table import style_named
from modelkit.errors import RequestError
from modelkit.grammar import Form
from modelkit.grammars.shape import shape_of
from modelkit.grammars.vocabulary import rewritten, with_ids
from runtime.sampling.constraint import Matcher, allows
from tests.support.walks import STOP, Words, walk, words_of


def words(name: str) -> Words:
    return words_of(style_named(name), tokens=True)


def follow(matcher: Matcher, ids: list[int]) -> None:
    """Every token is allowed, and so is an end behind them."""
    for token in ids:
        assert allows(matcher.mask(), token)
        matcher.advance(token)
    assert matcher.ended or allows(matcher.mask(), STOP)


def letters(known: Words, text: str) -> list[int]:
    return [token for letter in text for token in known.tokenizer.encode(letter, add_special=False)]


@pytest.mark.parametrize("value", ["a<tool_call>b", "</tool_call>", ["<tool_call>", {"<tool_call>": 1}]])
def test_names_of_tokens_in_values_of_a_schema(value: Any) -> None:
    known = words("hermes")
    matcher = known.grammars.compile(Form("format", "schema", json.dumps({"const": value}))).matcher()
    follow(matcher, letters(known, json.dumps(value, separators=(",", ":"))))


@pytest.mark.parametrize("style", ["hermes", "minimax-m3", "qwen3.5", "gemma4", "llama4"])
def test_names_of_tokens_in_arguments(style: str) -> None:
    """What a grammar allows at each place, it takes: with all but one way shut the library forces tokens."""
    known, row = words(style), style_named(style)
    assert row is not None
    name = next(one for one in row.marks if one.startswith("<"))
    inner = {"type": "object", "properties": {"tool_call": {"enum": [f"x{name}"]}}, "required": ["tool_call"]}
    tools = [{"type": "function", "function": {"name": "f", "parameters": inner}}]
    shape = shape_of(row, Opening(), tools, "required", False)
    assert shape is not None
    grammar = known.grammars.shaped(shape)
    for seed in range(3):
        walk(known, grammar.matcher(), random.Random(seed), 400)


def test_a_grammar_may_name_tokens() -> None:
    known = words("hermes")
    mark = known.tokenizer.encode("<tool_call>", add_special=False)
    assert len(mark) == 1
    matcher = known.grammars.compile(Form("grammar", "lark", 'start: "a" <tool_call> /b+/')).matcher()
    follow(matcher, [*letters(known, "a"), *mark, *letters(known, "bb")])
    with pytest.raises(RequestError):
        known.grammars.compile(Form("grammar", "lark", "start: <nothing>"))


@pytest.mark.parametrize(
    ("lark", "expected"),
    [
        ("start: <a> b", "start: <[7]> b"),
        ('start: "<a>" <a> /<a>/ // <a>', 'start: "<a>" <[7]> /<a>/ // <a>'),
        (r'start: "\"<a>" /\/<a>/ <[1,2]> <b>', r'start: "\"<a>" /\/<a>/ <[1,2]> <b>'),
    ],
)
def test_names_are_found_outside_of_texts(lark: str, expected: str) -> None:
    assert with_ids(lark, {"<a>": 7}) == expected


def bpe() -> models.Model:
    """`<u>` is also what is unknown, `<m>` comes of a merge."""
    pieces = ["a", "b", "<u>", "<s>", "<m", ">", "<m>", "<t>"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    return models.BPE(vocab=vocabulary, merges=[("<m", ">")], unk_token="<u>")


def unigram() -> models.Model:
    return models.Unigram([("<u>", 0.0), ("<s>", 0.0), ("a", -1.0), ("b", -2.0), ("<m>", -3.0)], unk_id=0)


@pytest.mark.parametrize("model", [bpe, unigram])
def test_tokens_keep_their_ids(model: Callable[[], models.Model]) -> None:
    """Those that are in the model's own vocabulary, too, and those that have to keep their names."""
    before = Tokenizer(model())
    before.add_special_tokens(["<u>", "<s>"])
    before.add_tokens([AddedToken(one, normalized=False) for one in ("<m>", "<t>", "<new>", "word")])
    after = Tokenizer.from_str(rewritten(before.to_str()))
    merged = {"<m>"} if model is bpe else set[str]()
    for number in range(before.get_vocab_size()):
        name = before.id_to_token(number) or ""
        marked = name.startswith("<") and name.endswith(">") and name not in merged
        assert after.id_to_token(number) == (f"<\0{number}>" if marked else name)
    assert after.get_vocab_size() == before.get_vocab_size()
    assert before.token_to_id("<s>") not in after.encode("a<s>b").ids
