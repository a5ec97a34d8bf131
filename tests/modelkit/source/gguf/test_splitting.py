"""Text is cut and joined into ids as the model's own tokenizer, and llama.cpp, do it."""

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from modelkit.source.gguf.vocabulary.splitting import SPLITTINGS
from tests.support.gguf_vocabularies import (
    CONTROL,
    FOLDER,
    NORMAL,
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
