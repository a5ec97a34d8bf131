"""`Model.embed`: the reference's vectors, alone and side by side; what files say; limits; refusals."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import modelkit
from modelkit.async_model import AsyncModel
from modelkit.errors import PromptTooLong, RequestError
from modelkit.loaded.embedding import grouped
from modelkit.loaded.long_work import LongWork
from modelkit.settings import settings_at
from modelkit.showing.facts import facts_of
from modelkit.store import Store
from runtime.cpu import native
from tests.support.embedding_folders import FLAGS, reference, write_modules, write_reference
from tests.support.tiny import write_model

CAUSAL = {"architectures": ["Qwen3ForCausalLM"], "tie_word_embeddings": True}
TEXTS = ["", "Once upon a time", "a", "there was a small cat that liked tea " * 2, "rain"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[modelkit.Model]:
    with modelkit.load(write_model(tmp_path_factory.mktemp("embed") / "model"), num_batch=48) as loaded:
        yield loaded


@pytest.mark.parametrize("pool", FLAGS)
@pytest.mark.parametrize("num_batch", [512, 16])
def test_a_decoders_vectors_are_the_references(tmp_path: Path, pool: str, num_batch: int) -> None:
    record = reference("qwen3")
    folder = write_reference(tmp_path / "m", "qwen3", pool=pool, prefix="model.", **CAUSAL)
    with modelkit.load(folder, num_batch=num_batch) as model:
        found = model.embed(record["texts"], normalize=False)
        assert model.pooling.endswith("from 1_Pooling/config.json")
    wanted = np.array(record["vectors"][pool])
    assert found.pooling == pool
    assert np.abs(found.vectors - wanted).max() < 1e-5 * np.ptp(wanted)


@pytest.mark.skipif(native.kernels is None, reason=f"no kernels: {native.status.reason}")
@pytest.mark.parametrize("pool", FLAGS)
def test_a_vector_is_the_same_bits_however_its_text_is_cut(tmp_path: Path, pool: str) -> None:
    folder = write_reference(tmp_path / "m", "qwen3", pool=pool, prefix="model.", **CAUSAL)
    ids, found = tuple(np.random.default_rng(1).integers(3, 60, 63).tolist()), list[np.ndarray]()
    for num_batch in (512, 16, 7, 1):
        with modelkit.load(folder, num_batch=num_batch) as model:
            found.append(model.embed([ids], normalize=False).vectors)
            found.append(model.embed([ids[:9], ids], normalize=False).vectors[1:])
    assert all(np.array_equal(one, found[0]) for one in found)


def test_side_by_side_as_alone(model: modelkit.Model) -> None:
    together = model.embed(TEXTS)
    for place, text in enumerate(TEXTS):
        alone = model.embed(text)
        assert np.abs(alone.vectors[0] - together.vectors[place]).max() < 2e-6
        assert alone.tokens == together.tokens[place : place + 1]
    assert together.vectors.dtype == np.float32
    lengths = np.linalg.norm(together.vectors, axis=1)
    assert lengths == pytest.approx([0, 1, 1, 1, 1], abs=1e-6)  # the first has no tokens


def test_dimensions_are_cut_and_then_normed(model: modelkit.Model) -> None:
    whole = model.embed("rain", normalize=False).vectors
    found = model.embed("rain", dimensions=5).vectors
    assert np.allclose(found, whole[:, :5] / np.linalg.norm(whole[:, :5]), atol=1e-6)
    with pytest.raises(RequestError, match="dimensions is 65"):
        model.embed("rain", dimensions=65)


def test_too_long(model: modelkit.Model) -> None:
    found = model.embed(["a" * 300, "b"])
    assert (found.tokens, found.dropped) == ((256, 1), (44, 0))
    assert np.abs(found.vectors[0] - model.embed("a" * 256).vectors[0]).max() < 2e-6
    with pytest.raises(PromptTooLong, match=r"texts\[1\] has 300 tokens") as raised:
        model.embed(["b", "a" * 300], truncate=False)
    assert (raised.value.prompt_tokens, raised.value.context_tokens) == (300, 256)


def test_what_a_caller_may_hand_in(model: modelkit.Model) -> None:
    with pytest.raises(RequestError, match=r"^texts\[1\] has the token id 99999 at place 1"):
        model.embed(["rain", [1, 99999]])
    ids = model.encode("rain")
    assert model.embed([]).vectors.shape == (0, 64)
    assert len(model.embed(ids)) == 1
    both = model.embed([ids, "rain"]).vectors
    assert np.abs(both[0] - both[1]).max() < 2e-6
    for odd in (5, None, [None], [[-1]], [[99999]], ["a", 5], [1.5]):
        with pytest.raises(RequestError):
            model.embed(odd)  # pyright: ignore[reportArgumentType]


def test_without_stopping_answers(model: modelkit.Model) -> None:
    """An answer that runs goes on while texts are read, and says the same."""
    alone = model.generate("Once", raw=True, temperature=0, num_predict=150)
    with model.generate("Once", raw=True, temperature=0, num_predict=150, stream=True) as stream:
        next(iter(stream))
        before = model.embed(TEXTS).vectors
        for _ in stream:
            pass
    assert stream.result.ids == alone.ids
    assert np.abs(before - model.embed(TEXTS).vectors).max() < 2e-6
    assert all(entry.users == 0 for entry in model.prefixes())


def test_many_callers_at_once(model: modelkit.Model) -> None:
    wanted = model.embed(TEXTS).vectors
    found: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda: found.append(model.embed(TEXTS).vectors)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 6
    assert all(np.abs(one - wanted).max() < 2e-6 for one in found)


def test_async(model: modelkit.Model) -> None:
    found = asyncio.run(AsyncModel(model).embed("rain", dimensions=3))
    assert np.array_equal(found.vectors, model.embed("rain", dimensions=3).vectors)


def test_the_frame_stays_where_a_text_is_cut(tmp_path: Path) -> None:
    """The last token's vector is that of the end token, however long the text is."""
    from tokenizers import Tokenizer, processors

    folder = write_model(tmp_path / "m")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A <end>", special_tokens=[("<end>", 256)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 8, "do_lower_case": true}')
    with modelkit.load(folder) as model:
        found = model.embed("ABCdefghijkl")
        ids = [*model.encode("abcdefg", add_special=False), 256]
        assert (found.tokens, found.dropped) == ((8,), (5,))
        assert np.abs(found.vectors - model.embed([ids]).vectors).max() < 2e-6


@pytest.mark.parametrize(
    ("pooling", "kinds", "said"),
    [
        ({FLAGS["mean"]: True, FLAGS["last"]: True}, ("Transformer", "Pooling"), "pooling_mode_lasttoken"),
        ({"pooling_mode": "attention"}, ("Transformer", "Pooling"), "attention"),
        ({}, ("Transformer", "Pooling"), "asks for nothing"),
        ({"pooling_mode": ["mean", "cls"]}, ("Transformer", "Pooling"), "asks for"),
        ({FLAGS["mean"]: 1}, ("Transformer", "Pooling"), "asks for"),
        ({FLAGS["mean"]: True}, ("Transformer", "Pooling", "Dense"), "Dense"),
        ({FLAGS["mean"]: True}, ("Transformer", "Other", "Pooling"), "Other"),
    ],
)
def test_what_is_not_computed_is_refused(
    tmp_path: Path, pooling: dict[str, object], kinds: tuple[str, ...], said: str
) -> None:
    folder = write_model(tmp_path / "m")
    write_modules(folder, pooling, kinds)
    with modelkit.load(folder) as model:
        with pytest.raises(RequestError, match=f"no embeddings.*{said}"):
            model.embed("rain")
        assert model.pooling.startswith("none: ")
        assert model.generate("Once", raw=True, num_predict=2).ids


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("modules.json", "{}"),
        ("modules.json", '[{"type": 5, "path": ""}]'),
        ("modules.json", "[" * 400 + "]" * 400),
        ("modules.json", '[{"type": "a.Pooling", "path": "../elsewhere"}]'),
        ("modules.json", '[{"type": "a.Pooling", "path": "2_Pooling"}]'),
        ("1_Pooling/config.json", "[1]"),
        ("1_Pooling/config.json", '{"pooling_mode": "mean", "x": "' + "a" * 70_000 + '"}'),
        ("sentence_bert_config.json", '{"max_seq_length": -1}'),
        ("sentence_bert_config.json", '{"do_lower_case": "yes"}'),
    ],
)
def test_odd_files_make_no_embeddings(tmp_path: Path, file: str, text: str) -> None:
    folder = write_model(tmp_path / "m")
    write_modules(folder, {FLAGS["mean"]: True})
    (folder / file).write_text(text, encoding="utf-8")
    with modelkit.load(folder) as model, pytest.raises(RequestError, match="no embeddings"):
        model.embed("rain")


def _facts(name: str) -> dict[str, Any]:
    store = Store(settings_at(None).home)
    return facts_of(store, store.resolve(name))


def test_a_package_keeps_what_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELKIT_HOME", str(tmp_path / "home"))
    folder = write_model(tmp_path / "m")
    write_modules(folder, {"pooling_mode": "mean"})
    (tmp_path / "Modelfile").write_text(f"FROM {folder}\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="kept")
    with modelkit.load("kept") as model, modelkit.load(folder) as plain:
        assert model.pooling == "mean of all tokens, from 1_Pooling/config.json"
        assert np.array_equal(model.embed("rain").vectors, plain.embed("rain").vectors)
    assert _facts("kept")["embeddings"] == "mean of all tokens, from 1_Pooling/config.json"
    (tmp_path / "Again").write_text("FROM kept\n", encoding="utf-8")
    modelkit.create(tmp_path / "Again", name="again")
    files = {layer["path"] for layer in _facts("again")["layers"]}
    assert {"modules.json", "1_Pooling/config.json"} <= files
    modelkit.export("again", tmp_path / "out")
    assert json.loads((tmp_path / "out" / "1_Pooling" / "config.json").read_text())["pooling_mode"] == "mean"


@pytest.mark.parametrize("lengths", [[], [3, 9, 0, 2, 2, 0, 4], [1] * 20, [50]])
def test_groups_hold_all_and_fit(lengths: list[int]) -> None:
    width = 8
    groups = [*grouped(lengths, lambda: width)]
    assert sorted(place for group in groups for place in group) == list(range(len(lengths)))
    for group in groups:
        sizes = [lengths[place] for place in group]
        assert len(group) == 1 or len(group) * max(sizes) <= width
        assert min(sizes) > 0 or max(sizes) == 0


def test_pieces_beside_answers_move_no_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, ids = ["a" * 90, "rain", "bc" * 9, "snow", "d" * 33], [*range(1, 70)]
    with modelkit.load(write_model(tmp_path / "m")) as model:
        vectors, logits = model.embed(texts).vectors, model.logits(ids)
        read = list[int]()
        monkeypatch.setattr(LongWork, "allowed", lambda _, most: read.append(most) or min(7, most))
        assert np.array_equal(model.embed(texts).vectors, vectors)
        assert np.array_equal(model.logits(ids), logits)
        assert len(read) > 30
