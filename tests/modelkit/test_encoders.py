"""Encoders for embeddings the whole way: folder and package, vectors, what files say, who else is refused."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import modelkit
from modelkit.cli.main import cli
from modelkit.errors import LoadError, ModelkitError, PlanError, RequestError
from modelkit.settings import settings_at
from modelkit.showing.facts import facts_of
from modelkit.store import Store
from runtime.cpu import native
from tests.support.checkpoints import write_checkpoint
from tests.support.embedding_folders import FLAGS, write_modules
from tests.support.encoder_folders import CLS, SEP, write_encoder
from tests.support.parity import Reference
from tests.support.tiny import write_model, write_tokenizer

TEXTS = ["Once upon a time", "rain", "there was a small cat that liked tea", "cats"]
BESIDE = {
    "bert.pooler.dense.weight": np.ones((64, 64), np.float32),
    "bert.embeddings.position_ids": np.arange(66)[None],
    "cls.predictions.bias": np.ones(160, np.float32),
}


def make(tmp_path: Path, lines: str = "", **options: Any) -> Any:
    (tmp_path / "Modelfile").write_text(f"FROM ./model\n{lines}", encoding="utf-8")
    return modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path, **options)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("home")
    write_encoder(place / "model", "bert", pool="mean")
    make(place)
    return place


@pytest.fixture(scope="module")
def model(home: Path) -> Iterator[modelkit.Model]:
    with modelkit.load("it", home=home) as loaded:
        yield loaded


@pytest.mark.parametrize("name", Reference.encoders())
@pytest.mark.parametrize("quantize", [None, "q8", "q4"])
def test_from_modelfile_to_vectors(name: str, quantize: str | None, tmp_path: Path) -> None:
    """Of the reference's text, each pooling; 8 bits cost a random network little."""
    reference = Reference.called(name)
    folder = write_encoder(tmp_path / "model", name, pool="mean")
    created = make(tmp_path, quantize=quantize)
    assert created.converted == (quantize is not None)
    ids = [int(one) for one in reference.answers["ids"]]
    with modelkit.load("it", home=tmp_path) as model, modelkit.load(folder) as plain:
        found = model.embed([ids], normalize=False).vectors[0]
        alone = plain.embed([ids], normalize=False).vectors[0]
    wanted = reference.answers["logits"].mean(0)
    spread = float(reference.answers["std"])
    assert np.abs(alone[reference.answers["columns"]] - wanted).max() < 1e-4 * spread
    if quantize is None:
        assert np.array_equal(found, alone)
    off = np.abs(found - alone).mean() / spread
    assert off < {None: 1e-6, "q8": 0.03, "q4": 0.4}[quantize]


def test_texts_are_framed_and_neither_padded_nor_cut(model: modelkit.Model) -> None:
    assert model.encode("rain") == [CLS, 10, SEP]
    long = "rain " * 12
    assert model.embed(long).tokens == (14,)
    assert np.array_equal(
        model.embed("a small cat").vectors, model.embed([model.encode("A small CAT")]).vectors
    )


def test_the_same_bits_in_any_company(model: modelkit.Model) -> None:
    together = model.embed(TEXTS).vectors
    for text, vector in zip(TEXTS, together, strict=True):
        alone = model.embed(text).vectors[0]
        if native.kernels is None:
            assert np.abs(alone - vector).max() < 2e-6
        else:
            assert np.array_equal(alone, vector)


def test_longer_than_a_piece_is_read_whole(home: Path, model: modelkit.Model) -> None:
    ids = [[5, 6, 7, 8, 9] * 12]
    with modelkit.load("it", home=home, num_batch=8) as narrow:
        assert np.array_equal(narrow.embed(ids).vectors, model.embed(ids).vectors)


@pytest.mark.parametrize("pool", FLAGS)
def test_how_files_say_to_pool(tmp_path: Path, pool: str) -> None:
    folder = write_encoder(tmp_path / "m", "roberta", pool=pool)
    ids = [int(one) for one in Reference.called("roberta").answers["ids"]]
    wanted = Reference.called("roberta").answers["logits"]
    weights = np.arange(1, len(ids) + 1)[:, None]
    of = {
        "mean": wanted.mean(0),
        "first": wanted[0],
        "last": wanted[-1],
        "max": wanted.max(0),
        "weighted": (wanted * weights).sum(0) / weights.sum(),
        "root": wanted.sum(0) / len(ids) ** 0.5,
    }[pool]
    with modelkit.load(folder) as model:
        found = model.embed([ids], normalize=False)
        assert model.pooling.endswith("from 1_Pooling/config.json")
    assert np.abs(found.vectors[0][Reference.called("roberta").answers["columns"]] - of).max() < 1e-4


def test_without_files_it_is_the_mean(tmp_path: Path) -> None:
    with modelkit.load(write_encoder(tmp_path / "m", pool=None)) as model:
        assert model.pooling == "mean of all tokens, by default"


@pytest.mark.parametrize("name", ["sentence_bert_config.json", "sentence_roberta_config.json"])
def test_where_texts_are_cut(tmp_path: Path, name: str) -> None:
    folder = write_encoder(tmp_path / "model", "roberta")
    (folder / name).write_text('{"max_seq_length": 5}')
    make(tmp_path)
    with modelkit.load("it", home=tmp_path) as model:
        found = model.embed("a small cat that liked tea")
        assert (found.tokens, found.dropped, model.context_length) == ((5,), (3,), 5)


def test_where_texts_are_cut_as_newer_releases_save_it(tmp_path: Path) -> None:
    """Beside the tokenizer; a file that says it itself is what counts, and 10^30 is no limit."""
    folder = write_encoder(tmp_path / "model")
    told, own = folder / "tokenizer_config.json", folder / "sentence_bert_config.json"
    found: list[int] = []
    for most, file in ((5, {}), (5, {"max_seq_length": 7}), (int(1e30), {"max_seq_length": None})):
        own.write_text(json.dumps(file))
        told.write_text(json.dumps({**json.loads(told.read_text()), "model_max_length": most}))
        with modelkit.load(folder) as model:
            found += model.embed("a small cat that liked tea").tokens
    assert found == [5, 7, 8]


def test_which_end_of_a_text_is_cut(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "model")
    told = folder / "tokenizer_config.json"
    told.write_text(json.dumps({**json.loads(told.read_text()), "truncation_side": "left"}))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 5}')
    with modelkit.load(folder) as model:
        found = model.embed(["a small cat that liked tea", "that liked tea"])
        assert (found.tokens, found.dropped) == ((5, 5), (3, 0))
        assert found.vectors[0].tolist() == pytest.approx(found.vectors[1].tolist(), abs=1e-6)


def test_what_authors_put_before_every_text(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "m")
    bare, said = tmp_path / "m" / "config_sentence_transformers.json", {"q": "rain ", "none": ""}
    bare.write_text(json.dumps({"prompts": said, "default_prompt_name": None}))
    with modelkit.load(folder) as model:
        wanted, plain = model.embed("rain tea").vectors, model.embed("tea").vectors
        assert np.array_equal(model.embed("tea", prompt_name="q").vectors, wanted)
        assert np.array_equal(model.embed("tea", prompt_name="none").vectors, plain)
        assert model.pooling.endswith("prompts: q, none")
        with pytest.raises(RequestError, match="prompt_name is x, expected one of q, none"):
            model.embed("tea", prompt_name="x")
        with pytest.raises(RequestError, match=r"no effect on texts\[0\]"):
            model.embed([[5, 6]], prompt_name="q")
    bare.write_text(json.dumps({"prompts": said, "default_prompt_name": "q"}))
    with modelkit.load(folder) as model:
        assert np.array_equal(model.embed("tea").vectors, wanted)
        assert not np.array_equal(wanted, plain)
        assert "texts begin with" in model.pooling
    bare.write_text(json.dumps({"prompts": said, "default_prompt_name": "other"}))
    with modelkit.load(folder) as model, pytest.raises(RequestError, match="default_prompt_name"):
        model.embed("tea")


def test_a_prompt_may_be_read_and_left_out_of_the_vector(tmp_path: Path) -> None:
    """Of [CLS] rain tea [SEP], behind a prompt that is `rain `, two tokens count; ids have no prompt."""
    folder = write_encoder(tmp_path / "m")
    said = {"prompts": {"q": "rain ", "none": ""}, "default_prompt_name": "q"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(said))
    found: dict[str, np.ndarray] = {}
    for pool in ("mean", "first", "last", "weighted"):
        write_modules(folder, {FLAGS[pool]: True, "include_prompt": False})
        with modelkit.load(folder) as model:
            found[pool] = model.embed("tea", normalize=False).vectors[0]
            whole = model.embed([model.encode("rain tea")]).vectors
            assert np.array_equal(whole, model.embed("rain tea", prompt_name="none").vectors)
            assert model.pooling.endswith("prompts: q, none, which are left out of it")
    first, last = found["first"], found["last"]
    assert np.abs(found["mean"] - (first + last) / 2).max() < 1e-6
    assert np.abs(found["weighted"] - (3 * first + 4 * last) / 7).max() < 1e-6


def test_what_is_not_read_is_said(tmp_path: Path) -> None:
    write_encoder(tmp_path / "model", prefix="bert.", beside=BESIDE, architectures=["BertForMaskedLM"])
    kept, converted = make(tmp_path), make(tmp_path, quantize="q8")
    assert any("bert.embeddings.position_ids and 2 more" in note for note in kept.notes)
    (note,) = [note for note in converted.notes if "left out" in note]
    assert all(name in note for name in BESIDE)
    left = {tensor.name for tensor in converted.preparation.target.plan.tensors}
    assert not left & BESIDE.keys()
    tables = [t for t in converted.preparation.target.plan.tensors if "embeddings.weight" in t.name]
    assert {t.name.split(".")[2]: t.label for t in tables} == {
        "word_embeddings": "q8",
        "position_embeddings": "f32",
        "token_type_embeddings": "f32",
    }


def test_no_memory_is_set_aside_for_prompts(home: Path) -> None:
    with modelkit.load("it", home=home, cache_memory="1GB", cache_disk="1GB") as model:
        model.embed(TEXTS)
        assert (model.memory.prefix_bytes, model.prefixes(), model.limit_prefixes(10**6)) == (0, [], 0)
    assert not (home / "cache" / "prefixes").exists()


def test_it_writes_no_text(model: modelkit.Model) -> None:
    said = "it makes embeddings and writes no text"
    asked = [
        lambda: model.generate("rain"),
        lambda: model.generate([5, 6], stream=True),
        lambda: model.chat([{"role": "user", "content": "rain"}]),
        lambda: model.logits([5, 6]),
    ]
    for ask in asked:
        with pytest.raises(RequestError, match=said) as raised:
            ask()
        assert "modelkit embed" in str(raised.value.hint)
    assert not model.writes
    assert not model.notes


def test_run_says_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELKIT_HOME", str(home))
    done = CliRunner().invoke(cli, ["run", "--local", "it", "rain"])
    assert done.exit_code == 1
    assert "it makes embeddings and writes no text" in done.output


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("SYSTEM be kind\n", "Modelfile:2:.*writes no text: SYSTEM has nothing to act on"),
        ("TEMPLATE {{ messages }}\n", "TEMPLATE has nothing"),
        ("MESSAGE user hello\n", "MESSAGE has nothing"),
        ("DRAFT ./draft\n", "BertModel makes embeddings"),
    ],
)
def test_lines_about_answers_are_refused(tmp_path: Path, lines: str, said: str) -> None:
    write_encoder(tmp_path / "model")
    write_model(tmp_path / "draft")
    with pytest.raises(ModelkitError, match=said):
        make(tmp_path, lines)


def test_parameters_of_answers_are_noted(tmp_path: Path) -> None:
    write_encoder(tmp_path / "model")
    created = make(tmp_path, "PARAMETER temperature 0.3\nPARAMETER num_ctx 32\n")
    (note,) = [note for note in created.notes if "has no effect" in note]
    assert note.startswith("PARAMETER temperature has no effect")
    with modelkit.load("it", home=tmp_path) as model:
        assert model.context_length == 32
        assert model.notes == (note,)


def test_two_are_not_compared_by_what_they_write(home: Path) -> None:
    with pytest.raises(LoadError, match="it makes embeddings and writes no text, so predictions"):
        modelkit.compare("it", "it", home=home)


def test_it_drafts_for_nobody(tmp_path: Path) -> None:
    write_model(tmp_path / "model")
    write_encoder(tmp_path / "draft")
    with pytest.raises(PlanError, match="BertModel makes embeddings, and writes no text"):
        make(tmp_path, "DRAFT ./draft\n")


def test_it_is_written_as_a_gguf_file(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELKIT_HOME", str(home))
    done = CliRunner().invoke(cli, ["export", "it", str(tmp_path / "it.gguf")])
    assert done.exit_code == 0, done.output
    with modelkit.load("it", home=home) as model, modelkit.load(tmp_path / "it.gguf") as file:
        np.testing.assert_array_equal(model.embed("rain").vectors, file.embed("rain").vectors)


def test_what_show_says(home: Path) -> None:
    store = Store(settings_at(home).home)
    facts = facts_of(store, store.resolve("it"))
    assert facts["capabilities"] == ["embedding"]
    assert (facts["context_length"], facts["embedding_length"]) == (66, 64)
    assert facts["problem"] is None
    assert facts["memory"]["bytes_per_sequence"] == 0


def test_a_decoder_with_a_pooling_file_can_both(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    write_modules(folder, {FLAGS["last"]: True})
    make(tmp_path)
    store = Store(settings_at(tmp_path).home)
    assert facts_of(store, store.resolve("it"))["capabilities"] == ["completion", "embedding"]


def test_other_classes_are_refused_by_name(tmp_path: Path) -> None:
    record = Reference.called("bert").record
    config = {**record["config"], "architectures": ["BertForSequenceClassification"]}
    write_tokenizer(write_checkpoint(tmp_path / "model", config, record["tensors"]), tokens=128)
    with pytest.raises(PlanError, match="BertForSequenceClassification"):
        make(tmp_path)
