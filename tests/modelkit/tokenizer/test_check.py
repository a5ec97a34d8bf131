"""Hostile tokenizer.json files. Those marked A abort the process when the library reads or uses them."""

import base64
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkit.errors import TokenizerError
from modelkit.tokenizer import load_tokenizer
from modelkit.tokenizer.check import LIMIT_BYTES, check_document
from tests.modelkit.tokenizer.small import added, byte_level, folder_files, template, write
from tests.support.effort import at_most


def replace(pattern: object, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def sequence(*normalizers: object) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": list(normalizers)}


def charsmap(data: bytes) -> dict[str, Any]:
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(data).decode()}


def nested(depth: int) -> dict[str, Any]:
    return sequence(nested(depth - 1)) if depth else {"type": "NFC"}


def model(**parts: Any) -> dict[str, Any]:
    return {"model": {**byte_level()["model"], **parts}}


HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "A: replacement of 1 MB": ({"normalizer": replace({"String": "a"}, "x" * 10**6)}, "longer than 64 bytes"),
    "A: replacements that multiply": (
        {"normalizer": sequence(*[replace({"String": "a"}, "a" * 10)] * 10)},
        "10000000000 times longer",
    ),
    "A: replacement between any two": ({"normalizer": replace({"Regex": "x*"}, "y" * 64)}, "65 times longer"),
    "A: template of 100,000 pieces": ({"post_processor": template(times=10**5)}, "at most 32 pieces"),
    "A: token of 1000 ids": ({"post_processor": template(ids=(0,) * 1000)}, "1 to 16 ids"),
    "A: short character map": ({"normalizer": charsmap(b"\xff" * 5)}, "shorter than its own header"),
    "A: replacements in the decoder": (
        {"decoder": {"type": "Sequence", "decoders": [replace({"String": "a"}, "a" * 10)] * 10}},
        "decoder can make",
    ),
    "2000 prefixes": ({"normalizer": sequence(*[{"type": "Prepend", "prepend": "x"}] * 2000)}, "16 parts"),
    "prefix of 1 MB": ({"normalizer": {"type": "Prepend", "prepend": "x" * 10**6}}, "longer than 64 bytes"),
    "nested sequences": ({"normalizer": nested(12)}, "8 levels"),
    "empty character map": ({"normalizer": charsmap(b"")}, "shorter than its own header"),
    "character map is not base64": (
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "###"}},
        "not base64",
    ),
    "empty pattern": ({"normalizer": replace({"String": ""}, "x")}, "must hold a text"),
    "pattern of 5 KB": (
        {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a" * 5000}, "behavior": "Isolated"}},
        "longer than 4,096",
    ),
    "unknown normalizer": ({"normalizer": {"type": "Python", "code": "1"}}, "unknown type, 'Python'"),
    "normalizer without a type": ({"normalizer": {}}, "unknown type, None"),
    "normalizer is a list": ({"normalizer": []}, "unknown type"),
    "sequence without a list": ({"pre_tokenizer": {"type": "Sequence"}}, "holds no list"),
    "fixed length of zero": ({"pre_tokenizer": {"type": "FixedLength", "length": 0}}, "at least 1"),
    "strip of a million": (
        {"decoder": {"type": "Strip", "content": " ", "start": 10**6, "stop": 0}},
        "at most 64 makes sense",
    ),
    "strip at the end": (
        {"decoder": {"type": "Strip", "content": " ", "start": 1, "stop": 1}},
        "the library panics",
    ),
    "template token not defined": (
        {"post_processor": {**template(), "special_tokens": {}}},
        "does not define",
    ),
    "template id outside": ({"post_processor": template(ids=(10**6,))}, "outside the vocabulary"),
    "template id negative": ({"post_processor": template(ids=(-1,))}, "outside the vocabulary"),
    "BERT id outside": (
        {"post_processor": {"type": "BertProcessing", "sep": ["</s>", 2**32], "cls": ["<s>", 0]}},
        "outside the vocabulary",
    ),
    "no model": ({"model": None}, "no model"),
    "unknown model": (model(type="Neural"), "unknown type, 'Neural'"),
    "empty vocabulary": (model(vocab={}), "1 to 2,000,000 pieces"),
    "id of 2^32-1": (model(vocab={"a": 2, "b": 2**32 - 1, "ab": 3}), "ids reach from 0 to 4294967295"),
    "negative id": (model(vocab={"a": 2, "b": -1, "ab": 3}), "ids reach from -1"),
    "id that is a truth value": (model(vocab={"a": 0, "b": True, "ab": 2}), "integer id"),
    "one id twice": (model(vocab={"a": 3, "b": 3, "ab": 4}), "same id"),
    "merges are an object": (model(merges={}), "must be a list"),
    "merge without its prefix": (
        model(merges=[["c", "ab"]], continuing_subword_prefix="#"),
        "merge 0 joins or makes a piece that is not in the vocabulary",
    ),
    "random merges": (model(dropout=0.5), "at random"),
    "unknown token that is none": (model(unk_token="<unk>"), "not in the vocabulary"),
    "added token with the id of another": ({"added_tokens": [added("<s>", 1)]}, "two ids"),
    "added token on a taken id": ({"added_tokens": [added("new", 5)]}, "same id"),
    "added token without content": ({"added_tokens": [added("", 0)]}, "no content"),
    "added tokens are an object": ({"added_tokens": {"a": 1}}, "must be a list"),
    "Unigram score NaN": (
        {"model": {"type": "Unigram", "vocab": [["a", float("nan")]], "unk_id": 0}, "added_tokens": []},
        "not a finite number",
    ),
    "Unigram unknown id outside": (
        {"model": {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 5}, "added_tokens": []},
        "unk_id lies outside",
    ),
    "Unigram piece twice": (
        {"model": {"type": "Unigram", "vocab": [["a", 0.0], ["a", 0.0]], "unk_id": 0}, "added_tokens": []},
        "not a new piece",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("parts", "said"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_part_is_refused_before_the_library_sees_it(parts: dict[str, Any], said: str):
    with pytest.raises(TokenizerError) as error:
        check_document(byte_level(**parts), "tokenizer.json")
    assert said in str(error.value)


ODD = st.sampled_from(
    [None, True, 0, -1, 2**32, 1.5, "", "a", "a" * 99, [], {}, ["a"], [{}], {"type": "Fuse"}, {"Regex": "("}]
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, inner in inside for place in places(inner, (*path, key)))]


@settings(max_examples=300)
@given(data=st.data())
def test_a_file_with_anything_anywhere_passes_or_is_refused_in_words(data: st.DataObject):
    document = byte_level(
        post_processor=template(),
        normalizer=sequence({"type": "NFC"}, replace({"String": "a"}, "b")),
        decoder={"type": "Sequence", "decoders": [replace({"String": "a"}, "b"), {"type": "Fuse"}]},
    )
    *path, last = data.draw(st.sampled_from([place for place in places(document) if place]))
    holder: Any = document
    for key in path:
        holder = holder[key]
    holder[last] = data.draw(ODD)
    with contextlib.suppress(TokenizerError):
        check_document(document, "tokenizer.json")


@pytest.mark.parametrize(
    "parts",
    [
        {"padding": {"strategy": {"Fixed": 2**31}, "direction": "Right", "pad_to_multiple_of": None,
                     "pad_id": 0, "pad_type_id": 0, "pad_token": "<s>"}},
        {"truncation": {"max_length": 2, "strategy": "LongestFirst", "stride": 5, "direction": "Right"}},
    ],
    ids=["padding to 2^31", "truncation"],
)  # fmt: skip
def test_a_text_is_neither_padded_nor_cut(tmp_path: Path, parts: dict[str, Any]):
    tokenizer = load_tokenizer(write(tmp_path, tokenizer=byte_level(**parts)))
    assert tokenizer.encode("abcab", add_special=True) == [29, 4, 29]


def test_an_old_file_without_a_model_type_is_read(tmp_path: Path):
    document = byte_level()
    del document["model"]["type"]
    assert load_tokenizer(write(tmp_path, tokenizer=document)).encode("ab", add_special=False) == [29]


def test_merges_may_be_texts(tmp_path: Path):
    tokenizer = load_tokenizer(write(tmp_path, tokenizer=byte_level(**model(merges=["a b"]))))
    assert tokenizer.encode("ab", add_special=False) == [29]


def test_a_regular_expression_that_explodes_is_an_error_not_a_panic(tmp_path: Path):
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    tokenizer = load_tokenizer(write(tmp_path, tokenizer=byte_level(pre_tokenizer=split)))
    with pytest.raises(TokenizerError, match="failed while encoding"):
        tokenizer.encode("a" * 1000 + "b", add_special=False)


TEXTS = {
    "no JSON": "{ not json",
    "no object": "[]",
    "NaN": '{"version": NaN}',
    "a key twice": '{"version": "1.0", "version": "1.0"}',
    "half a surrogate pair": '{"version": "\\ud800"}',
    "nested lists": "[" * 10**6,
    "nested objects": '{"a":' * 10**6,
    "nothing": "",
    "git-lfs pointer": "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path, text: str):
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        load_tokenizer(write(tmp_path, tokenizer=text))


def test_a_byte_order_mark_is_named(tmp_path: Path):
    with pytest.raises(TokenizerError, match="without one"):
        load_tokenizer(write(tmp_path, tokenizer="\ufeff{}"))


def test_the_malformed_directory_of_the_data_is_refused(shared_data: Path):
    with pytest.raises(TokenizerError, match="not valid JSON"):
        load_tokenizer(folder_files(shared_data / "malformed" / "dirs" / "tokenizer_not_json"))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(TokenizerError, match="UTF-8"):
        load_tokenizer({"tokenizer.json": path})


def test_a_huge_file_is_refused_without_reading_it_all(tmp_path: Path):
    path = tmp_path / "tokenizer.json"
    with path.open("wb") as file:
        file.truncate(100 * LIMIT_BYTES)
    with at_most(5), pytest.raises(TokenizerError, match="larger than"):
        load_tokenizer({"tokenizer.json": path})


def test_a_folder_is_no_file(tmp_path: Path):
    with pytest.raises(TokenizerError, match="regular file"):
        load_tokenizer({"tokenizer.json": tmp_path})


@pytest.mark.parametrize("name", ["gpt-2", "llama-spm"])
def test_real_files_pass(shared_data: Path, name: str):
    text = (shared_data / "tokenizers" / name / "tokenizer.json").read_text(encoding="utf-8")
    document = json.loads(text)
    assert check_document(document, name)["model"]["vocab"] == document["model"]["vocab"]
