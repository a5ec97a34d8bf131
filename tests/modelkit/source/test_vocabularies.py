"""Vocabularies that come in other files than tokenizer.json: the ids are those of their own libraries.

The references are tiktoken's, mistral_common's and sentencepiece's
(tests/support/make_vocabulary_references.py).
"""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from modelkit.chat.find import find_template
from modelkit.chat.message import Message
from modelkit.chat.template import ChatTemplate
from modelkit.errors import MalformedFile, SourceError, UnsupportedSource
from modelkit.source.inventory import Inventory, read_inventory
from modelkit.source.tree import read_directory
from modelkit.source.vocabularies.tekken_chat import chat_template
from modelkit.source.vocabularies.tokenizer_file import require_tokenizer, with_tokenizer
from modelkit.tokenizer import Tokenizer, load_tokenizer
from tests.modelkit.source.files import write_source

FILE = Path(__file__).resolve().parents[2] / "data" / "vocabularies.json"
REFERENCES: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
ARRANGED: dict[str, Any] = json.loads(FILE.with_name("arranged_vocabularies.json").read_text("utf-8"))
MODELS: dict[str, Any] = REFERENCES["sentencepiece"]
FRAMES: dict[str, tuple[list[int], list[int]]] = {"t5": ([], [1])}


def source(
    folder: Path, name: str, data: bytes, config: Mapping[str, Any] | None = None, *, kind: str = "llama"
) -> Inventory:
    """config: tokenizer_config.json; kind: the model_type."""
    write_source(folder, model_type=kind)
    (folder / "tokenizer.json").unlink()
    (folder / name).write_bytes(data)
    (folder / "tokenizer_config.json").write_text(json.dumps(config or {}))
    return read_inventory(read_directory(folder), "source")


def rebuilt(inventory: Inventory) -> Tokenizer:
    made, notes = with_tokenizer(inventory)
    require_tokenizer(made)
    assert notes[0].startswith("tokenizer.json is made of ")
    return load_tokenizer(made.files)


@pytest.mark.parametrize("name", list(REFERENCES["tiktoken"]))
def test_ranks_give_the_ids_of_tiktoken(tmp_path: Path, name: str) -> None:
    names: dict[str, str] = REFERENCES["names"].get(name, {})
    declared = {one: {"content": text, "special": True} for one, text in names.items()}
    config = {"added_tokens_decoder": declared, "bos_token": "<|special_0|>"}
    tokenizer = rebuilt(source(tmp_path, name, REFERENCES["ranks"].encode(), config if names else {}))
    for text, ids in REFERENCES["tiktoken"][name]:
        assert tokenizer.encode(text, add_special=False) == ids, text


def test_glm4_begins_with_two_tokens_of_its_code(tmp_path: Path) -> None:
    """It cuts texts as Llama 3 does; its own tokens follow the file's."""
    made = source(tmp_path, "tokenizer.model", REFERENCES["ranks"].encode(), kind="chatglm")
    tokenizer = rebuilt(made)
    own = len(REFERENCES["ranks"].splitlines())
    cases = [case for case in REFERENCES["tiktoken"]["tokenizer.model"] if max(case[1], default=0) < own]
    assert len(cases) > 5
    for text, ids in cases:
        assert tokenizer.encode(text, add_special=True) == [own + 2, own + 4, *ids], text
    assert tokenizer.encode("<|endoftext|><|user|>", add_special=False) == [own, own + 7]


def test_chatglm_begins_with_two_tokens_that_its_file_has_not(tmp_path: Path) -> None:
    model = base64.b64decode(MODELS["llama"]["model"])
    tokenizer = rebuilt(source(tmp_path, "tokenizer.model", model, {"tokenizer_class": "ChatGLMTokenizer"}))
    own = tokenizer.vocab_size - 9
    for text, ids in MODELS["llama"]["cases"]:
        assert tokenizer.encode(text, add_special=True) == [own + 1, own + 3, *ids], text
    assert tokenizer.encode("<|user|>", add_special=False) == [own + 6]
    assert tokenizer.eos_id == 2


TEKKEN: dict[str, Any] = REFERENCES["tekken"]


def tekken(version: str, **parts: Any) -> dict[str, Any]:
    """As a file says it; parts take the place of its own, None takes one away."""
    lines = [line.split() for line in REFERENCES["ranks"].splitlines()]
    vocab = [{"rank": int(rank), "token_bytes": token, "token_str": None} for token, rank in lines]
    said = {key: TEKKEN[version][key] for key in ("config", "special_tokens") if key in TEKKEN[version]}
    return {key: part for key, part in ({"vocab": vocab} | said | parts).items() if part is not None}


@pytest.mark.parametrize("version", list(TEKKEN))
def test_tekken_gives_the_ids_of_mistral_common(tmp_path: Path, version: str) -> None:
    data = json.dumps(tekken(version)).encode()
    tokenizer = rebuilt(source(tmp_path, "tekken.json", data))
    for text, ids in TEKKEN[version]["cases"]:
        assert tokenizer.encode(text, add_special=True) == ids, text
        assert tokenizer.decode(ids) == text
    assert tokenizer.ids_to_pieces(range(24)) == TEKKEN[version]["special"]
    assert (tokenizer.bos_id, tokenizer.eos_ids()) == (1, {2})
    assert tokenizer.encode("[INST]", add_special=False) == [3]


CHATS: dict[str, Any] = REFERENCES["chats"]


@pytest.mark.parametrize("version", list(CHATS["tekken"]))
@pytest.mark.parametrize("name", list(CHATS["conversations"]))
def test_its_template_writes_conversations_as_mistral_common_does(version: str, name: str) -> None:
    template = ChatTemplate(
        chat_template(int(version[1:]), thinks=True), bos_token="<s>", eos_token="</s>", unk_token=None
    )
    messages, tools = CHATS["conversations"][name]
    prompt = template.render([Message.read(one, "it") for one in messages], tools=tools)
    assert prompt == CHATS["tekken"][version][name]


def test_what_was_thought_is_given_back_where_there_are_marks_for_it() -> None:
    said = [Message("user", "Hi"), Message("assistant", "Hello", thinking="Hm"), Message("user", "More")]
    for thinks, thought in ((True, "[THINK]Hm[/THINK]"), (False, "")):
        template = ChatTemplate(chat_template(13, thinks=thinks), bos_token="<s>", eos_token="</s>")
        assert template.render(said) == f"<s>[INST]Hi[/INST]{thought}Hello</s>[INST]More[/INST]"


@pytest.mark.parametrize(
    ("version", "config", "template"),
    [("v3", {}, None), ("v11", {}, "made"), ("v15", {}, None), ("v11", {"chat_template": "own"}, "own")],
)
def test_the_template_is_that_of_the_version_where_there_is_no_other(
    tmp_path: Path, version: str, config: dict[str, str], template: str | None
) -> None:
    said = tekken("v11", config=changed(version=version))
    made, (note,) = with_tokenizer(source(tmp_path, "tekken.json", json.dumps(said).encode(), config))
    expected = chat_template(11, thinks=True) if template == "made" else template
    assert find_template(made.files) == expected
    assert ("as mistral_common writes it" in note) == (template == "made")


def changed(**config: Any) -> dict[str, Any]:
    return {**TEKKEN["v11"]["config"], **config}


VOCAB: list[dict[str, Any]] = tekken("v11")["vocab"]
NAMED: list[dict[str, Any]] = TEKKEN["v11"]["special_tokens"]


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"config": None}, "does not say how many tokens"),
        ({"config": changed(default_vocab_size="many")}, "does not say how many tokens"),
        ({"config": changed(default_num_special_tokens=0)}, "does not say how many tokens"),
        ({"config": changed(default_num_special_tokens=10**9)}, "does not say how many tokens"),
        ({"config": changed(pattern=None)}, "how a text is cut"),
        ({"config": changed(default_vocab_size=10**6)}, "no list of the 999,976 tokens"),
        ({"config": changed(default_vocab_size=100)}, "no list of the 76 tokens"),
        ({"vocab": {}}, "no list of the"),
        ({"vocab": [None, *VOCAB[1:]]}, "the rank 0 and a new token's bytes"),
        ({"vocab": [*VOCAB[:256], {**VOCAB[256], "rank": 257}, *VOCAB[257:]]}, "the rank 256"),
        ({"vocab": [*VOCAB[:256], {**VOCAB[256], "token_bytes": "AA=="}, *VOCAB[257:]]}, "the rank 256"),
        ({"vocab": [*VOCAB[:256], {**VOCAB[256], "token_bytes": 7}, *VOCAB[257:]]}, "the rank 256"),
        ({"vocab": [VOCAB[1], *VOCAB[1:]]}, "the rank 0"),
        ({"special_tokens": None}, "names no special tokens"),
        ({"special_tokens": "many"}, "the rank 0 and a name"),
        ({"special_tokens": [{**NAMED[0], "token_str": ""}]}, "the rank 0 and a name"),
        ({"special_tokens": [NAMED[1]]}, "the rank 0 and a name"),
        ({"special_tokens": [NAMED[0], {**NAMED[0], "rank": 1}]}, "some twice"),
        ({"special_tokens": [{"rank": one, "token_str": f"<{one}>"} for one in range(25)]}, "more than 24"),
        ({"special_tokens": [{"rank": 0, "token_str": "a"}]}, "'a' twice"),
    ],
)
def test_a_tekken_file_that_is_not_whole_is_refused(parts: dict[str, Any], said: str, tmp_path: Path) -> None:
    made = source(tmp_path, "tekken.json", json.dumps(tekken("v11", **parts)).encode())
    with pytest.raises(MalformedFile, match=said):
        require_tokenizer(made)


def test_beside_a_tokenizer_a_tekken_file_is_not_kept(tmp_path: Path) -> None:
    write_source(tmp_path)
    (tmp_path / "tekken.json").write_text(json.dumps(tekken("v11")))
    inventory = read_inventory(read_directory(tmp_path), "source")
    assert "tekken.json" not in inventory.files
    assert "not kept: tekken.json (tokenizer.json says the same)" in inventory.notes


@pytest.mark.parametrize("name", list(MODELS))
def test_a_sentencepiece_model_gives_the_ids_of_its_library(tmp_path: Path, name: str) -> None:
    class_ = "T5Tokenizer" if name == "t5" else "LlamaTokenizer"
    model = base64.b64decode(MODELS[name]["model"])
    tokenizer = rebuilt(source(tmp_path, "tokenizer.model", model, {"tokenizer_class": class_}))
    before, after = FRAMES.get(name, ([1], []))
    for text, ids in MODELS[name]["cases"]:
        assert tokenizer.encode(text, add_special=True) == [*before, *ids, *after], text
    assert tokenizer.decode(tokenizer.encode("two words", add_special=True)) == "two words"


def test_the_class_of_t5_brings_marks_that_its_file_has_not(tmp_path: Path) -> None:
    model = base64.b64decode(MODELS["t5"]["model"])
    config = {"tokenizer_class": "T5Tokenizer", "extra_ids": 3}
    tokenizer = rebuilt(source(tmp_path, "spiece.model", model, config))
    last = tokenizer.vocab_size - 1
    assert tokenizer.encode("<extra_id_0><extra_id_2>", add_special=False) == [last, last - 2]


@pytest.mark.parametrize("said", [True, False])
def test_the_frame_of_a_bare_prompt_is_what_the_config_says(tmp_path: Path, said: bool) -> None:
    model = base64.b64decode(MODELS["llama"]["model"])
    config = {"add_bos_token": said, "bos_token": "<s>", "tokenizer_class": "InternLM2Tokenizer"}
    tokenizer = rebuilt(source(tmp_path, "tokenizer.model", model, config))
    assert tokenizer.encode("a", add_special=True)[:1] == (
        [1] if said else tokenizer.encode("a", add_special=False)[:1]
    )


@pytest.mark.parametrize(
    ("config", "ends"), [({}, 2), ({"eos_token": None}, None), ({"eos_token": "<unk>"}, 0)]
)
def test_a_sentencepiece_model_says_which_token_ends_a_text(
    tmp_path: Path, config: dict[str, Any], ends: int | None
) -> None:
    model = base64.b64decode(MODELS["llama"]["model"])
    inventory = source(tmp_path, "tokenizer.model", model, {"model_max_length": 5, **config})
    tokenizer = rebuilt(inventory)
    assert (tokenizer.bos_id, tokenizer.eos_id) == (1, ends)
    made, _ = with_tokenizer(inventory)
    assert json.loads(made.files["tokenizer_config.json"].read_text())["model_max_length"] == 5


def test_a_token_of_special_tokens_map_goes_before_the_models(tmp_path: Path) -> None:
    model = base64.b64decode(MODELS["llama"]["model"])
    (tmp_path / "special_tokens_map.json").write_text('{"eos_token": {"content": "<unk>"}}')
    tokenizer = rebuilt(source(tmp_path, "tokenizer.model", model))
    assert tokenizer.eos_id == 0


def test_a_blank_stands_behind_special_tokens_unless_the_class_is_a_new_one(tmp_path: Path) -> None:
    model = base64.b64decode(MODELS["llama"]["model"])
    pieces = {}
    for legacy in (True, False):
        folder = tmp_path / str(legacy)
        folder.mkdir()
        tokenizer = rebuilt(source(folder, "tokenizer.model", model, {"legacy": legacy}))
        ids = tokenizer.encode("a<s>a", add_special=False)
        pieces[legacy] = tokenizer.ids_to_pieces(ids)
    assert pieces[True] == ["\u2581a", "<s>", "\u2581a"]
    assert pieces[False] == ["\u2581a", "<s>", "a"]


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("qwen.tiktoken", b"", "has no token for the byte 0x00"),
        ("qwen.tiktoken", b"AA== 1\n", "and its rank, 0, were expected"),
        ("qwen.tiktoken", b"AA== 0\nAA== 1\n", "a new token"),
        ("tiktoken.model", b"A 0\n", "in base64"),
        ("tokenizer.model", b"\n\x0e", "is cut off"),
        ("tokenizer.model", base64.b64decode(MODELS["llama"]["model"])[:999], "is cut off"),
        ("tokenizer.model", b"", "has no pieces"),
    ],
)
def test_a_vocabulary_that_is_not_whole_is_refused(tmp_path: Path, name: str, data: bytes, said: str) -> None:
    inventory = source(tmp_path, name, data)
    assert with_tokenizer(inventory) == (inventory, ())
    with pytest.raises(MalformedFile, match=said):
        require_tokenizer(inventory)


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("tokenizer.model", REFERENCES["ranks"].encode(), "does not name that of id 556"),
        ("tokenizer.model", b"\x0a\x05\x0a\x01a\x18\x05", "pieces that are not used"),
        ("tokenizer.model", b"\x0a\x03\x0a\x01a\x12\x02\x18\x04", "single characters"),
        ("tokenizer.model", b"\x0a\x03\x0a\x01a\x12\x03\xc0\x01\x01", "treat_whitespace_as_suffix"),
        ("tokenizer.model", b"\x0a\x03\x0a\x01a\x1a\x02\x28\x00", "escape_whitespaces"),
        ("tokenizer.jsonl", b'["a", 0.0]\n', "PLaMo"),
        ("rwkv_vocab_v20230424.txt", b"1 'a' 1\n", "longest match"),
    ],
)
def test_what_no_tokenizer_json_can_say_is_refused(tmp_path: Path, name: str, data: bytes, said: str) -> None:
    with pytest.raises(UnsupportedSource, match=said):
        require_tokenizer(source(tmp_path, name, data))


def test_ranks_of_a_model_that_is_not_known_are_refused(tmp_path: Path) -> None:
    write_source(tmp_path, model_type="llama4_text")
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer.model").write_text(REFERENCES["ranks"])
    with pytest.raises(UnsupportedSource, match="for Llama 3 and GLM-4 only"):
        require_tokenizer(read_inventory(read_directory(tmp_path), "source"))


def test_a_tokenizer_json_goes_before_other_files(tmp_path: Path) -> None:
    write_source(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"\n\x0e")
    inventory = read_inventory(read_directory(tmp_path), "source")
    assert with_tokenizer(inventory) == (inventory, ())
    require_tokenizer(inventory)


def test_a_source_without_any_vocabulary_is_refused(tmp_path: Path) -> None:
    write_source(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(SourceError, match=r"no tokenizer.json"):
        require_tokenizer(read_inventory(read_directory(tmp_path), "source"))
    (tmp_path / "gguf.json").write_text("{}")  # what the metadata of a GGUF file are kept in
    with pytest.raises(SourceError, match=r"no vocabulary\nTake a GGUF file"):
        require_tokenizer(read_inventory(read_directory(tmp_path), "source"))


MERGES = {"GPT2Tokenizer": "gpt2", "Qwen2Tokenizer": "qwen2"}


@pytest.mark.parametrize("class_", list(MERGES))
def test_a_vocabulary_with_merges_gives_the_ids_of_its_class(tmp_path: Path, class_: str) -> None:
    known = REFERENCES["merges"]
    config = {"tokenizer_class": class_, "eos_token": "<|end|>", "added_tokens_decoder": known["added"]}
    (tmp_path / "merges.txt").write_text(known["merges"])
    tokenizer = rebuilt(source(tmp_path, "vocab.json", json.dumps(known["vocab"]).encode(), config))
    for text, ids in known["cases"][class_]:
        assert tokenizer.encode(text, add_special=True) == ids, text


def test_a_vocabulary_of_words_gives_the_ids_of_its_class(tmp_path: Path) -> None:
    known = REFERENCES["words"]
    for number, (lower, cases) in enumerate(known["cases"]):
        config = {"tokenizer_class": "BertTokenizer", "do_lower_case": lower}
        inventory = source(tmp_path / str(number), "vocab.txt", known["vocab"].encode(), config)
        tokenizer = rebuilt(inventory)
        for text, ids in cases:
            assert tokenizer.encode(text, add_special=True) == ids, text


@pytest.mark.parametrize(
    ("files", "class_", "said"),
    [
        ({"vocab.json": "{}", "merges.txt": ""}, None, "does not name; known are GPT2Tokenizer"),
        ({"vocab.json": "{}", "merges.txt": ""}, "BlenderbotTokenizer", "is read by 'BlenderbotTokenizer'"),
        ({"vocab.json": "{}"}, "GPT2Tokenizer", r"no merges\.txt beside it"),
        ({"vocab.json": '{"a": 0}', "merges.txt": "a b\n"}, "GPT2Tokenizer", "no tokens for the merge 'a b'"),
        ({"vocab.txt": "[UNK]\na\n"}, "BertTokenizer", r"lacks one of \[UNK\]"),
        ({"vocab.txt": "a\na\n"}, "BertTokenizer", "a token twice"),
    ],
)
def test_files_of_classes_that_do_not_fit_are_refused(
    tmp_path: Path, files: Mapping[str, str], class_: str | None, said: str
) -> None:
    config = {"tokenizer_class": class_} if class_ else {}
    *_, inventory = [source(tmp_path, name, text.encode(), config) for name, text in files.items()]
    with pytest.raises(SourceError, match=said):
        require_tokenizer(inventory)


def arranged(folder: Path, name: str, **changed: bytes) -> Inventory:
    files = {file: base64.b64decode(data) for file, data in ARRANGED[name]["files"].items()}
    config = ARRANGED[name]["config"]
    *_, inventory = [source(folder, file, data, config) for file, data in {**files, **changed}.items()]
    return inventory


@pytest.mark.parametrize("name", list(ARRANGED))
def test_pieces_have_the_ids_that_their_class_gives_them(tmp_path: Path, name: str) -> None:
    tokenizer = rebuilt(arranged(tmp_path, name))
    for text, ids in ARRANGED[name]["cases"]:
        assert tokenizer.encode(text, add_special=True) == ids, text
    if name == "marian":
        target = tokenizer.pieces[" zwölf"]  # its source has no such piece, and finds none
        assert tokenizer.decode([target, ARRANGED[name]["cases"][0][1][0], target]) == "zwölf modelkitzwölf"


@pytest.mark.parametrize(
    ("vocab", "said"),
    [
        (b'{"<unk>": 0, "</s>": 2}', "ids that are not those from 0 on"),
        (b'{"<unk>": 0, "a": 1}', "no <unk> or no </s>"),
        (b'{"<unk>": 0, "</s>": 1}', "hardly a piece of those that have ids"),
    ],
)
def test_ids_that_do_not_suit_a_model_are_refused(tmp_path: Path, vocab: bytes, said: str) -> None:
    with pytest.raises(SourceError, match=said):
        require_tokenizer(arranged(tmp_path, "marian", **{"vocab.json": vocab}))


def test_a_model_whose_class_is_not_known_is_refused(tmp_path: Path) -> None:
    inventory = source(tmp_path, "sentencepiece.bpe.model", base64.b64decode(MODELS["t5"]["model"]))
    with pytest.raises(UnsupportedSource, match=r"no vocab\.json beside it"):
        require_tokenizer(inventory)
