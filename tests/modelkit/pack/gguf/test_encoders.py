"""Encoders written as GGUF: what is imported of the file has the same tensors, tokens and vectors. llama.cpp
gives them, too, where MODELKIT_LLAMA_CPP names it. What a file cannot say is refused or told.
"""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import modelkit
from modelkit.errors import UnsupportedSource
from modelkit.pack.gguf.export import ExportedGguf
from modelkit.store.store import Store
from tests.support.embedding_folders import write_modules
from tests.support.encoder_folders import CLS, MARKS, SEP, WORDS, write_encoder
from tests.support.gguf_round import package_numbers
from tests.support.llama_cpp_check import ask, interpreter
from tests.support.tiny import write_model

TEXTS = ["Once upon a time there was a cat", "rain cats", "tea " * 20]
GEMMA = {"query_pre_attn_scalar": 24}
KINDS: dict[str, dict[str, Any]] = {
    "bert": {},
    "distilbert": {},
    "roberta": {},
    "xlm_roberta": {"pad_token_id": 1},
    "jina_bert_v2": {},
    "jina_embeddings_v3": {"pad_token_id": 1},
    "nomic_bert": {},
    "modernbert": {},
    "embedding_gemma": GEMMA,
    "eurobert": {},
    "t5_encoder": {"relative_attention_max_distance": 128},
    "umt5_encoder": {"relative_attention_max_distance": 128},
    "llama_both_ways": {},
    "qwen2_both_ways": {},
    "qwen3_both_ways": {},
}


def exported(folder: Path) -> ExportedGguf:
    """A package of folder/model, as folder/it.gguf."""
    modelkit.create(modelkit.Modelfile.parse(f"FROM {folder / 'model'}"), name="it", home=folder)
    return modelkit.export_gguf("it", folder / "it.gguf", home=folder)


def again(folder: Path) -> None:
    modelkit.create(modelkit.Modelfile.parse(f"FROM {folder / 'it.gguf'}"), name="again", home=folder)


def both(folder: Path, texts: Sequence[str] = TEXTS) -> tuple[list[Any], list[Any]]:
    """(ids, vectors, pooling) of the package and of what is imported of its file."""
    found: list[list[Any]] = []
    for name in ("it", "again"):
        with modelkit.load(name, home=folder) as model:
            ids = [model.encode(text) for text in texts]
            found.append([ids, model.embed(texts, normalize=False).vectors, model.pooling])
    return found[0], found[1]


def dense(folder: Path, *sizes: int, activation: str = "linear.Identity") -> None:
    """Modules behind pooling, of these sizes in and out."""
    kinds = ("Transformer", "Pooling", *["Dense"] * (len(sizes) - 1))
    write_modules(folder, {"pooling_mode_mean_tokens": True}, kinds)
    for place, (inputs, outputs) in enumerate(pairwise(sizes), 2):
        module = folder / f"{place}_Dense"
        module.mkdir()
        said = {"in_features": inputs, "out_features": outputs, "bias": False}
        said["activation_function"] = f"torch.nn.modules.{activation}"
        (module / "config.json").write_text(json.dumps(said), encoding="utf-8")
        weight = np.random.default_rng(place).standard_normal((outputs, inputs)).astype(np.float16)
        save_file({"linear.weight": weight}, module / "model.safetensors")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_imported_again_has_the_same_vectors(kind: str, tmp_path: Path) -> None:
    write_encoder(tmp_path / "model", kind, pool="first", **KINDS[kind])
    assert not any("ends of a text" in note for note in exported(tmp_path).notes)
    again(tmp_path)
    first, second = both(tmp_path)
    assert first[0] == second[0]
    np.testing.assert_allclose(first[1], second[1], rtol=0, atol=1e-6 * first[1].std())
    assert first[2] == second[2] == "first token, from 1_Pooling/config.json"


@pytest.mark.parametrize("kind", ["bert", "distilbert", "modernbert"])
def test_the_tensors_come_back(kind: str, tmp_path: Path) -> None:
    write_encoder(tmp_path / "model", kind)
    exported(tmp_path)
    again(tmp_path)
    with Store(tmp_path).hold("it") as one, Store(tmp_path).hold("again") as other:
        ours, theirs = package_numbers(one), package_numbers(other)
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)


@pytest.mark.parametrize("kind", [*KINDS, "unigram", "bytes"])
def test_llama_cpp_gives_the_same_vectors(kind: str, tmp_path: Path) -> None:
    if interpreter() is None:
        pytest.skip("MODELKIT_LLAMA_CPP names no Python with llama-cpp-python")
    if kind == "nomic_bert":
        pytest.skip("llama.cpp does not load heads of another size than the hidden state's share")
    name = {"unigram": "xlm_roberta", "bytes": "roberta"}.get(kind, kind)
    write_encoder(tmp_path / "model", name, **KINDS[name])
    if kind in _WRITERS:
        _WRITERS[kind](tmp_path / "model")
    exported(tmp_path)
    theirs = ask(tmp_path / "it.gguf", texts=TEXTS)
    with modelkit.load("it", home=tmp_path) as model:
        assert [list(model.encode(text)) for text in TEXTS] == theirs["ids"]
        ours = model.embed(TEXTS, normalize=False).vectors
    # It looks gelu up in a table of half floats.
    assert np.abs(ours - np.array(theirs["vectors"])).max() < 1e-2 * ours.std()


def _bytes(folder: Path) -> None:
    """Byte-level pieces between marks, as RoBERTa's."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())[:150]
    pieces = {piece: place for place, piece in enumerate((*MARKS, *letters))}
    tokenizer = Tokenizer(models.BPE(pieces, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.RobertaProcessing(("[SEP]", SEP), ("[CLS]", CLS))
    tokenizer.add_special_tokens([*MARKS])
    tokenizer.save(str(folder / "tokenizer.json"))


def _unigram(folder: Path) -> None:
    """Pieces with scores between marks, as XLM-RoBERTa's."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

    words = [f"\u2581{word}" for word in WORDS if not word.startswith("##")]
    letters = ["\u2581", *map(chr, range(33, 127))]
    scores = (
        [(mark, 0.0) for mark in MARKS] + [(one, -2.0) for one in words] + [(one, -9.0) for one in letters]
    )
    tokenizer = Tokenizer(models.Unigram(scores, unk_id=1))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.RobertaProcessing(("[SEP]", SEP), ("[CLS]", CLS))
    tokenizer.add_special_tokens([*MARKS])
    tokenizer.save(str(folder / "tokenizer.json"))


_WRITERS = {"bytes": _bytes, "unigram": _unigram}


@pytest.mark.parametrize("kind", _WRITERS)
def test_frames_of_other_tokenizers_come_back(kind: str, tmp_path: Path) -> None:
    write_encoder(tmp_path / "model", "roberta")
    _WRITERS[kind](tmp_path / "model")
    exported(tmp_path)
    again(tmp_path)
    first, second = both(tmp_path, ["once upon", " a cat  "])
    assert first[0] == second[0]
    assert all(ids[0] == CLS and ids[-1] == SEP for ids in second[0])


def test_rows_of_positions_that_no_text_begins_at_are_told(tmp_path: Path) -> None:
    write_encoder(tmp_path / "model", "roberta")
    assert any("first 2 rows of the table of positions" in note for note in exported(tmp_path).notes)


def test_dense_modules_of_embedding_gemma_come_back(tmp_path: Path) -> None:
    write_encoder(tmp_path / "model", "embedding_gemma", **GEMMA)
    dense(tmp_path / "model", 64, 96, 64)
    exported(tmp_path)
    again(tmp_path)
    first, second = both(tmp_path)
    np.testing.assert_allclose(first[1], second[1], rtol=0, atol=1e-6 * first[1].std())
    assert second[2] == "mean of all tokens, from 1_Pooling/config.json; dense to 96, 64"


@pytest.mark.parametrize(
    ("kind", "sizes", "activation", "said"),
    [
        ("bert", (64, 32), "linear.Identity", r"2_Dense.*no place for Dense modules"),
        ("embedding_gemma", (64, 32), "linear.Identity", "two Dense modules"),
        ("embedding_gemma", (64, 96, 64), "activation.Tanh", "without bias and activation"),
    ],
)
def test_dense_modules_that_have_no_place_are_refused(
    kind: str, sizes: tuple[int, ...], activation: str, said: str, tmp_path: Path
) -> None:
    write_encoder(tmp_path / "model", kind, **(GEMMA if kind == "embedding_gemma" else {}))
    dense(tmp_path / "model", *sizes, activation=activation)
    with pytest.raises(UnsupportedSource, match=said):
        exported(tmp_path)


@pytest.mark.parametrize(
    ("kind", "changes", "pool", "said"),
    [
        ("bert", {}, "max", "greatest of all tokens, which a GGUF file cannot say"),
        ("bert", {"hidden_act": "relu"}, "mean", "hidden_act is 'relu'"),
        ("distilbert", {"activation": "relu"}, "mean", "activation is 'relu'"),
        ("modernbert", {"hidden_activation": "relu"}, "mean", "hidden_activation is 'relu'"),
        (
            "modernbert_biases",
            {},
            "mean",
            r"norm\.bias` \[64\].* has no place in a GGUF file of a modern-bert",
        ),
        ("embedding_gemma", {}, "mean", "query_pre_attn_scalar is not 24"),
        ("mpnet", {}, "mean", "mpnet, for which no GGUF architecture is known"),
    ],
)
def test_what_a_file_cannot_say_is_refused(
    kind: str, changes: dict[str, Any], pool: str, said: str, tmp_path: Path
) -> None:
    write_encoder(tmp_path / "model", kind, pool=pool, **changes)
    with pytest.raises(UnsupportedSource, match=said):
        exported(tmp_path)


def test_heads_for_other_tasks_are_left_out(tmp_path: Path) -> None:
    beside = {"bert.pooler.dense.weight": np.zeros((64, 64), np.float32)}
    write_encoder(tmp_path / "model", prefix="bert.", beside=beside)
    assert any(note.startswith("bert.pooler.dense.weight left out") for note in exported(tmp_path).notes)
    again(tmp_path)
    first, second = both(tmp_path)
    np.testing.assert_array_equal(first[1], second[1])


def test_what_stands_before_texts_and_where_they_are_cut_is_told(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "model")
    said = {"prompts": {"query": "search: "}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(said), encoding="utf-8")
    write_modules(folder, {"pooling_mode_mean_tokens": True, "include_prompt": False})
    limits = {"max_seq_length": 40, "do_lower_case": True}
    (folder / "sentence_bert_config.json").write_text(json.dumps(limits), encoding="utf-8")
    notes = " ".join(exported(tmp_path).notes)
    said = ("before texts", "search: ", "left out of vectors", "cut at 40 tokens", "small letters")
    assert all(part in notes for part in said)


def test_windows_that_every_layer_has_are_told(tmp_path: Path) -> None:
    write_encoder(tmp_path / "model", "modernbert", layer_types=["sliding_attention"] * 4)
    assert any("fails where every layer has a window" in note for note in exported(tmp_path).notes)
    again(tmp_path)
    first, second = both(tmp_path)
    np.testing.assert_array_equal(first[1], second[1])


def test_a_decoder_keeps_how_it_is_pooled(tmp_path: Path) -> None:
    write_modules(write_model(tmp_path / "model"), {"pooling_mode_cls_token": True})
    exported(tmp_path)
    again(tmp_path)
    with modelkit.load("again", home=tmp_path) as model:
        assert model.pooling == "first token, from 1_Pooling/config.json"


def test_a_tokenizer_of_words_that_llama_cpp_cuts_otherwise_is_refused(tmp_path: Path) -> None:
    file = write_encoder(tmp_path / "model") / "tokenizer_config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "tokenize_chinese_chars": False}))
    with pytest.raises(UnsupportedSource, match="WordPiece"):
        exported(tmp_path)
