"""A folder with adapters beside it answers as a package of both; `show` and plans say what there is."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import modelkit
from modelkit.cli.export import package_notes
from modelkit.cli.show import overview
from modelkit.errors import ModelkitError
from modelkit.pack.adapters.place import place
from modelkit.showing.facts import facts_of
from modelkit.source.adapters.reading import read_adapter
from modelkit.store.store import Store
from runtime.models import describe
from tests.support.adapter_references import FOLDER, AdapterReference
from tests.support.checkpoints import write_checkpoint
from tests.support.parity import Reference
from tests.support.peft_folders import pair_for, peft_tensors, write_peft
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


def test_what_was_trained_without_a_head_goes_with_one(folder: Path) -> None:
    """As transformers' AutoModel and sentence-transformers name it."""
    reference = AdapterReference("llama_lora")
    tensors = load_file(folder / "pef t" / "adapter_model.safetensors")
    tensors = {name: one for name, one in tensors.items() if ".lm_head." not in name}
    table = "base_model.model.model.embed_tokens"
    rows, width = reference.base["tensors"]["model.embed_tokens.weight"]
    own = np.linspace(-1, 1, rows * width, dtype=np.float32).reshape(rows, width)
    tensors[f"{table}.base_layer.weight"] = own  # that of another revision, which counts
    bare = {
        name.replace("base_model.model.model.", "base_model.model."): one for name, one in tensors.items()
    }
    assert bare.keys() != tensors.keys()
    config = json.loads((folder / "pef t" / "adapter_config.json").read_text(encoding="utf-8"))
    for where, named in (("named", tensors), ("bare", bare)):
        write_peft(folder / where, named, **config)
    answers: list[np.ndarray] = []
    for where in ("named", "bare"):
        with modelkit.load(folder / "model", home=folder, adapters=[folder / where]) as model:
            answers.append(model.logits([5, 9, 44]))
    np.testing.assert_array_equal(*answers)
    norm = np.full(width, 1.5, np.float32)
    write_peft(folder / "bare", bare | {"base_model.model.norm.weight": norm}, **config)
    with pytest.raises(ModelkitError, match=r"model\.norm\.weight cannot differ between the rows"):
        modelkit.load(folder / "model", home=folder, adapters=[folder / "bare"])


def test_what_is_no_adapter_by_itself_is_told(folder: Path) -> None:
    """PEFT saves adapters with names of their own each into a folder of its name."""
    write_peft(folder / "several" / "style", {})
    (folder / "pef t").rename(folder / "several" / "law")
    with pytest.raises(ModelkitError, match=r"but folders of adapters: law, style(.|\n)*several/law"):
        modelkit.load(folder / "model", home=folder, adapters=[folder / "several"])
    with pytest.raises(ModelkitError, match="nowhere is not there"):
        modelkit.load(folder / "model", home=folder, adapters=[folder / "nowhere"])
    modelkit.load(folder / "model", home=folder, adapters=[folder / "several" / "law"]).close()


@pytest.mark.parametrize("before", ["", "language_model.", "model.", "language_model.model."])
def test_a_wrappers_text_model_is_called_in_many_ways(before: str, tmp_path: Path) -> None:
    record = Reference("gemma3_wrapped").record
    name = "layers.0.self_attn.q_proj.weight"
    shapes = {key: tuple(shape) for key, shape in record["tensors"].items()}
    pair = pair_for(name, shapes[f"model.language_model.{name}"], 3, input_first=False)
    write_peft(tmp_path / "lora", peft_tensors(before + name, *pair))
    found = place(read_adapter(tmp_path / "lora"), describe(record["config"]), shapes)
    assert [one.module for one in found.placed] == ["model.layers.0.self_attn.q_proj"]


def test_a_package_takes_more_adapters_when_it_is_loaded(folder: Path) -> None:
    (folder / "Modelfile").write_text("FROM ./model\nADAPTER ./pef t\n", encoding="utf-8")
    modelkit.create(folder / "Modelfile", name="one", home=folder)
    ids = [5, 9, 44]
    both = [folder / "pef t", folder / "mlx"]
    with modelkit.load(folder / "model", home=folder, adapters=both) as model:
        together, alone = model.logits(ids), model.logits(ids, adapters=["mlx"])
    with modelkit.load("one", home=folder, adapters=both[1:]) as model:
        assert model.adapters == ("pef-t", "mlx")
        np.testing.assert_array_equal(model.logits(ids), together)
        np.testing.assert_array_equal(model.logits(ids, adapters=["mlx"]), alone)
    assert np.abs(together - alone).max() > 0.01
    with pytest.raises(ModelkitError, match="there is an adapter called pef-t already"):
        modelkit.load("one", home=folder, adapters=both[:1])


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


def test_load_says_of_adapters_what_create_says(folder: Path) -> None:
    said = json.loads((folder / "pef t" / "adapter_config.json").read_text())
    said["base_model_name_or_path"] = "acme/another-model"
    (folder / "pef t" / "adapter_config.json").write_text(json.dumps(said), encoding="utf-8")
    (folder / "Modelfile").write_text("FROM ./model\nADAPTER ./pef t\nADAPTER ./mlx\n", encoding="utf-8")
    created = modelkit.create(folder / "Modelfile", name="it", home=folder)
    told = [note for note in created.notes if note.startswith("adapter ")]
    assert any("trained on acme/another-model" in note for note in told)
    with modelkit.load(folder / "model", home=folder, adapters=[folder / "pef t", folder / "mlx"]) as model:
        assert [note for note in model.notes if note.startswith("adapter ")] == told


def test_what_load_refuses_names_the_adapter(folder: Path) -> None:
    with pytest.raises(ModelkitError, match="nowhere"):
        modelkit.load(folder / "model", home=folder, adapters=[folder / "nowhere"])


def test_magnitudes_for_rows_of_a_table_are_refused_by_name(folder: Path) -> None:
    held = load_file(folder / "mlx" / "adapters.safetensors")
    tokens, width = AdapterReference("llama_lora").base["tensors"]["model.embed_tokens.weight"]
    rank = next(array.shape[1] for name, array in held.items() if name.endswith(".lora_a"))
    shapes = {"lora_a": (tokens, rank), "lora_b": (rank, width), "m": (tokens,)}
    held |= {f"model.embed_tokens.{leaf}": np.ones(shape, np.float32) for leaf, shape in shapes.items()}
    save_file(held, folder / "mlx" / "adapters.safetensors")
    with pytest.raises(ModelkitError, match=r"embed_tokens has a magnitude for each row of a table"):
        modelkit.load(folder / "model", home=folder, adapters=[folder / "mlx"])
