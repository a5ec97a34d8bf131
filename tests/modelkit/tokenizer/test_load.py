"""A tokenizer from the files of a model: which say what, and which win where they disagree."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from modelkit.errors import TokenizerError
from modelkit.tokenizer import TextStream, load_tokenizer
from modelkit.tokenizer.read import read_object
from tests.modelkit.tokenizer.small import added, byte_level, folder_files, load, template

CONFIG: dict[str, Any] = {"bos_token": "<s>", "eos_token": "</s>"}


@pytest.mark.parametrize("name", ["gpt-2", "llama-spm"])
def test_ids_agree_with_the_reference(shared_data: Path, name: str):
    folder = shared_data / "tokenizers" / name
    tokenizer = load_tokenizer(folder_files(folder))
    for case in json.loads((folder / "cases.json").read_text(encoding="utf-8")):
        assert tokenizer.encode(case["text"], add_special=False) == case["ids"], case["text"]


def test_the_trained_model_reads_and_writes_as_its_reference(shared_data: Path):
    folder = shared_data / "stories260k"
    tokenizer = load_tokenizer(folder_files(folder))
    for case in json.loads((folder / "ref_tokenizer.json").read_text(encoding="utf-8")):
        assert tokenizer.encode(case["text"], add_special=True) == case["ids"], case["text"]
        assert tokenizer.decode(case["ids"]) == case["decoded"]


def test_every_tiny_checkpoint_has_a_tokenizer(shared_data: Path):
    for folder in sorted((shared_data / "tiny").iterdir()):
        tokenizer = load_tokenizer(folder_files(folder))
        config = json.loads((folder / "config.json").read_text())
        assert tokenizer.eos_ids({"eos_token_id": 2}, config) == {2}
        assert tokenizer.vocab_size == 320


def test_special_tokens_in_a_prompt_are_recognised(tmp_path: Path):
    assert load(tmp_path).encode("<s>ab</s>", add_special=False) == [0, 29, 1]


def test_the_post_processor_frames_a_bare_prompt(tmp_path: Path):
    tokenizer = load(tmp_path, tokenizer=byte_level(post_processor=template()), tokenizer_config=CONFIG)
    assert tokenizer.encode("ab", add_special=True) == [0, 29]
    assert tokenizer.encode("ab", add_special=False) == [29]


def test_the_post_processor_wins_over_the_flags(tmp_path: Path):
    config = {**CONFIG, "add_bos_token": False, "add_eos_token": True}
    tokenizer = load(tmp_path, tokenizer=byte_level(post_processor=template()), tokenizer_config=config)
    assert tokenizer.encode("ab", add_special=True) == [0, 29]


@pytest.mark.parametrize(
    ("flags", "ids"),
    [
        ({}, [29]),
        ({"add_bos_token": True}, [0, 29]),
        ({"add_bos_token": True, "add_eos_token": True}, [0, 29, 1]),
        ({"add_bos_token": False}, [29]),
    ],
)
def test_flags_frame_a_prompt_where_no_post_processor_does(tmp_path: Path, flags: Any, ids: list[int]):
    tokenizer = load(tmp_path, tokenizer_config={**CONFIG, **flags})
    assert tokenizer.encode("ab", add_special=True) == ids
    assert tokenizer.encode("ab", add_special=False) == [29]


@pytest.mark.parametrize("token", ["<s>", {"content": "<s>", "lstrip": False, "__type": "AddedToken"}])
def test_special_tokens_are_written_as_texts_or_objects(tmp_path: Path, token: object):
    tokenizer = load(tmp_path, tokenizer_config={"bos_token": token})
    assert (tokenizer.specials.bos, tokenizer.bos_id) == ("<s>", 0)


def test_special_tokens_map_fills_what_the_config_leaves_out(tmp_path: Path):
    tokenizer = load(
        tmp_path,
        tokenizer_config={"bos_token": "<s>"},
        special_tokens_map={"eos_token": "</s>", "bos_token": "a"},
    )
    assert (tokenizer.specials.bos, tokenizer.specials.eos, tokenizer.eos_id) == ("<s>", "</s>", 1)


def test_a_named_token_that_is_a_mere_piece_becomes_special(tmp_path: Path):
    tokenizer = load(tmp_path, tokenizer=byte_level(added_tokens=[]), tokenizer_config=CONFIG)
    assert tokenizer.encode("a<s>", add_special=False) == [2, 0]
    assert tokenizer.decode([2, 0]) == "a"
    assert tokenizer.special_ids == {0, 1}


@pytest.mark.parametrize("role", ["sep_token", "cls_token", "mask_token"])
def test_the_tokens_of_encoders_are_named_as_well(tmp_path: Path, role: str):
    tokenizer = load(tmp_path, tokenizer_config={role: "ab"})
    assert tokenizer.encode("cab", add_special=False) == [4, 29]
    assert tokenizer.special_ids == {0, 1, 29}


def test_a_named_token_that_was_not_called_special_is(tmp_path: Path):
    """As transformers has it."""
    tokens = [added("<s>", 0), added("</s>", 1, special=False)]
    tokenizer = load(tmp_path, tokenizer=byte_level(added_tokens=tokens), tokenizer_config=CONFIG)
    assert tokenizer.special_ids == {0, 1}
    assert tokenizer.decode([2, 3, 1]) == "ab"
    assert tokenizer.encode("a</s>", add_special=False) == [2, 1]


def test_a_special_token_is_known_by_its_id_whatever_its_text_becomes(tmp_path: Path):
    """The library compares texts, and has this one in small letters by then."""
    tokens = [added("<s>", 0), added("</s>", 1), {**added("STOP", 30), "normalized": True}]
    document = byte_level(added_tokens=tokens, normalizer={"type": "Lowercase"})
    tokenizer = load(tmp_path, tokenizer=document, tokenizer_config=CONFIG)
    stream = TextStream(tokenizer)
    assert tokenizer.decode([2, 30, 3]) == "".join(map(stream.push, [2, 30, 3])) + stream.finish() == "ab"


def test_a_named_token_outside_the_vocabulary_gets_no_id(tmp_path: Path):
    """Its id would be one after the last, and no embedding has a row there."""
    tokenizer = load(tmp_path, tokenizer_config={**CONFIG, "bos_token": "<bos>"})
    assert tokenizer.specials.bos == "<bos>"
    assert tokenizer.bos_id is None
    assert tokenizer.vocab_size == 30


def test_the_config_may_declare_more_tokens(tmp_path: Path):
    declared = {"30": {"content": "<|user|>", "special": True, "normalized": False}, "31": {"content": "<x>"}}
    tokenizer = load(tmp_path, tokenizer_config={"added_tokens_decoder": declared})
    assert tokenizer.encode("<|user|>a<x>", add_special=False) == [30, 2, 31]
    assert tokenizer.decode([30, 2, 31]) == "a<x>"
    assert tokenizer.vocab_size == 32


@pytest.mark.parametrize(
    ("lower", "config", "ids"),
    [
        (True, {}, [3, 4]),
        (True, {"do_lower_case": False}, [5, 1]),
        (False, {"tokenizer_class": "BertTokenizer", "do_lower_case": True}, [3, 4]),
        (True, {"strip_accents": False}, [3, 1]),
        (False, {"tokenizer_class": "BertTokenizer"}, [3, 4]),  # what the class does unless told
        (False, {}, [3, 4]),
        (False, {"tokenizer_class": "PreTrainedTokenizerFast"}, [5, 1]),
        (True, {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": False}, [3, 4]),
    ],
)
def test_a_bert_s_flags_go_before_its_normalizer(
    tmp_path: Path, lower: bool, config: dict[str, Any], ids: list[int]
):
    """As in transformers, whose generic classes take the normalizer as it is."""
    vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "cat": 3, "the": 4, "Cat": 5}
    normalizer = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
    document = byte_level(
        added_tokens=[added("[CLS]", 2)],
        normalizer={**normalizer, "strip_accents": None, "lowercase": lower},
        pre_tokenizer={"type": "BertPreTokenizer"},
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
        model={
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocab,
        },
    )
    tokenizer = load(tmp_path, tokenizer=document, tokenizer_config=config)
    assert tokenizer.encode("Cat th\u00e9", add_special=False) == ids


@pytest.mark.parametrize(
    ("own", "config", "ids"),
    [
        (False, {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}, [28, 29]),
        (False, {"add_prefix_space": True}, [28, 29]),
        (True, {"tokenizer_class": "GPT2TokenizerFast", "add_prefix_space": False}, [29]),
        (True, {"tokenizer_class": "RobertaTokenizerFast"}, [29]),  # what the class does unless told
        (True, {}, [29]),
        (False, {"tokenizer_class": "PreTrainedTokenizerFast", "add_prefix_space": True}, [29]),
    ],
)
def test_the_flag_for_a_blank_in_front_goes_before_the_bytes(
    tmp_path: Path, own: bool, config: dict[str, Any], ids: list[int]
):
    """As in transformers, whose generic classes take the pre-tokenizer as it is."""
    cut = {"type": "ByteLevel", "add_prefix_space": own, "trim_offsets": True, "use_regex": True}
    tokenizer = load(tmp_path, tokenizer=byte_level(pre_tokenizer=cut), tokenizer_config=config)
    assert tokenizer.encode("ab", add_special=False) == ids
    several = byte_level(pre_tokenizer={"type": "Sequence", "pretokenizers": [_DIGITS, cut]})
    told = "add_prefix_space" in config
    tokenizer = load(tmp_path, tokenizer=several, tokenizer_config=config)
    assert tokenizer.encode("ab", add_special=False) == (ids if told else [28, 29])


_DIGITS = {"type": "Digits", "individual_digits": True}
_REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
_BACK = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
_STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
_METASPACE = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}


@pytest.mark.parametrize(
    ("normalizer", "cut"),
    [
        ({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, _REPLACE]}, None),
        (None, _METASPACE),
    ],
)
def test_a_llama_may_be_told_to_put_no_blank_in_front(tmp_path: Path, normalizer: Any, cut: Any):
    document = byte_level(
        normalizer=normalizer,
        pre_tokenizer=cut,
        decoder={"type": "Sequence", "decoders": [_BACK, {"type": "Fuse"}, _STRIP]},
        model={"type": "BPE", "vocab": {"<s>": 0, "</s>": 1, "\u2581": 2, "a": 3}, "merges": []},
    )
    for config, ids, text in (
        ({"tokenizer_class": "LlamaTokenizer", "add_prefix_space": None}, [2, 3, 2, 3], "a a"),
        ({"tokenizer_class": "LlamaTokenizer", "add_prefix_space": False}, [3, 2, 3], "a a"),
    ):
        tokenizer = load(tmp_path, tokenizer=document, tokenizer_config=config)
        assert tokenizer.encode("a a", add_special=False) == ids
        assert tokenizer.decode(ids) == text
        blank = TextStream(tokenizer).push(2)
        assert blank == ("" if len(ids) == 4 else " ")


def test_the_old_added_tokens_file_is_read(tmp_path: Path):
    tokenizer = load(tmp_path, added_tokens={"<y>": 31, "<x>": 30})
    assert tokenizer.encode("<y><x>", add_special=False) == [31, 30]


def test_the_old_added_tokens_file_leaves_known_tokens_special(tmp_path: Path):
    tokenizer = load(tmp_path, added_tokens={"<s>": 0})
    assert tokenizer.special_ids == {0, 1}


def test_the_config_may_describe_a_known_token_anew(tmp_path: Path):
    document = byte_level(added_tokens=[added("<s>", 0, special=False), added("</s>", 1)])
    declared = {"0": {"content": "<s>", "special": True, "normalized": False}}
    tokenizer = load(tmp_path, tokenizer=document, tokenizer_config={"added_tokens_decoder": declared})
    assert tokenizer.decode([0, 2, 1]) == "a"


def test_a_declared_token_must_get_its_id(tmp_path: Path):
    with pytest.raises(TokenizerError, match="should have id 40"):
        load(tmp_path, tokenizer_config={"added_tokens_decoder": {"40": {"content": "<x>"}}})


def test_an_added_token_must_get_its_id(tmp_path: Path):
    with pytest.raises(TokenizerError, match="should have id 40"):
        load(tmp_path, tokenizer=byte_level(added_tokens=[added("<x>", 40)]))


@pytest.mark.parametrize(
    "config",
    [
        {"added_tokens_decoder": {"-1": {"content": "x"}}},
        {"added_tokens_decoder": {"1": "x"}},
        {"added_tokens_decoder": []},
        {"added_tokens_decoder": {"30": {"content": ""}}},
        {"bos_token": 5},
        {"eos_token": ["</s>"]},
        {"pad_token": "x" * 5000},
        {"pad_token": "\ud800"},
        {"extra_special_tokens": {"a": "\udfff"}},
    ],
)
def test_a_config_of_the_wrong_shape_is_refused(tmp_path: Path, config: Any):
    with pytest.raises(TokenizerError):
        load(tmp_path, tokenizer_config=config)


def test_eos_ids_are_those_of_all_who_know_one(tmp_path: Path):
    tokenizer = load(tmp_path, tokenizer_config=CONFIG)
    generation = {"eos_token_id": [5, 6]}
    config = {"eos_token_id": 7, "text_config": {"eos_token_id": 8, "vocab_size": 64}}
    assert tokenizer.eos_ids(generation, config) == {1, 5, 6, 7, 8}
    assert tokenizer.eos_ids() == {1}


def test_an_eos_id_may_lie_among_the_model_s_spare_rows(tmp_path: Path):
    assert load(tmp_path).eos_ids({"eos_token_id": 40}, {"vocab_size": 64}) == {40}


@pytest.mark.parametrize("value", [-1, 10**9, True, 1.5, "2", [1, None], [1] * 1000, {"a": 1}])
def test_an_eos_id_that_is_none_is_refused(tmp_path: Path, value: object):
    with pytest.raises(TokenizerError, match=r"^generation_config\.json: eos_token_id"):
        load(tmp_path).eos_ids({"eos_token_id": value})
    with pytest.raises(TokenizerError, match=r"^config\.json: eos_token_id"):
        load(tmp_path).eos_ids({}, {"eos_token_id": value})


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("data", [b"{", b"\xff", b'{"bos_token": 7, "model": 7}'])
def test_a_file_in_a_store_is_called_by_its_own_name(tmp_path: Path, name: str, data: bytes):
    load(tmp_path)
    files = {path.name: path for path in tmp_path.iterdir()}
    files[name] = tmp_path / ("0a" * 32)
    files[name].write_bytes(data)
    with pytest.raises(TokenizerError, match=f"^{name}(:| )") as refused:
        load_tokenizer(files)
    assert "0a0a" not in str(refused.value)


def test_a_model_without_tokenizer_json_is_told_how_to_make_one(tmp_path: Path):
    (tmp_path / "tokenizer.model").write_bytes(b"")
    with pytest.raises(TokenizerError, match=r"no tokenizer\.json; there is only tokenizer\.model") as error:
        load_tokenizer(folder_files(tmp_path))
    assert "save_pretrained" in str(error.value)


def test_importing_the_package_loads_no_native_library():
    code = "import sys, modelkit.tokenizer; sys.exit('tokenizers' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).resolve().parents[3], check=True)


def test_the_size_of_a_vocabulary_is_told_by_its_largest_id(tmp_path: Path):
    document = byte_level(added_tokens=[added("<s>", 0), added("</s>", 1), added("<tool>", 30)])
    document["model"]["vocab"]["ab"] = 29
    tokenizer = load(tmp_path, tokenizer=document)
    assert tokenizer.vocab_size == 31 == max(tokenizer.pieces.values()) + 1
    assert "<tool>" in tokenizer
    assert "ab" in tokenizer
    assert "abc" not in tokenizer


@pytest.mark.parametrize("merges", [[["a", "b"]], ["a b"]], ids=["pairs", "words"])
@pytest.mark.parametrize(
    "more", [{}, {"truncation": {"max_length": 1, "stride": 0, "strategy": "LongestFirst"}}, {"other": 1}]
)
def test_a_file_is_read_alike_whether_it_says_more_or_not(tmp_path: Path, more: dict[str, Any], merges: Any):
    document = byte_level(**more)
    document["model"]["merges"] = merges
    assert load(tmp_path, tokenizer=document).encode("abc", add_special=False) == [29, 4]


def test_no_more_memory_is_asked_for_than_a_file_has(tmp_path: Path) -> None:
    (tmp_path / "small.json").write_text("{}")
    assert read_object(tmp_path / "small.json", "small.json", limit_bytes=1 << 60) == {}
