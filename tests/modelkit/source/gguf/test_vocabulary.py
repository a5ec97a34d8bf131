import json
from typing import Any

import pytest

from modelkit.errors import MalformedFile
from tests.support.gguf_vocabularies import (
    CONTROL,
    NORMAL,
    UNUSED,
    USER,
    byte_letters,
    bytes_metadata,
    joined_metadata,
    loaded,
    made,
)


def config(metadata: dict[str, Any], name: str, rows: int | None = None) -> Any:
    return json.loads(made(metadata, rows).files[name])


def test_all_names_that_end_a_text_count() -> None:
    special = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>")
    metadata = bytes_metadata(special=special, eos_token_id=256, bos_token_id=256)
    assert config(metadata, "generation_config.json")["eos_token_id"] == [256, 258, 259, 260]


def test_end_of_turn_and_of_message_that_are_named_by_id_count() -> None:
    metadata = bytes_metadata(
        special=("<a>", "<b>", "<c>"), eos_token_id=256, eot_token_id=257, eom_token_id=258
    )
    assert config(metadata, "generation_config.json")["eos_token_id"] == [256, 257, 258]


def test_all_of_a_list_of_ends_count_as_in_files_that_ollama_made() -> None:
    special = ("<|endoftext|>", "<|user|>", "<|observation|>")  # GLM-4's
    metadata = bytes_metadata(special=special, eos_token_id=256, eos_token_ids=(256, 257, 258, -1))
    assert config(metadata, "generation_config.json")["eos_token_id"] == [256, 257, 258]
    for wrong in (256, (999,), ("<|user|>",)):
        with pytest.raises(MalformedFile, match="eos_token_ids"):
            made({**metadata, "tokenizer.ggml.eos_token_ids": wrong})


def test_the_end_of_a_part_of_an_answer_ends_no_text() -> None:
    special = ("<|return|>", "<|call|>", "<|end|>", "<|channel|>", "<|message|>", "<|start|>")
    metadata = bytes_metadata("gpt-4o", special=special, eos_token_id=256)
    assert config(metadata, "generation_config.json")["eos_token_id"] == [256, 257]
    tokenizer = loaded(metadata)
    text = "<|start|>a<|channel|>b<|message|>c<|end|>"
    assert tokenizer.decode(tokenizer.encode(text, add_special=False)) == text


def test_an_end_that_is_an_ordinary_word_ends_no_text() -> None:
    metadata = joined_metadata({"a": -1.0, "b": -2.0, "ab": -3.0})
    pieces, types = list(metadata["tokenizer.ggml.tokens"]), list(metadata["tokenizer.ggml.token_type"])
    types[2] = NORMAL
    metadata["tokenizer.ggml.token_type"] = tuple(types)
    assert "eos_token_id" not in config(metadata, "generation_config.json"), pieces[2]


def test_rows_without_a_token_are_never_drawn_and_are_no_tokens() -> None:
    metadata = bytes_metadata(special=("<|endoftext|>", "[PAD257]", "[PAD258]"), eos_token_id=256)
    metadata["tokenizer.ggml.token_type"] = (NORMAL,) * 256 + (CONTROL, UNUSED, UNUSED)
    assert config(metadata, "generation_config.json", rows=262)["suppress_tokens"] == [
        257,
        258,
        259,
        260,
        261,
    ]
    assert loaded(metadata).vocab_size == 257


def test_tokens_that_the_file_says_are_never_drawn_are_kept() -> None:
    metadata = bytes_metadata(suppress_tokens=(3, 5, 9999))
    assert config(metadata, "generation_config.json")["suppress_tokens"] == [3, 5]


@pytest.mark.parametrize(
    ("metadata", "text", "framed"),
    [
        (bytes_metadata("llama-bpe", bos_token_id=256), "!", [256, 33]),
        (bytes_metadata("llama-bpe", bos_token_id=256, add_bos_token=False), "!", [33]),
        (bytes_metadata("gpt-2", bos_token_id=256), "!", [33]),
        (bytes_metadata("gpt-2", bos_token_id=256, eos_token_id=256, add_eos_token=True), "!", [33, 256]),
        (joined_metadata({"\u2581": -1.0, "a": -2.0, "\u2581a": -3.0}), "a", [1, 261]),
        (
            joined_metadata({"\u2581": -1.0, "a": -2.0}, add_bos_token=False, add_eos_token=True),
            "a",
            [259, 260, 2],
        ),
    ],
)
def test_a_bare_prompt_is_framed_as_the_file_says(
    metadata: dict[str, Any], text: str, framed: list[int]
) -> None:
    assert loaded(metadata).encode(text, add_special=True) == framed


def test_text_that_is_written_apart_gets_its_blank_and_loses_it_again() -> None:
    tokenizer = loaded(joined_metadata({"\u2581": -1.0, "a": -2.0, "\u2581a": -3.0}))
    assert tokenizer.encode("a</s>a", add_special=False) == [261, 2, 261]
    assert tokenizer.decode([261, 259, 260]) == "a a"


@pytest.mark.parametrize(
    ("first", "merged", "pieces"),
    [
        (True, True, "_a _a"),
        (False, True, "_a _a"),
        (True, False, "_ _a _ _a _"),
        (False, False, "_a _ _a _"),
        (None, None, "_a _ _a _"),
    ],
)
def test_blanks_of_a_unigram_vocabulary_are_llama_cpps(
    first: bool | None, merged: bool | None, pieces: str
) -> None:
    """Asked of llama.cpp with a real vocabulary and these flags."""
    told = {"add_space_prefix": first, "remove_extra_whitespaces": merged}
    tokenizer = loaded(
        {
            "tokenizer.ggml.model": "t5",
            "tokenizer.ggml.tokens": ("<pad>", "</s>", "<unk>", "\u2581", "a", "\u2581a"),
            "tokenizer.ggml.token_type": (3, 3, 2, 1, 1, 1),
            "tokenizer.ggml.scores": (0.0, 0.0, 0.0, -2.0, -3.0, -1.0),
            **{f"tokenizer.ggml.{key}": value for key, value in told.items() if value is not None},
        }
    )
    by_id = {one: piece for piece, one in tokenizer.pieces.items()}
    found = [by_id[one].replace("\u2581", "_") for one in tokenizer.encode(" a  a ", add_special=False)]
    assert " ".join(found) == pieces


@pytest.mark.parametrize("merged", [True, False])
def test_a_piece_of_a_unigram_vocabulary_may_be_of_several_words(merged: bool) -> None:
    tokenizer = loaded(
        {
            "tokenizer.ggml.model": "t5",
            "tokenizer.ggml.tokens": ("<pad>", "</s>", "<unk>", "\u2581", "a", "\u2581a", "\u2581a\u2581a"),
            "tokenizer.ggml.token_type": (3, 3, 2, 1, 1, 1, 1),
            "tokenizer.ggml.scores": (0.0, 0.0, 0.0, -2.0, -3.0, -1.0, -1.5),
            "tokenizer.ggml.add_space_prefix": True,
            "tokenizer.ggml.remove_extra_whitespaces": merged,
        }
    )
    assert tokenizer.encode("a a", add_special=False) == [6]
    assert tokenizer.decode([6]) == "a a"


def test_tokens_that_a_user_defined_are_found_first_and_shown() -> None:
    metadata = bytes_metadata(special=("<|endoftext|>", "<tool>"))
    metadata["tokenizer.ggml.token_type"] = (NORMAL,) * 256 + (CONTROL, USER)
    tokenizer = loaded(metadata)
    ids = tokenizer.encode("!<tool><|endoftext|>", add_special=False)
    assert ids == [33 - 33 + byte_letters().index("!"), 257, 256]
    assert tokenizer.decode(ids) == "!<tool>"


def test_tokens_of_phi_3_take_the_blanks_behind_them() -> None:
    metadata = joined_metadata({"\u2581": -1.0, "a": -2.0, "<|user|>": -3.0})
    metadata["tokenizer.ggml.token_type"] = (*metadata["tokenizer.ggml.token_type"][:-1], CONTROL)
    plain = loaded(metadata).encode("<|user|> \n a", add_special=False)
    stripped = loaded({**metadata, "general.name": "Phi-3-mini"}).encode("<|user|> \n a", add_special=False)
    assert (len(plain), stripped) == (6, [261, 259, 260])


def test_an_ordinary_token_that_is_named_for_padding_stays_ordinary() -> None:
    found = made(bytes_metadata(padding_token_id=0))
    assert b"pad_token" not in found.files["tokenizer_config.json"]
    assert any("stays ordinary" in note for note in found.notes)


@pytest.mark.parametrize(("pre", "ids"), [("qwen2", 2), ("qwen35", 3)])
def test_text_is_composed_where_the_models_own_tokenizer_does(pre: str, ids: int) -> None:
    assert len(loaded(bytes_metadata(pre)).encode("e\u0301", add_special=False)) == ids


def test_an_old_file_is_cut_as_its_architecture_was() -> None:
    old = {**bytes_metadata(None), "general.architecture": "falcon"}
    found = made(old)
    assert found.files["tokenizer.json"] == made(bytes_metadata("falcon")).files["tokenizer.json"]
    assert any("does not name its pre-tokenizer" in note for note in found.notes)


def test_chat_templates_are_kept_with_their_names() -> None:
    one = bytes_metadata() | {"tokenizer.chat_template": "{{ 1 }}"}
    assert made(one).files["chat_template.jinja"] == b"{{ 1 }}"
    two = one | {"tokenizer.chat_templates": ("tool_use",), "tokenizer.chat_template.tool_use": "{{ 2 }}"}
    assert config(two, "tokenizer_config.json")["chat_template"] == [
        {"name": "tool_use", "template": "{{ 2 }}"},
        {"name": "default", "template": "{{ 1 }}"},
    ]


@pytest.mark.parametrize("names", [("tool_use",), ("tool_use", "rag")])
def test_chat_templates_without_a_default_are_left_out_with_a_note(names: tuple[str, ...]) -> None:
    texts = {f"tokenizer.chat_template.{name}": "{{ 1 }}" for name in names}
    found = made(bytes_metadata() | texts | {"tokenizer.chat_templates": names})
    assert "chat_template.jinja" not in found.files
    assert "chat_template" not in json.loads(found.files["tokenizer_config.json"])
    assert [note for note in found.notes if "chat templates" in note and str(names[-1]) in note]


def test_what_the_authors_sample_with_is_kept() -> None:
    metadata = bytes_metadata() | {"general.sampling.temp": 0.699999988079071, "general.sampling.top_k": 20}
    made_of_it = config(metadata, "generation_config.json")
    assert (made_of_it["temperature"], made_of_it["top_k"]) == (0.7, 20)


@pytest.mark.parametrize(
    ("said", "noted"),
    [
        ({"xtc_probability": 0.5, "mirostat": 2}, ["mirostat"]),
        ({"xtc_probability": 0.0, "mirostat": 0, "penalty_last_n": 64}, []),
        ({"penalty_repeat": 1.5, "penalty_last_n": 64}, ["penalty_last_n"]),
        ({"penalty_repeat": 1.5, "penalty_last_n": -1}, []),
    ],
)
def test_a_sampler_of_the_authors_that_is_not_here_is_noted(said: dict[str, Any], noted: list[str]) -> None:
    metadata = bytes_metadata() | {f"general.sampling.{name}": value for name, value in said.items()}
    before = made(bytes_metadata()).notes
    assert list(made(metadata).notes) == [
        *before,
        *(f"general.sampling.{name} is not applied" for name in noted),
    ]


def test_the_models_own_tokenizer_in_the_file_goes_first() -> None:
    metadata = bytes_metadata("gpt-2")
    own = json.loads(made(bytes_metadata("llama-bpe")).files["tokenizer.json"])
    metadata["tokenizer.huggingface.json"] = json.dumps(own)
    assert json.loads(made(metadata).files["tokenizer.json"]) == own


@pytest.mark.parametrize(
    "own", ["{", "[]", "{}", '{"model": {"vocab": {"a": 0}}}', '{"model": {"vocab": [[1]]}}', "[" * 99]
)
def test_another_tokenizer_in_the_file_is_not_taken(own: str) -> None:
    metadata = bytes_metadata() | {"tokenizer.huggingface.json": own}
    found = made(metadata)
    assert found.files["tokenizer.json"] == made(bytes_metadata()).files["tokenizer.json"]
    assert found.notes


def test_the_same_metadata_give_the_same_bytes() -> None:
    assert made(bytes_metadata()).files == made(bytes_metadata()).files


def test_an_empty_token_gets_a_name() -> None:
    assert loaded(bytes_metadata(special=("",))).id_to_piece(256) == "[EMPTY_256]"
