"""GGUF in, GGUF out: what was imported is written as it was, and what was written is imported."""

from pathlib import Path

import numpy as np
import pytest

import modelkit
from modelkit.modelfile import Modelfile
from modelkit.source.gguf.file import GgufFile, read_gguf
from modelkit.store.store import Store
from tests.support import gguf_llama
from tests.support.blocks import PACKED
from tests.support.checkpoints import write_checkpoint
from tests.support.gguf_round import exported, package_numbers, values
from tests.support.tiny import CONFIG, TEMPLATE, llama_shapes, write_tokenizer

OTHERS = {"tq1_0": "q2_0", "tq2_0": "q2_0"}
"""Types that packages hold as codes of two bits, as which they are written."""


def imported(source: Path, home: Path, name: str = "it") -> Store:
    modelkit.create(Modelfile.parse(f"FROM {source}"), name=name, home=home)
    return Store(home)


def raw(file: GgufFile, name: str) -> bytes:
    tensor = file.tensors[name]
    with tensor.path.open("rb") as opened:
        opened.seek(tensor.start)
        return opened.read(tensor.nbytes)


@pytest.mark.parametrize("types", [[kind.name for kind in PACKED[start::3]] for start in range(3)])
def test_what_was_imported_is_written_as_it_was(types: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(gguf_llama.llama([*types, "f16", "bf16", "f32"]))
    with imported(tmp_path / "a.gguf", tmp_path / "home").hold("it") as package:
        planned = exported(package, tmp_path / "b.gguf")
    before, after = read_gguf(tmp_path / "a.gguf"), read_gguf(tmp_path / "b.gguf")
    assert all(one.choice.exact for one in planned.written)
    assert before.tensors.keys() == after.tensors.keys()
    for name, tensor in before.tensors.items():
        kind = tensor.type.name
        assert after.tensors[name].type.name == OTHERS.get(kind, kind), name
        if kind in OTHERS:
            np.testing.assert_array_equal(values(before, name), values(after, name), err_msg=name)
        else:
            assert raw(before, name) == raw(after, name), (name, kind)


def test_the_vocabulary_of_an_imported_file_is_written_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(gguf_llama.llama(["q4_0"]))
    with imported(tmp_path / "a.gguf", tmp_path / "home").hold("it") as package:
        exported(package, tmp_path / "b.gguf")
    before, after = (read_gguf(tmp_path / f"{name}.gguf").metadata for name in "ab")
    for key in ("model", "tokens", "token_type", "bos_token_id", "eos_token_id"):
        assert after[f"tokenizer.ggml.{key}"] == before[f"tokenizer.ggml.{key}"], key


@pytest.mark.parametrize("quantize", [None, "q4", "q5g128", "mxfp4", "nvfp4"])
def test_what_was_written_is_imported_with_the_same_numbers_and_tokens(
    quantize: str | None, tmp_path: Path
) -> None:
    config = {**CONFIG, "hidden_size": 128, "num_attention_heads": 4, "tie_word_embeddings": False}
    write_checkpoint(tmp_path / "model", config, llama_shapes(config))
    write_tokenizer(tmp_path / "model")
    (tmp_path / "model" / "chat_template.jinja").write_text(TEMPLATE)
    modelkit.create(
        Modelfile.parse(f"FROM {tmp_path / 'model'}"), name="a", home=tmp_path / "home", quantize=quantize
    )
    with Store(tmp_path / "home").hold("a") as package:
        planned = exported(package, tmp_path / "a.gguf")
        wanted = package_numbers(package)
    with imported(tmp_path / "a.gguf", tmp_path / "home", "b").hold("b") as package:
        found = package_numbers(package)
    rounded = {source for one in planned.written if not one.choice.exact for source in one.origin.tensors}
    assert found.keys() == wanted.keys()
    for name in wanted.keys() - rounded:
        np.testing.assert_array_equal(found[name], wanted[name], err_msg=name)
    answers: list[object] = []
    for name in ("a", "b"):
        with modelkit.load(name, home=tmp_path / "home") as model:
            ids = model.encode("It's 3<end>!")
            answers.append((ids, None if rounded else model.logits(ids).tolist()))
    assert answers[0] == answers[1]
