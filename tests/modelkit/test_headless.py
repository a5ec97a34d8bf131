"""Decoders as embeddings are published: without a head, without a prefix before names, pooled by files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import modelkit
from modelkit.errors import LoadError, ModelkitError, RequestError
from modelkit.settings import settings_at
from modelkit.showing.facts import facts_of
from modelkit.store import Store
from tests.support.embedding_folders import reference, write_reference

TIED = {"architectures": ["Qwen3ForCausalLM"], "tie_word_embeddings": True}
UNTIED = {"architectures": ["Qwen3ForCausalLM"], "tie_word_embeddings": False}
BARE: dict[str, Any] = {}
"""As the record has it: Qwen3Model, not tied."""
KINDS = [TIED, UNTIED, BARE]


def make(tmp_path: Path, **options: Any) -> Any:
    (tmp_path / "Modelfile").write_text("FROM ./model\n", encoding="utf-8")
    return modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path, **options)


@pytest.mark.parametrize("kind", KINDS, ids=["tied", "untied", "bare"])
@pytest.mark.parametrize("num_batch", [512, 16])
def test_the_references_vectors(tmp_path: Path, kind: dict[str, Any], num_batch: int) -> None:
    record = reference("qwen3")
    folder = write_reference(tmp_path / "model", "qwen3", pool="last", **kind)
    make(tmp_path)
    wanted = np.array(record["vectors"]["last"])
    for name in ("it", folder):
        with modelkit.load(name, home=tmp_path, num_batch=num_batch) as model:
            found = model.embed(record["texts"], normalize=False)
            assert np.abs(found.vectors - wanted).max() < 1e-5 * np.ptp(wanted)
            assert model.pooling == "last token, from 1_Pooling/config.json"
            assert model.writes == (kind is TIED)


@pytest.mark.parametrize("kind", KINDS, ids=["tied", "untied", "bare"])
def test_quantized(tmp_path: Path, kind: dict[str, Any]) -> None:
    """What is written anew has the names that other MLX programs read."""
    record = reference("qwen3")
    write_reference(tmp_path / "model", "qwen3", pool="last", **kind)
    created = make(tmp_path, quantize="q8")
    names = {tensor.name for tensor in created.preparation.target.plan.tensors}
    assert all(name.startswith("model.") for name in names)
    wanted = np.array(record["vectors"]["last"])
    with modelkit.load("it", home=tmp_path) as model:
        found = model.embed(record["texts"], normalize=False).vectors
    assert np.abs(found - wanted).mean() < 0.02 * wanted.std()


@pytest.mark.parametrize("kind", [UNTIED, BARE], ids=["untied", "bare"])
def test_without_a_head_there_is_no_text(tmp_path: Path, kind: dict[str, Any]) -> None:
    write_reference(tmp_path / "model", "qwen3", pool="last", **kind)
    make(tmp_path)
    said = pytest.raises(RequestError, match="it makes embeddings and writes no text")
    with modelkit.load("it", home=tmp_path) as model, said:
        model.generate([5, 6])
    store = Store(settings_at(tmp_path).home)
    assert facts_of(store, store.resolve("it"))["capabilities"] == ["embedding"]


def test_a_tied_one_can_both(tmp_path: Path) -> None:
    write_reference(tmp_path / "model", "qwen3", pool="last", **TIED)
    make(tmp_path)
    store = Store(settings_at(tmp_path).home)
    assert facts_of(store, store.resolve("it"))["capabilities"] == ["completion", "embedding"]
    with modelkit.load("it", home=tmp_path) as model:
        assert len(model.generate([5, 6], num_predict=3, raw=True).ids) == 3


def test_a_head_that_is_missing_otherwise_is_missing(tmp_path: Path) -> None:
    folder = write_reference(tmp_path / "model", "qwen3", **UNTIED)
    with pytest.raises(ModelkitError, match="lm_head"):
        make(tmp_path)
    with pytest.raises(LoadError, match="lm_head"):
        modelkit.load(folder)
