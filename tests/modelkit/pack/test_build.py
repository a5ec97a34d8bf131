"""From a Modelfile to a stored package, through the real store, tokenizer and architectures."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from safetensors.numpy import save_file

import modelkit
from modelkit.chat.builtin import builtin_templates
from modelkit.chat.find import find_template
from modelkit.errors import SourceError
from modelkit.modelfile import Recipe
from modelkit.pack.build import Created, build
from modelkit.pack.prepare import prepare
from modelkit.store import memo
from modelkit.store.name import Name
from modelkit.store.store import Store
from runtime.loading.load import load_model
from runtime.weights.files import load_file

Llama = Callable[..., Path]
Read = Callable[[str], Recipe]
Make = Callable[..., Created]
NAME = Name.parse("story")


class Heard:
    """Progress that keeps what it was told."""

    def __init__(self) -> None:
        self.bars: list[tuple[str, int]] = []
        self.done_bytes = 0

    def begin(self, label: str, total_bytes: int) -> None:
        self.bars.append((label, total_bytes))

    def advance(self, done_bytes: int) -> None:
        self.done_bytes += done_bytes

    def finish(self) -> None:
        assert self.done_bytes == sum(total for _, total in self.bars)


def metadata(store: Store, name: str = "story") -> dict[str, Any]:
    return json.loads(store.resolve(name).files["modelkit.json"].read_bytes())


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (f"SYSTEM {'w1 ' * 130}", "SYSTEM makes prompts of"),
        ("SYSTEM w1 w2 w3\nPARAMETER num_ctx 8", "and the context is 8: conversations that bring no system"),
        (f"SYSTEM w1\nMESSAGE user {'w1 ' * 130}", "MESSAGE lines make prompts of"),
        (f"SYSTEM {'w1 ' * 50}\nMESSAGE user {'w1 ' * 50}", None),
    ],
)
def test_texts_that_fill_the_context_are_noted(
    llama: Llama, make: Make, lines: str, said: str | None
) -> None:
    """Every conversation would be refused, or go without them."""
    llama("target")
    notes = [
        note for note in make(f"FROM ./target\nTEMPLATE chatml\n{lines}").notes if "the context is" in note
    ]
    assert (said is None) == (not notes)
    assert (said or "") in " ".join(notes)


def test_an_unquantized_import_keeps_the_weights_byte_for_byte(
    llama: Llama, make: Make, store: Store
) -> None:
    folder = llama("target")
    assert not make("FROM ./target").converted
    stored = store.resolve(NAME).files["model.safetensors"]
    assert stored.read_bytes() == (folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize("wanted", [None, "q4"])
def test_a_buffer_of_a_type_that_is_not_read_stands_in_nobodys_way(
    llama: Llama, make: Make, store: Store, wanted: str | None
) -> None:
    """MLX reads no file that has one; here it says nothing that the config does not."""
    path = llama("target") / "model.safetensors"
    own = mx.load(str(path))
    assert isinstance(own, dict)
    mx.eval(own)
    table, data = "model.layers.0.self_attn.rotary_emb.inv_freq", path.read_bytes()
    stop = 8 + int.from_bytes(data[:8], "little")
    header, end = json.loads(data[8:stop]), len(data) - stop
    header[table] = {"dtype": "F64", "shape": [4], "data_offsets": [end, end + 32]}
    text = json.dumps(header).encode()
    with modelkit.load(path.parent) as before:
        wanted_logits = before.logits([1, 2])
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[stop:] + bytes(32))
    with modelkit.load(path.parent) as folder:
        assert np.array_equal(folder.logits([1, 2]), wanted_logits)
    notes = make("FROM ./target", quantize=wanted).notes
    assert "1 stored buffer is left out: positions say the same" in notes
    files = store.resolve(NAME).files
    load_model(json.loads(files["config.json"].read_bytes()), [files["model.safetensors"]])
    kept = mx.load(str(files["model.safetensors"]), format="safetensors")
    assert isinstance(kept, dict)
    if wanted is None:
        assert kept.keys() == own.keys()
        assert all(mx.array_equal(kept[name], own[name]).item() for name in own)


@pytest.mark.parametrize("wanted", [None, "f32", "bf16", "q4"])
def test_float64_is_read_as_float32(llama: Llama, make: Make, store: Store, wanted: str | None) -> None:
    """MLX reads no file that has any."""
    path = llama("target") / "model.safetensors"
    own = {name: np.array(array.astype(mx.float32)) for name, array in load_file(path).items()}
    narrow, wide = path.parent.with_name("narrow"), path.parent.with_name("wide")
    for folder, kind in ((narrow, np.float32), (wide, np.float64)):
        shutil.copytree(path.parent, folder)
        save_file({name: array.astype(kind) for name, array in own.items()}, folder / path.name)
    config = json.loads((wide / "config.json").read_text())
    (wide / "config.json").write_text(json.dumps({**config, "dtype": "float64"}))
    with modelkit.load(narrow) as one, modelkit.load(wide) as other:
        assert np.array_equal(one.logits([1, 2]), other.logits([1, 2]))
    stored: list[bytes] = []
    for folder in (narrow, wide):
        made = make(f"FROM ./{folder.name}", quantize=wanted)
        files = store.resolve(NAME).files
        stored.append(b"".join(bytes(array) for array in load_file(files["model.safetensors"]).values()))
    assert stored[0] == stored[1]
    assert any("tensors are float64, and float32 here" in note for note in made.notes)
    assert json.loads(files["config.json"].read_bytes())["dtype"] != "float64"


def test_float64_that_is_too_large_is_refused(llama: Llama, make: Make) -> None:
    path = llama("target") / "model.safetensors"
    own = {name: np.array(array.astype(mx.float32)) for name, array in load_file(path).items()}
    save_file({**own, "model.norm.weight": np.full(own["model.norm.weight"].shape, 1e39)}, path)
    with pytest.raises(SourceError, match="are too large for float32"):
        make("FROM ./target")


@pytest.mark.parametrize("wanted", ["q4", "int8", "q3", "mxfp4", "nvfp4", "f16"])
def test_what_is_written_loads_and_runs(llama: Llama, make: Make, store: Store, wanted: str) -> None:
    llama("target")
    assert make("FROM ./target", quantize=wanted).converted
    files = store.resolve(NAME).files
    model = load_model(json.loads(files["config.json"].read_bytes()), [files["model.safetensors"]])
    assert model.vocab_size == 32


def test_the_draft_lies_in_its_own_folder(llama: Llama, make: Make, store: Store) -> None:
    llama("target")
    llama("draft", seed=1, num_hidden_layers=1)
    make("FROM ./target\nDRAFT ./draft", quantize_draft="q4")
    files = store.resolve(NAME).files
    assert {"config.json", "draft/config.json", "draft/model.safetensors", "draft/tokenizer.json"} <= set(
        files
    )
    assert "quantization" in json.loads(files["draft/config.json"].read_bytes())
    assert "quantization" not in json.loads(files["config.json"].read_bytes())
    assert metadata(store)["draft"] == {"architecture": "LlamaForCausalLM", "kind": "model"}


def test_the_same_sources_give_the_same_digest_elsewhere(
    llama: Llama, make: Make, recipe: Read, tmp_path: Path
) -> None:
    folder = llama("target")
    llama("draft", num_hidden_layers=1)
    text = "FROM ./{}\nDRAFT ./draft\nSYSTEM hello\nPARAMETER temperature 0.5"
    first = make(text.format("target"), quantize="q4")
    shutil.copytree(folder, tmp_path / "moved")
    again = build(recipe(text.format("moved")), NAME, Store(tmp_path / "other"), quantize="q4")
    assert again.digest == first.digest


def test_a_changed_recipe_converts_nothing_again(
    llama: Llama, make: Make, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memo, "_SETTLED_NS", -(10**18))  # trust files that were written just now
    llama("target")
    make("FROM ./target\nSYSTEM one", quantize="q4")
    heard = Heard()
    again = make("FROM ./target\nSYSTEM two\nPARAMETER seed 3", quantize="q4", progress=heard)
    assert (again.converted, heard.bars, again.preparation.write_bytes) == (False, [], 0)
    assert metadata(store)["system"] == "two"


def test_a_changed_weight_is_converted_again(
    llama: Llama, make: Make, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memo, "_SETTLED_NS", -(10**18))
    llama("target")
    first = make("FROM ./target", quantize="q4")
    llama("target", seed=9)
    assert make("FROM ./target", quantize="q4").digest != first.digest


def test_a_package_converted_from_a_package_is_the_one_from_the_folder(
    llama: Llama, make: Make, store: Store
) -> None:
    llama("target")
    make("FROM ./target", "plain")
    assert (
        make("FROM plain", "one", quantize="q4").digest == make("FROM ./target", "two", quantize="q4").digest
    )


def test_reusing_a_package_converts_nothing(llama: Llama, make: Make, store: Store) -> None:
    llama("target")
    make("FROM ./target", "plain")
    make("FROM plain\nSYSTEM one", "story", quantize="q4")
    heard = Heard()
    again = make("FROM plain\nSYSTEM two", "story", quantize="q4", progress=heard)
    assert (again.converted, heard.bars) == (False, [])


def test_progress_counts_every_source_byte_once(llama: Llama, make: Make) -> None:
    llama("target")
    llama("draft", num_hidden_layers=1)
    heard = Heard()
    make("FROM ./target\nDRAFT ./draft", quantize="q4", progress=heard)
    assert [label for label, _ in heard.bars] == ["target: q4", "draft: copy"]
    assert heard.done_bytes == sum(total for _, total in heard.bars)


def test_a_dry_run_writes_nothing_and_says_everything(llama: Llama, recipe: Read, store: Store) -> None:
    llama("target")
    shown = prepare(recipe("FROM ./target"), store, quantize="q4").to_json()
    assert not store.root.exists()
    assert json.loads(json.dumps(shown)) == shown
    assert shown["target"]["format"] == "q4"
    assert {row["format"] for row in shown["target"]["tensors"]} == {"q4", "q8", "bf16"}
    assert all(row["reason"] for row in shown["target"]["tensors"])


def test_what_the_size_estimate_promises_is_what_is_written(llama: Llama, make: Make, store: Store) -> None:
    llama("target")
    created = make("FROM ./target", quantize="q4")
    assert store.resolve(NAME).files["model.safetensors"].stat().st_size == created.preparation.write_bytes


def test_recorded_names_that_do_not_act_are_noted(llama: Llama, make: Make, store: Store) -> None:
    llama("target")
    created = make("FROM ./target\nRENDERER qwen3\nPARSER lantern")
    assert "RENDERER qwen3 is recorded; here the chat template decides" in created.notes
    assert any(note.startswith("PARSER lantern is recorded; no output style") for note in created.notes)
    assert metadata(store)["parser"] == "lantern"


def test_a_renderer_that_modelkit_has_is_the_template(llama: Llama, make: Make, store: Store) -> None:
    llama("target")
    created = make("FROM ./target\nRENDERER chatml\nPARSER qwen3")
    assert not any("RENDERER" in note or "PARSER" in note for note in created.notes)
    kept = store.resolve(NAME).files["chat_template.jinja"].read_text()
    assert kept == builtin_templates()["chatml"].source
    make("FROM ./target\nRENDERER chatml\nTEMPLATE alpaca")
    assert (
        store.resolve(NAME).files["chat_template.jinja"].read_text() == builtin_templates()["alpaca"].source
    )


def test_provenance_names_sources_by_digest_only(
    llama: Llama, make: Make, store: Store, tmp_path: Path
) -> None:
    llama("target")
    make("FROM ./target", quantize="q4")
    found = metadata(store)["provenance"]["target"]
    assert found["format"] == "q4"
    assert found["sources"]["model.safetensors"].startswith("sha256:")
    assert str(tmp_path) not in json.dumps(metadata(store))


def test_the_artifact_describes_the_target(llama: Llama, make: Make, store: Store) -> None:
    llama("target")
    make("FROM ./target", quantize="q4")
    assert store.resolve(NAME).config["config"] == {
        "architecture": "LlamaForCausalLM",
        "format": "safetensors",
        "paramSize": "78.1k",
        "precision": "bf16",
        "quantization": "q4",
        "capabilities": {
            "inputTypes": ["text"],
            "outputTypes": ["text"],
            "reasoning": False,
            "toolUsage": False,
        },
    }


def test_the_reference_model_keeps_its_misaligned_matrices(
    make: Make, store: Store, shared_data: Path
) -> None:
    created = make(f"FROM {shared_data / 'stories260k'}", quantize="q4")
    rows = {row["name"]: row for row in created.preparation.target.plan.rows()}
    assert rows["model.layers.0.mlp.down_proj.weight"]["format"] == "f32"
    assert rows["model.layers.0.mlp.gate_proj.weight"]["format"] == "q4"


def test_the_template_for_tools_beside_the_default_comes_along(
    llama: Llama, make: Make, store: Store
) -> None:
    folder, name = llama("target"), "additional_chat_templates/tool_use.jinja"
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / name).parent.mkdir()
    (folder / name).write_text("{{ tools }}{{ messages }}")
    (folder / name).with_name("rag.jinja").write_text("{{ documents }}")
    made = make("FROM ./target")
    files = store.resolve(NAME).files
    assert "{{ tools }}" in str(find_template(files))
    assert files[name].read_bytes() == (folder / name).read_bytes()
    assert sorted(path for path in files if "/" in path) == [name]
    again = make("FROM story", name="again")
    assert again.digest == made.digest
    # What TEMPLATE says is for all conversations.
    make("FROM story\nTEMPLATE chatml", name="other")
    other = store.resolve("other").files
    assert name not in other
    assert other["chat_template.jinja"].read_text() == builtin_templates()["chatml"].source


def test_an_import_that_changes_nothing_keeps_its_config(llama: Llama, make: Make, store: Store) -> None:
    folder = llama("target", dtype=mx.float32)
    make("FROM ./target")
    assert store.resolve(NAME).files["config.json"].read_bytes() == (folder / "config.json").read_bytes()


def test_planning_imports_no_mlx() -> None:
    code = "import sys, modelkit.pack.build; sys.exit('mlx' in sys.modules or 'numpy' in sys.modules)"
    root = Path(__file__).resolve().parents[3]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
