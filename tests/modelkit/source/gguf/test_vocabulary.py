import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from modelkit.errors import MalformedFile, UnsupportedSource
from modelkit.source.gguf.vocabulary.splitting import SPLITTINGS
from tests.support.gguf_vocabularies import (
    CONTROL,
    FOLDER,
    NORMAL,
    UNUSED,
    USER,
    byte_letters,
    bytes_metadata,
    joined_metadata,
    llama_cpp_joins,
    loaded,
    made,
    wrong_vectors,
)

SHARED = Path(__file__).resolve().parents[5] / "shared" / "data" / "tokenizers"
VECTORS = sorted(Path(os.environ.get(FOLDER, "/nowhere")).glob("ggml-vocab-*.gguf.inp"))
TEXTS = (
    "Hello, World! It's 12345678 o'clock; WE'LL see camelCase HTTPServer x1y22z333.",
    "  two  blanks\n\n\nand\tlines \r\n end   ",
    "d\u00e9j\u00e0 vu e\u0301t\u00e9 \u4f60\u597d\u4e16\u754c12\u3002"
    " \u3053\u3093\u306b\u3061\u306f \ud55c\uad6d\uc5b4 \u0e20\u0e32\u0e29\u0e32"
    " \U0001f600\U0001f3fd <sentinel:3> IMGIMGABZ",
)


def config(metadata: dict[str, Any], name: str, rows: int | None = None) -> Any:
    return json.loads(made(metadata, rows).files[name])


@pytest.mark.parametrize("pre", SPLITTINGS)
def test_every_way_of_cutting_is_one_that_the_library_takes_and_loses_nothing(pre: str) -> None:
    metadata = bytes_metadata(pre)
    if SPLITTINGS[pre].raw:
        metadata = joined_metadata({"\u2581": 0.0}, pre=pre, merges=("< s",))
        metadata["tokenizer.ggml.model"] = "gpt2"
        metadata["tokenizer.ggml.merges"] = ()
        pieces = metadata["tokenizer.ggml.tokens"]
        metadata["tokenizer.ggml.tokens"] = (*pieces, *sorted(set("".join(TEXTS)) - {" ", *pieces}))
        added = len(metadata["tokenizer.ggml.tokens"]) - len(pieces)
        metadata["tokenizer.ggml.token_type"] += (NORMAL,) * added
        metadata["tokenizer.ggml.scores"] += (0.0,) * added
    tokenizer = loaded(metadata)
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special=False)
        expected = text.replace("e\u0301", "\u00e9") if SPLITTINGS[pre].nfc else text
        assert tokenizer.decode(ids) == expected


# (pre-tokenizer, text, its parts): what tells each rule from its neighbours.
CUTS = [
    ("gpt-2", "I'LL 12345 it's", "I|'|LL| 12345| it|'s"),
    ("starcoder", "a 12", "a| |1|2"),
    ("falcon", "x 12345!", "x| |123|45|!"),
    ("llama-bpe", "I'LL 12345x\n\n y", "I|'LL| |123|45|x|\n\n| y"),
    ("qwen2", "12 'Re", "1|2| '|Re"),
    ("qwen35", "e\u0301t a", "e\u0301t| a"),
    ("ufakzeka", "it's", "it|'s"),
    ("minicpm5", "12345", "123|45"),
    ("tekken", "camelCase12 don't", "camel|Case|1|2| don|'t"),
    ("gpt-4o", "camelCase don't 12345", "camel|Case| don't| |123|45"),
    ("tiny_aya", "1234567", "1|234|567"),
    ("afmoe", "1234567 ab", "1|234|567| ab"),
    ("superbpe", "1234567 ab", "1|234|567| ab"),
    ("kimi-k2", "ab\u4f60\u597dcd", "ab|\u4f60\u597d|cd"),
    ("deepseek-v3", "a12345\u4f60\u597d!b", "a|123|45|\u4f60\u597d|!b"),
    ("deepseek-coder", "ab 12\n", "ab| |1|2|\n"),
    ("deepseek-llm", "ab 12\n", "ab| |12|\n"),
    ("bloom", "ab, cd", "ab|,| cd"),
    ("viking", "ab12", "ab|1|2"),
    ("jais-2", "a     b", "a|    | b"),
    ("laguna", "a\n\nb", "a|\n\n|b"),
    ("exaone-moe", "ab cd 1", "ab cd| |1"),
    ("chameleon", "IMGIMGABZ x", "IMGIMGABZ| x"),
    ("spark2_5", "a!\n12", "a|!|\n|1|2"),
]


@pytest.mark.parametrize(("pre", "text", "parts"), CUTS)
def test_a_text_is_cut_as_the_model_cuts_it(pre: str, text: str, parts: str) -> None:
    """Every two letters are merged as long as both are in one part, so what stays apart was cut."""
    import tokenizers

    letters = sorted(set(tokenizers.Tokenizer.from_str(cutter(pre)).pre_tokenizer.pre_tokenize_str(text)))
    spans = sorted(span for _, span in letters)
    assert [text[start:stop] for start, stop in spans] == parts.split("|")


def cutter(pre: str) -> str:
    return made(bytes_metadata(pre)).files["tokenizer.json"].decode()


@pytest.mark.parametrize("name", ["gpt-2", "llama-spm"])
def test_ids_are_those_of_the_tokenizer_that_the_metadata_were_made_from(name: str) -> None:
    if not (SHARED / name / "tokenizer.json").exists():
        pytest.skip(f"the tokenizers of real models are not at {SHARED}")
    document = json.loads((SHARED / name / "tokenizer.json").read_text(encoding="utf-8"))
    vocab = document["model"]["vocab"]
    pieces = sorted(vocab, key=lambda piece: vocab[piece])
    merges = [merge if isinstance(merge, list) else merge.split(" ") for merge in document["model"]["merges"]]
    special = {token["content"] for token in document["added_tokens"]}
    metadata: dict[str, Any] = {
        "tokenizer.ggml.model": "gpt2" if name == "gpt-2" else "llama",
        "tokenizer.ggml.pre": name,
        "tokenizer.ggml.tokens": tuple(pieces),
        "tokenizer.ggml.token_type": tuple(CONTROL if piece in special else NORMAL for piece in pieces),
    }
    if name == "gpt-2":
        metadata["tokenizer.ggml.merges"] = tuple(" ".join(merge) for merge in merges)
    else:
        ranks = {"".join(merge): float(-rank) for rank, merge in reversed(list(enumerate(merges)))}
        metadata["tokenizer.ggml.scores"] = tuple(ranks.get(piece, -1e6) for piece in pieces)
    tokenizer = loaded(metadata)
    for case in json.loads((SHARED / name / "cases.json").read_text(encoding="utf-8")):
        assert tokenizer.encode(case["text"], add_special=False) == case["ids"], case["text"]


@pytest.mark.parametrize("path", VECTORS or [None])
def test_ids_are_those_of_llama_cpps_own_vectors(path: Path | None) -> None:
    if path is None:
        pytest.skip(f"{FOLDER} names no folder with llama.cpp's vocabularies")
    count, wrong = wrong_vectors(path.with_suffix(""))
    assert count
    assert not wrong


def _random_pieces(rng: random.Random) -> dict[str, float]:
    """Single letters, and joins of earlier pieces; no two scores are equal, as in a trained vocabulary."""
    pieces = ["\u2581", *"abcde\u00e9\u4f60"]
    while len(pieces) < 60:
        joined = rng.choice(pieces) + rng.choice(pieces)
        if len(joined) <= 7 and joined not in pieces:
            pieces.append(joined)
    scores = rng.sample(range(1, 1000), len(pieces))
    return {piece: -float(score) for piece, score in zip(pieces, scores, strict=True)}


@pytest.mark.parametrize("seed", range(8))
def test_merges_made_of_scores_join_what_llama_cpps_loop_joins(seed: int) -> None:
    rng = random.Random(seed)
    metadata = joined_metadata(_random_pieces(rng), add_space_prefix=bool(seed % 2))
    tokenizer = loaded(metadata)
    for _ in range(150):
        text = "".join(rng.choice("aabbccdde\u00e9\u4f60 \nx\U0001f600") for _ in range(rng.randrange(1, 30)))
        assert tokenizer.encode(text, add_special=False) == llama_cpp_joins(text, metadata), text


def test_a_merge_is_parted_at_the_first_blank_after_its_first_letter() -> None:
    metadata = joined_metadata({"\u2581": 0.0, " a": 0.0, "b": 0.0, " ab": 0.0}, merges=(" a b",))
    metadata["tokenizer.ggml.model"] = "gemma4"
    document = json.loads(made(metadata).files["tokenizer.json"])
    assert document["model"]["merges"] == [[" a", "b"]]


def test_all_names_that_end_a_text_count() -> None:
    special = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>")
    metadata = bytes_metadata(special=special, eos_token_id=256, bos_token_id=256)
    assert config(metadata, "generation_config.json")["eos_token_id"] == [256, 258, 259, 260]


def test_end_of_turn_and_of_message_that_are_named_by_id_count() -> None:
    metadata = bytes_metadata(
        special=("<a>", "<b>", "<c>"), eos_token_id=256, eot_token_id=257, eom_token_id=258
    )
    assert config(metadata, "generation_config.json")["eos_token_id"] == [256, 257, 258]


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
        ({"xtc_probability": 0.5, "mirostat": 2}, ["mirostat", "xtc_probability"]),
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


def test_an_empty_token_gets_a_name() -> None:
    assert loaded(bytes_metadata(special=("",))).id_to_piece(256) == "[EMPTY_256]"
