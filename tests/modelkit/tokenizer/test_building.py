"""Vocabularies that are handed over to the library, beside what its own reader makes of the same file."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from modelkit.errors import TokenizerError
from modelkit.tokenizer import building, load_tokenizer
from modelkit.tokenizer.building import built
from modelkit.tokenizer.check import check_document
from tests.modelkit.tokenizer.small import added, byte_level, template, write

MODEL: dict[str, Any] = byte_level()["model"]
ALIKE: dict[str, dict[str, Any]] = {
    "as usual": {},
    "merges as texts": {"model": {**MODEL, "merges": ["a b"]}},
    "no merges": {"model": {**MODEL, "merges": []}},
    "all that a model may say": {
        "model": {
            **MODEL,
            "dropout": None,
            "unk_token": "a",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": "b",
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": True,
        }
    },
    "dropout of nothing": {"model": {**MODEL, "dropout": 0.0}},
    "an empty suffix": {"model": {**MODEL, "end_of_word_suffix": "", "continuing_subword_prefix": ""}},
    "tokens behind the vocabulary": {
        "added_tokens": [
            added("</s>", 1),
            added("<s>", 0),
            {**added("<x>", 30, special=False), "lstrip": True, "normalized": True, "single_word": True},
            {**added("<y>", 31), "rstrip": True},
        ]
    },
    "a frame": {"post_processor": template()},
}


@pytest.mark.parametrize("parts", ALIKE.values(), ids=ALIKE.keys())
def test_what_is_handed_over_is_what_the_library_would_read(
    parts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    document = check_document(byte_level(**parts), "tokenizer.json")
    read = tokenizers.Tokenizer.from_str(json.dumps(document))
    monkeypatch.setattr(building, "_is_handed_over", lambda document: True)  # lest it were the library's own
    made = built(document, None)
    assert json.loads(made.to_str()) == json.loads(read.to_str())
    text = "<s>abcab <x> <y> aab</s>"
    assert made.encode(text).ids == read.encode(text).ids


@pytest.mark.parametrize("name", ["gpt-2", "llama-spm"])
def test_so_are_vocabularies_of_real_models(shared_data: Path, name: str) -> None:
    text = (shared_data / "tokenizers" / name / "tokenizer.json").read_text(encoding="utf-8")
    document = check_document(json.loads(text), "tokenizer.json")
    assert building._is_handed_over(document)  # pyright: ignore[reportPrivateUsage]
    read = tokenizers.Tokenizer.from_str(json.dumps(document))
    assert json.loads(built(document, None).to_str()) == json.loads(read.to_str())


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"merges": [["a", "zz"]]}, "merge 0 joins or makes a piece that is not in the vocabulary"),
        ({"merges": [["a", "b"], ["a", "c"]]}, "merge 1 joins or makes a piece"),
        ({"merges": ["a b c"]}, "merge 0 does not name two pieces"),
        ({"merges": [["a", 1]]}, "merge 0 does not name two pieces"),
        ({"merges": [{"a": "b"}]}, "merge 0 does not name two pieces"),
        ({"merges": ["a b", None]}, "merge 1 does not name two pieces"),
        ({"merges": [["a", "zz"]], "fuse_unk": "yes"}, "merge 0 joins"),
        ({"fuse_unk": "yes"}, "the tokenizer failed while reading tokenizer.json"),
        ({"vocab": {**MODEL["vocab"], "\ud800": 30}}, "half a surrogate pair"),
    ],
)
def test_what_the_library_cannot_take_is_refused(parts: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(TokenizerError) as error:
        load_tokenizer(write(tmp_path, tokenizer=byte_level(model={**MODEL, **parts})))
    assert said in str(error.value)


def test_an_added_token_without_its_flags_is_refused_as_the_library_does(tmp_path: Path) -> None:
    short = {"id": 0, "content": "<s>"}
    with pytest.raises(TokenizerError, match="missing field"):
        load_tokenizer(write(tmp_path, tokenizer=byte_level(added_tokens=[short])))
