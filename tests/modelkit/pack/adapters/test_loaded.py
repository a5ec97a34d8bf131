"""A folder with adapters beside it answers as a package of both; `show` and plans say what there is."""

import gzip
from pathlib import Path

import numpy as np
import pytest

import modelkit
from modelkit.cli.export import package_notes
from modelkit.cli.show import overview
from modelkit.errors import ModelkitError
from modelkit.showing.facts import facts_of
from modelkit.store.store import Store
from tests.support.adapter_references import FOLDER, AdapterReference
from tests.support.checkpoints import write_checkpoint
from tests.support.tiny import write_tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    reference = AdapterReference("llama_lora")
    config = {key: value for key, value in reference.base["config"].items() if key != "eos_token_id"}
    write_tokenizer(write_checkpoint(tmp_path / "model", config, reference.base["tensors"]), tokens=128)
    reference.write(tmp_path / "pef t")
    AdapterReference("mlx/llama_dora").write(tmp_path / "mlx")
    packed = (FOLDER / "gguf" / "llama.gguf.gz").read_bytes()
    (tmp_path / "other.gguf").write_bytes(gzip.decompress(packed))
    return tmp_path


def test_a_folder_with_adapters_answers_as_its_package(folder: Path) -> None:
    names = ("pef t", "mlx", "other.gguf")
    lines = "".join(f"ADAPTER ./{name}\n" for name in names)
    (folder / "Modelfile").write_text(f"FROM ./model\n{lines}", encoding="utf-8")
    modelkit.create(folder / "Modelfile", name="it", home=folder)
    ids = [int(one) for one in AdapterReference("llama_lora").ids[:12]]
    with modelkit.load(folder / "model", home=folder, adapters=[folder / name for name in names]) as model:
        assert model.adapters == ("pef-t", "mlx", "other")
        alone = [model.logits(ids, adapters=[name]) for name in model.adapters]
        together = model.logits(ids)
    with modelkit.load("it", home=folder) as model:
        for name, wanted in zip(("pef-t", "mlx", "other"), alone, strict=True):
            np.testing.assert_array_equal(model.logits(ids, adapters=[name]), wanted)
        np.testing.assert_array_equal(model.logits(ids), together)
    assert all(np.abs(one - together).max() > 0.01 for one in alone)
    store = Store(folder)
    facts = facts_of(store, store.resolve("it"))
    assert [row["kind"] for row in facts["adapters"]] == ["peft", "mlx-lm", "gguf"]
    assert "rank 4" in overview(facts)
    (note,) = [one for one in package_notes(store.resolve("it")) if "adapters" in one]
    assert "pef-t" in note
    modelkit.export("it", folder / "out", home=folder)
    with modelkit.load(folder / "out", home=folder) as model:
        assert model.adapters == ("pef-t", "mlx", "other")
        np.testing.assert_array_equal(model.logits(ids), together)


def test_what_load_refuses_names_the_adapter(folder: Path) -> None:
    with pytest.raises(ModelkitError, match="nowhere"):
        modelkit.load(folder / "model", home=folder, adapters=[folder / "nowhere"])
