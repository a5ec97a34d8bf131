"""Added tokens are never text: where a grammar has their names as text, it is written letter by letter."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models

from modelkit.chat.styles.opening import Opening
from modelkit.chat.styles.table import style_named
from modelkit.errors import RequestError
from modelkit.grammars.answers.shape import shape_of
from modelkit.grammars.compiling.compiler import Grammars
from modelkit.grammars.compiling.vocabulary import Vocabulary, with_ids
from modelkit.grammars.forms import Form
from modelkit.tokenizer import load_tokenizer
from runtime.sampling.constraint import Matcher, allows
from tests.modelkit.tokenizer.small import added, byte_level, write
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


def spelled(vocabulary: Vocabulary, text: str) -> str:
    return b"".join(vocabulary.tokens[one] for one in vocabulary(text)).decode()


@pytest.mark.parametrize("model", [bpe, unigram])
def test_no_text_is_cut_into_added_tokens(tmp_path: Path, model: Callable[[], models.Model]) -> None:
    """Those that are in the model's own vocabulary, and come of its merges, neither."""
    native = Tokenizer(model())
    native.decoder = decoders.Fuse()
    native.add_special_tokens(["<u>", "<s>"])
    native.add_tokens([AddedToken(one, normalized=False) for one in ("<m>", "<t>", "<new>", "word")])
    native.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer({"tokenizer.json": tmp_path / "tokenizer.json"})
    vocabulary = Vocabulary(tokenizer, tokenizer.vocab_size + 2, tokenizer.vocab_size)
    for number, data in enumerate(vocabulary.tokens):
        name = tokenizer.id_to_piece(number) or "<none>"
        marked = name.startswith("<") and name.endswith(">")
        assert data == (b"<[%d]>" % number if marked else name.encode())
        assert (number in vocabulary.special_token_ids) == marked
    unknown = tokenizer.piece_to_id("<u>")
    assert set(vocabulary("a<s><m>b")) & {*vocabulary.special_token_ids} <= {unknown}
    assert vocabulary("ab") == [tokenizer.piece_to_id("a"), tokenizer.piece_to_id("b")]


@pytest.mark.parametrize("name", ["gpt-2", "llama-spm"])
def test_a_text_is_cut_as_within_another(shared_data: Path, name: str) -> None:
    """Without the blank that may go before a whole one."""
    folder = shared_data / "tokenizers" / name
    tokenizer = load_tokenizer({"tokenizer.json": folder / "tokenizer.json"})
    vocabulary = Vocabulary(tokenizer, tokenizer.vocab_size, 0)
    for text in ('name": "', " \u65e5\u672c", "once", "  x", "\n<s>", "\u00e9\U0001f600</s>"):
        assert spelled(vocabulary, text) == text


def test_a_blank_in_front_of_a_text_is_none_of_a_grammar_s(tmp_path: Path) -> None:
    cut = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    document = {**byte_level(pre_tokenizer=cut), "added_tokens": [added("<s>", 0), added("</s>", 1)]}
    files = write(
        tmp_path, tokenizer=document, tokenizer_config={"tokenizer_class": "PreTrainedTokenizerFast"}
    )
    tokenizer = load_tokenizer(files)
    grammars = Grammars(tokenizer, tokenizer.vocab_size, frozenset({1}))
    matcher = grammars.compile(Form("grammar", "regex", "abc")).matcher()
    follow(matcher, [29, 4])


def test_a_vocabulary_is_read_without_a_tokenizer_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library would hold the interpreter's lock while it parses that, more than half of the time."""
    monkeypatch.setattr(Tokenizer, "to_str", None)
    grammar = words("hermes").grammars.compile(Form("format", "regex", "a+"))
    assert not grammar.matcher().ended
