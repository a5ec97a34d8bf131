"""A block draft (DFlash) from Modelfile to text: beside its target, quantized, refused, and alone."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import modelkit
from modelkit.answers.generation import Generation
from modelkit.errors import LoadError, PlanError, UnsupportedSource
from modelkit.store.package import Package
from modelkit.store.store import Store
from runtime.models.dflash_config import Config, parse
from tests.support.assistants import DATA
from tests.support.checkpoints import write_checkpoint
from tests.support.dflash import block_config, block_shapes
from tests.support.drafting import always_drafting
from tests.support.gguf_round import package_numbers
from tests.support.parity import Reference
from tests.support.tiny import write_tokenizer

MUSE: dict[str, Any] = json.loads((DATA / "muse_glimmer_assistant.json").read_text(encoding="utf-8"))
GEMMA: dict[str, Any] = json.loads((DATA / "gemma4_assistant.json").read_text(encoding="utf-8"))


def target(folder: Path, name: str) -> Path:
    record = Reference(name).record
    write_checkpoint(folder, record["config"], record["tensors"])
    write_tokenizer(folder, 150)
    return folder


def draft(folder: Path, name: str, **changes: Any) -> Path:
    if name == "muse_glimmer":
        kind = {"architectures": ["MuseGlimmerAssistantModel"]}
        return write_checkpoint(folder, {**MUSE["config"], **kind, **changes}, MUSE["tensors"])
    kind = {"architectures": ["DFlashLagunaForCausalLM"]} if name == "laguna" else {}
    config = block_config(**kind, **changes)
    return write_checkpoint(folder, config, block_shapes(config))


def create(home: Path, of: Path, by: Path, **options: Any) -> str:
    """The name of a package of both."""
    recipe = home.parent / "Modelfile"
    recipe.write_text(f"FROM {of}\nDRAFT {by}\n", encoding="utf-8")
    modelkit.create(recipe, name="pair", home=home, **options)
    return "pair"


def answer(name: str, home: Path, **parameters: Any) -> Generation:
    with modelkit.load(name, home=home, **parameters) as model:
        return model.generate([5, 9, 44, 3, 17], temperature=0, num_predict=24)


@pytest.mark.parametrize(
    ("name", "quantize"),
    [("qwen3", None), ("qwen3", "q4"), ("muse_glimmer", "q4"), ("laguna", "q4")],
    ids=["qwen3", "qwen3 in q4", "muse_glimmer in q4", "laguna in q4"],
)
def test_a_block_draft_drafts_for_its_target(
    name: str, quantize: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    always_drafting(monkeypatch)
    home = tmp_path / "home"
    create(home, target(tmp_path / "of", name), draft(tmp_path / "by", name), quantize_draft=quantize)
    drafted, plain = answer("pair", home), answer("pair", home, draft_num_predict=0)
    assert drafted.ids == plain.ids
    assert drafted.usage.drafted_tokens > 0
    assert plain.usage.drafted_tokens == 0
    stored = json.loads(Store(home).resolve("pair").files["draft/config.json"].read_text(encoding="utf-8"))
    assert ("quantization" in stored) == (quantize is not None)


def test_a_block_draft_of_another_target_is_refused_by_create(tmp_path: Path) -> None:
    of, by = target(tmp_path / "of", "qwen3"), draft(tmp_path / "by", "qwen3", num_target_layers=36)
    with pytest.raises(PlanError, match="36 layers, and this one has 4"):
        create(tmp_path / "home", of, by)


def test_a_block_draft_alone_is_refused(tmp_path: Path) -> None:
    alone = draft(tmp_path / "alone", "qwen3")
    write_tokenizer(alone, 150)
    with pytest.raises(LoadError, match="only runs inside its target"):
        modelkit.load(alone)
    (tmp_path / "Modelfile").write_text(f"FROM {alone}\n", encoding="utf-8")
    with pytest.raises(PlanError, match="only runs inside its target"):
        modelkit.create(tmp_path / "Modelfile", name="alone", home=tmp_path / "home")


@pytest.mark.parametrize(
    "changes",
    [{}, {"causal": True}, {"use_swa": True, "swa_window_size": 12}, {"input_embedding_scale": 8.0}],
    ids=["plain", "causal", "window", "scale"],
)
def test_it_comes_back_from_a_gguf_file(changes: dict[str, Any], tmp_path: Path) -> None:
    home, of = tmp_path / "home", target(tmp_path / "model", "qwen3")
    create(home, of, draft(tmp_path / "draft", "qwen3", **changes))
    modelkit.export_gguf("pair", tmp_path / "draft.gguf", draft=True, home=home)
    whole = answer("pair", home)
    with Store(home).hold("pair") as package:
        wanted, config = package_numbers(package, draft=True), draft_config(package)
    create(home, of, tmp_path / "draft.gguf")
    again = answer("pair", home)
    assert again.ids == whole.ids
    with Store(home).hold("pair") as package:
        found = package_numbers(package, draft=True)
        assert replace(draft_config(package), of_layers=4) == config  # which no file says
    assert found.keys() == wanted.keys()
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        (
            "qwen3",
            {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 12},
            "in some layers",
        ),
        ("qwen3", {"attention_bias": True}, r"proj\.bias.* no place"),
        ("qwen3", {"rope_interleaved": True}, "neighbours"),
        ("laguna", {}, "which is not written as GGUF"),
        ("muse_glimmer", {}, "which is not written as GGUF"),
    ],
    ids=["mixed", "biases", "pairs", "laguna", "muse_glimmer"],
)
def test_what_gguf_cannot_say_of_it_is_refused(
    name: str, changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    create(home, target(tmp_path / "model", name), draft(tmp_path / "draft", name, **changes))
    with pytest.raises(UnsupportedSource, match=said):
        modelkit.export_gguf("pair", tmp_path / "draft.gguf", draft=True, home=home)
    assert not (tmp_path / "draft.gguf").exists()


@pytest.mark.parametrize("name", ["plain", "clustered"])
def test_an_assistant_comes_back_from_a_gguf_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its clusters, of which a note speaks."""
    always_drafting(monkeypatch)
    home, of = tmp_path / "home", gemma(tmp_path / "model", "target")
    create(home, of, gemma(tmp_path / "draft", name))
    written = modelkit.export_gguf("pair", tmp_path / "draft.gguf", draft=True, home=home)
    assert any("clusters" in note for note in written.notes) == (name == "clustered")
    whole = answer("pair", home)
    with Store(home).hold("pair") as package:
        wanted = package_numbers(package, draft=True)
    create(home, of, tmp_path / "draft.gguf")
    again = answer("pair", home)
    assert again.ids == whole.ids
    assert again.usage.drafted_tokens > 0
    with Store(home).hold("pair") as package:
        found = package_numbers(package, draft=True)
    assert {one for one in wanted if not one.startswith("masked_embedding.")} == found.keys()
    assert all(np.array_equal(found[one], wanted[one]) for one in found)


def gemma(folder: Path, part: str) -> Path:
    """Gemma 4's text model, or an assistant of it."""
    kind = "Gemma4ForCausalLM" if part == "target" else "Gemma4AssistantForCausalLM"
    record: dict[str, Any] = GEMMA[part]
    write_checkpoint(folder, {**record["config"], "architectures": [kind]}, record["tensors"])
    if part == "clustered":
        path = folder / "model.safetensors"
        ordered = {"masked_embedding.token_ordering": np.arange(160)}
        save_file({**load_file(path), **ordered}, path)
    write_tokenizer(folder, 150)
    return folder


def draft_config(package: Package) -> Config:
    return parse(json.loads(package.files["draft/config.json"].read_bytes()))
