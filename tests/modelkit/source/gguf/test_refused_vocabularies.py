"""Vocabularies that cannot be true are refused before a tokenizer is made of them."""

from typing import Any

import pytest

from modelkit.errors import MalformedFile, UnsupportedSource
from tests.support.gguf_vocabularies import (
    bytes_metadata,
    joined_metadata,
    loaded,
    made,
)

WRONG: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("no kind", {"model": None}, MalformedFile, "what kind of tokenizer"),
    ("a kind that is refused", {"model": "rwkv"}, UnsupportedSource, "rwkv"),
    ("an unknown kind", {"model": "plamo9"}, UnsupportedSource, "plamo9"),
    ("an unknown way of cutting", {"pre": "qwen9"}, UnsupportedSource, "qwen9"),
    ("a way of cutting that is a number", {"pre": 3}, MalformedFile, "pre"),
    ("no tokens", {"tokens": ()}, MalformedFile, "no tokens"),
    ("tokens that are a text", {"tokens": "abc"}, MalformedFile, "not a list of texts"),
    ("tokens that are numbers", {"tokens": (1, 2)}, MalformedFile, "not a list of texts"),
    ("types of another length", {"token_type": (1,)}, MalformedFile, "1 entries for 257 tokens"),
    ("types that are texts", {"token_type": ("a",) * 257}, MalformedFile, "finite numbers"),
    ("scores of another length", {"scores": (0.0,) * 258}, MalformedFile, "258 entries"),
    ("a score that is not a number", {"scores": (float("nan"),) * 257}, MalformedFile, "finite numbers"),
    ("no merges", {"merges": None}, MalformedFile, "without merges"),
    ("a merge of one piece", {"merges": ("ab",)}, MalformedFile, "does not name two pieces"),
    ("merges of other pieces", {"merges": ("zz yy", "a b")}, MalformedFile, "the vocabulary lacks"),
    ("an id outside", {"eos_token_id": 257}, MalformedFile, "ids below 257"),
    ("an id that is a text", {"bos_token_id": "x"}, MalformedFile, "an id was expected"),
    ("a flag that is a number", {"add_bos_token": 1}, MalformedFile, "neither true nor false"),
    ("ids that are a text", {"suppress_tokens": "1"}, MalformedFile, "not a list of ids"),
]


@pytest.mark.parametrize(
    ("change", "kind", "words"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG]
)
def test_metadata_that_cannot_be_true_are_refused(
    change: dict[str, Any], kind: type[Exception], words: str
) -> None:
    metadata = bytes_metadata() | {f"tokenizer.ggml.{key}": value for key, value in change.items()}
    metadata = {key: value for key, value in metadata.items() if value is not None}
    with pytest.raises(kind, match=words):
        made(metadata)


def test_a_token_that_is_there_twice_is_refused() -> None:
    with pytest.raises(MalformedFile, match="two ids"):
        made(bytes_metadata(special=("<a>", "<a>")))


def test_a_token_longer_than_any_is_refused() -> None:
    with pytest.raises(MalformedFile, match="5,000 characters"):
        made(bytes_metadata(special=("x" * 5000,)))


@pytest.mark.parametrize("rows", [256, 257 + 70_000])
def test_an_embedding_that_does_not_fit_is_refused(rows: int) -> None:
    with pytest.raises(MalformedFile, match="257 tokens"):
        made(bytes_metadata(), rows)


def test_scores_that_are_all_equal_are_refused() -> None:
    with pytest.raises(UnsupportedSource, match="same score"):
        made(joined_metadata({"a": -1000.0, "b": -1000.0, "ab": -1000.0}))


def test_scores_that_are_all_equal_do_no_harm_where_nothing_is_joined() -> None:
    tokenizer = loaded(joined_metadata({"a": -1000.0, "b": -1000.0}, add_space_prefix=False))
    assert tokenizer.encode("ab", add_special=False) == [259, 260]


def test_pieces_with_too_many_ways_to_join_them_are_refused() -> None:
    pieces = {"a" * count: -float(count) for count in range(1, 3000)}
    with pytest.raises(MalformedFile, match="ways to join"):
        made(joined_metadata(pieces))
