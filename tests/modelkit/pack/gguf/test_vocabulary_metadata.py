"""Tokenizers stated as GGUF metadata: the names of their ways of cutting, and the ids that come back."""

import json
import tempfile
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from modelkit.errors import UnsupportedSource
from modelkit.pack.gguf.splitting_name import recognised
from modelkit.pack.gguf.vocabulary import Vocabulary, vocabulary_metadata
from modelkit.source.gguf.vocabulary.splitting import SPLITTINGS
from modelkit.tokenizer.load import load_tokenizer
from modelkit.tokenizer.tokenizer import Tokenizer
from tests.support.gguf_vocabularies import CONTROL, UNUSED, USER, bytes_metadata, joined_metadata, loaded

SHARED = Path(__file__).resolve().parents[5] / "shared" / "data" / "tokenizers"


def document(pre: str) -> dict[str, Any]:
    return json.loads(loaded(bytes_metadata(pre)).to_json())


def of_files(**files: dict[str, Any]) -> Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        paths = {f"{name}.json": Path(folder, f"{name}.json") for name in files}
        for name, content in files.items():
            paths[f"{name}.json"].write_text(json.dumps(content), encoding="utf-8")
        return load_tokenizer(paths)


def stated(tokenizer: Tokenizer, ends: frozenset[int] = frozenset(), rows: int | None = None) -> Vocabulary:
    return vocabulary_metadata(tokenizer, ends, rows=rows or tokenizer.vocab_size, plain=False, label="it")


def read_back(vocabulary: Vocabulary) -> Tokenizer:
    """From pieces, merges and scores alone."""
    return loaded({k: v for k, v in vocabulary.metadata.items() if k != "tokenizer.huggingface.json"})


@pytest.mark.parametrize(
    ("normalizer", "said"),
    [
        ({"type": "Replace", "pattern": {"String": "``"}, "content": '"'}, "other ids for 'a``b ``'"),
        (
            {"type": "Replace", "pattern": {"Regex": "q(?=u)"}, "content": "k"},
            r"replaces what matches 'q\(\?=u\)'",
        ),
        (
            {
                "type": "Sequence",
                "normalizers": [{"type": "Replace", "pattern": {"String": "~"}, "content": ""}],
            },
            "other ids for 'a~b ~'",
        ),
    ],
)
def test_what_is_replaced_before_texts_are_cut_is_not_lost(normalizer: dict[str, Any], said: str) -> None:
    made = {**document("gpt-2"), "normalizer": normalizer}
    with pytest.raises(UnsupportedSource, match=said):
        stated(of_files(tokenizer=made))


def test_texts_that_only_some_cut_alike_are_told_of() -> None:
    """Two ways of putting a blank first, which differ where a text has one already."""
    pieces = {"\u2581": -1.0, "a": -2.0, "\u2581a": -3.0, "b": -4.0}
    usual = json.loads(loaded(joined_metadata(pieces)).to_json())
    assert not stated(of_files(tokenizer=usual)).notes
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    (note,) = stated(of_files(tokenizer={**usual, "normalizer": None, "pre_tokenizer": metaspace})).notes
    assert note.startswith("as llama.cpp cuts texts, ids are others than here of ")


@pytest.mark.parametrize("pre", [name for name, row in SPLITTINGS.items() if not row.raw])
def test_every_name_is_recognised_by_what_it_does(pre: str) -> None:
    name, notes = recognised(document(pre), "it")
    found, wanted = SPLITTINGS[name], SPLITTINGS[pre]
    assert (found.patterns, found.whole_first, found.nfc) == (wanted.patterns, wanted.whole_first, wanted.nfc)
    assert not notes


@pytest.mark.parametrize(("cleans", "name"), [(None, "starcoder"), (True, "starcoder"), (False, "smollm")])
def test_of_names_that_cut_alike_it_is_the_one_that_cleans_alike(cleans: bool | None, name: str) -> None:
    assert recognised(document("smollm"), "it", cleans) == (name, [])


@pytest.mark.parametrize("cleans", [True, False])
def test_whether_it_cleans_is_read_from_its_files(cleans: bool) -> None:
    config = {"clean_up_tokenization_spaces": cleans}
    made = stated(of_files(tokenizer=document("smollm"), tokenizer_config=config))
    assert SPLITTINGS[made.metadata["tokenizer.ggml.pre"]].cleans is cleans


@pytest.mark.parametrize(
    ("steps", "name"),
    [
        ([{"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}], "gpt-2"),
        (
            [
                {"type": "Digits", "individual_digits": True},
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
            ],
            "starcoder",
        ),
        (
            [
                {
                    "type": "Split",
                    "pattern": {
                        "Regex": SPLITTINGS["llama-bpe"].patterns[0].replace("(?i:'s|", "(?i:'[sS]|")
                    },
                    "behavior": "Removed",
                    "invert": True,
                },
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            ],
            "dbrx",
        ),
    ],
)
def test_what_is_spelled_otherwise_is_recognised_too(steps: list[dict[str, Any]], name: str) -> None:
    made = document("gpt-2")
    made["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [{**step, "trim_offsets": True} if "use_regex" in step else step for step in steps],
    }
    assert recognised(made, "it") == (name, [])


def test_a_way_of_cutting_that_has_no_name_is_refused() -> None:
    made = document("gpt-2")
    made["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}]}
    with pytest.raises(UnsupportedSource, match="no name for"):
        recognised(made, "it")


def test_whole_words_first_where_no_name_says_so_is_refused() -> None:
    made = document("qwen2")
    made["model"]["ignore_merges"] = True
    with pytest.raises(UnsupportedSource, match="takes whole words first"):
        recognised(made, "it")


def test_composing_that_the_name_does_not_mean_is_noted() -> None:
    made = document("llama-bpe")
    made["normalizer"] = {"type": "NFC"}
    assert "NFC" in recognised(made, "it")[1][0]


@pytest.mark.parametrize("name", ["gpt-2", "llama-spm"])
def test_real_tokenizers_come_back_from_pieces_alone(name: str) -> None:
    if not (SHARED / name / "tokenizer.json").exists():
        pytest.skip(f"the tokenizers of real models are not at {SHARED}")
    tokenizer = load_tokenizer({"tokenizer.json": SHARED / name / "tokenizer.json"})
    again = read_back(stated(tokenizer))
    for case in json.loads((SHARED / name / "cases.json").read_text(encoding="utf-8")):
        assert again.encode(case["text"], add_special=False) == case["ids"], case["text"]


def test_pieces_types_and_ids_are_said() -> None:
    source = bytes_metadata(
        "llama-bpe",
        merges=("a b",),
        special=("<|begin|>", "<|end_of_text|>", "<tool>"),
        bos_token_id=257,
        eos_token_id=258,
        add_bos_token=True,
    )
    source["tokenizer.ggml.token_type"] = (*source["tokenizer.ggml.token_type"][:-1], USER)
    found = stated(loaded(source), frozenset({258, 65}), rows=262).metadata
    assert found["tokenizer.ggml.tokens"][256:] == (
        "ab",
        "<|begin|>",
        "<|end_of_text|>",
        "<tool>",
        "[PAD260]",
        "[PAD261]",
    )
    assert found["tokenizer.ggml.token_type"][257:] == (CONTROL, CONTROL, USER, UNUSED, UNUSED)
    assert found["tokenizer.ggml.merges"] == ("a b",)
    assert found["tokenizer.ggml.pre"] == "llama-bpe"
    ids = {role: found.get(f"tokenizer.ggml.{role}_token_id") for role in ("bos", "eos", "eot", "eom")}
    assert ids == {"bos": 257, "eos": 258, "eot": 65, "eom": None}
    assert (found["tokenizer.ggml.add_bos_token"], found["tokenizer.ggml.add_eos_token"]) == (True, False)


def test_ids_that_are_never_drawn_are_said_where_they_are_tokens() -> None:
    found = vocabulary_metadata(
        loaded(bytes_metadata()), frozenset(), (3, 258), rows=260, plain=False, label="it"
    )
    assert found.metadata["tokenizer.ggml.suppress_tokens"] == (3,)


def test_more_ends_than_llama_cpp_has_names_for_are_listed_and_noted() -> None:
    tokenizer = loaded(bytes_metadata(eos_token_id=256))
    found = stated(tokenizer, frozenset({256, 2, 3, 4}))
    assert found.metadata["tokenizer.ggml.eos_token_ids"] == (2, 3, 4, 256)
    assert any("[4]" in note for note in found.notes)


def test_scores_are_made_of_merges_and_give_the_same_ids() -> None:
    pieces = {"\u2581": -9.0, "a": -8.0, "b": -7.0, "ab": -1.0, "\u2581a": -2.0, "\u2581ab": -0.5}
    source = joined_metadata(pieces)
    found = stated(loaded(source))
    again = read_back(found)
    for text in ("ab a b", "a  b\nab", "x\u00e9"):
        assert again.encode(text, add_special=True) == loaded(source).encode(text, add_special=True)


def test_a_unigram_vocabulary_comes_back() -> None:
    pieces = [
        ["<pad>", 0.0],
        ["</s>", 0.0],
        ["<unk>", 0.0],
        ["\u2581", -2.0],
        ["\u2581ab", -3.0],
        ["a", -4.0],
        ["b", -4.5],
    ]
    pieces += [[chr(code), -9.0] for code in range(33, 127) if chr(code) not in "ab"]
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    tokenizer = of_files(
        tokenizer={
            "added_tokens": [
                {"id": one, "content": text, "special": True, "single_word": False, "lstrip": False,
                 "rstrip": False, "normalized": False}
                for one, text in enumerate(("<pad>", "</s>", "<unk>"))
            ],
            "normalizer": {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
            "pre_tokenizer": metaspace,
            "post_processor": None,
            "decoder": metaspace,
            "model": {"type": "Unigram", "unk_id": 2, "vocab": pieces, "byte_fallback": False},
        },
        tokenizer_config={"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"},
    )  # fmt: skip
    found = stated(tokenizer)
    assert found.metadata["tokenizer.ggml.model"] == "t5"
    again = read_back(found)
    for text in ("ab b", "abab a!", "q  ab"):
        assert again.encode(text, add_special=False) == tokenizer.encode(text, add_special=False)


def test_a_map_of_characters_goes_along() -> None:
    """T5's and XLM-RoBERTa's tokenizers have one."""
    letters = [[chr(code), -9.0] for code in range(33, 127)]
    raw = (1024).to_bytes(4, "little") + bytes(1024)  # of no characters
    normalizers = [
        {"type": "Precompiled", "precompiled_charsmap": b64encode(raw).decode()},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
    ]
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    tokenizer = of_files(
        tokenizer={
            "added_tokens": [],
            "normalizer": {"type": "Sequence", "normalizers": normalizers},
            "pre_tokenizer": metaspace,
            "decoder": metaspace,
            "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["\u2581", -2.0], *letters]},
        }
    )
    found = stated(tokenizer)
    assert found.metadata["tokenizer.ggml.precompiled_charsmap"] == raw
    assert read_back(found).encode("a b", add_special=False) == tokenizer.encode("a b", add_special=False)


def test_words_that_are_not_berts_are_refused() -> None:
    model = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "vocab": {"[UNK]": 0, "a": 1},
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 99,
    }
    tokenizer = of_files(
        tokenizer={"added_tokens": [], "model": model, "pre_tokenizer": {"type": "Whitespace"}}
    )
    with pytest.raises(UnsupportedSource, match="WordPiece"):
        stated(tokenizer)


def test_more_tokens_than_rows_are_refused() -> None:
    with pytest.raises(UnsupportedSource, match="257 tokens"):
        stated(loaded(bytes_metadata()), rows=200)


def test_the_models_own_tokenizer_goes_along() -> None:
    tokenizer = loaded(bytes_metadata(merges=("a b",)))
    found = stated(tokenizer)
    assert json.loads(found.metadata["tokenizer.huggingface.json"]) == json.loads(tokenizer.to_json())
    assert loaded(found.metadata).fingerprint == tokenizer.fingerprint
