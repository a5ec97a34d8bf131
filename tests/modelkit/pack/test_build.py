"""From a Modelfile to a stored package, through the real store, tokenizer and architectures."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from modelkit.errors import (
    ModelkitError,
    ModelNotFound,
    PlanError,
    SourceError,
    StoreError,
    TemplateError,
    TokenizerError,
)
from modelkit.modelfile import Recipe
from modelkit.pack import build as building
from modelkit.pack import transform as transforming
from modelkit.pack.build import Created, build
from modelkit.pack.prepare import prepare
from modelkit.store import memo
from modelkit.store.name import Name
from modelkit.store.store import Store
from runtime.loaded import load_model

Llama = Callable[..., Path]
Read = Callable[[str], Recipe]
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


@pytest.fixture
def make(store: Store, recipe: Read) -> Callable[..., Created]:
    def create(text: str, name: str = "story", **options: Any) -> Created:
        return build(recipe(text), Name.parse(name), store, **options)

    return create


Make = Callable[..., Created]


def metadata(store: Store, name: str = "story") -> dict[str, Any]:
    return json.loads(store.resolve(name).files["modelkit.json"].read_bytes())


def blobs(store: Store) -> set[str]:
    return {path.name for path in (store.root / "blobs" / "sha256").iterdir()}


def test_an_unquantized_import_keeps_the_weights_byte_for_byte(
    llama: Llama, make: Make, store: Store
) -> None:
    folder = llama("target")
    assert not make("FROM ./target").converted
    stored = store.resolve(NAME).files["model.safetensors"]
    assert stored.read_bytes() == (folder / "model.safetensors").read_bytes()


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


# FROM a stored package


@pytest.fixture
def base(llama: Llama, make: Make) -> Created:
    llama("target")
    llama("draft", num_hidden_layers=1)
    return make(
        "FROM ./target\nDRAFT ./draft\nSYSTEM be brief\nPARAMETER temperature 0.5\nPARAMETER top_k 7\n"
        "MESSAGE user hi\nLICENSE mine",
        "base",
    )


def test_a_package_made_from_a_package_alone_is_that_package(base: Created, make: Make) -> None:
    assert make("FROM base").digest == base.digest


def test_what_the_modelfile_says_replaces_what_the_package_says(
    base: Created, make: Make, store: Store
) -> None:
    make("FROM base\nPARAMETER top_k 9\nMESSAGE user bye\nMESSAGE assistant ok")
    found = metadata(store)
    assert found["parameters"] == {"temperature": 0.5, "top_k": 9}
    assert [message["content"] for message in found["messages"]] == ["bye", "ok"]
    assert found["system"] == "be brief"


def test_an_empty_system_takes_the_inherited_one_away(base: Created, make: Make, store: Store) -> None:
    make('FROM base\nSYSTEM ""')
    assert "system" not in metadata(store)


TURNS = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"


def test_a_template_becomes_the_models_template(base: Created, make: Make, store: Store) -> None:
    make(f'FROM base\nTEMPLATE """{TURNS}"""')
    assert store.resolve(NAME).files["chat_template.jinja"].read_text() == TURNS
    assert metadata(store)["template"] == "modelfile"
    make("FROM story", "again")
    assert store.resolve("again").digest == store.resolve(NAME).digest


def test_a_template_that_does_not_work_is_refused(base: Created, make: Make) -> None:
    with pytest.raises(TemplateError):
        make('FROM base\nTEMPLATE """{{ messages[0].nope.nope.nope }}"""')


def test_a_model_with_a_broken_template_of_its_own_is_noted(llama: Llama, make: Make) -> None:
    folder = llama("target")
    (folder / "chat_template.jinja").write_text("{{ ''.__class__.__mro__ }}")
    (note,) = make("FROM ./target").notes
    assert note.startswith("the model's chat template does not work here")


def test_licenses_are_added_without_repeats(base: Created, make: Make, store: Store) -> None:
    make("FROM base\nLICENSE mine\nLICENSE yours")
    files = store.resolve(NAME).files
    assert [files[name].read_text() for name in ("LICENSE", "LICENSE-2")] == ["mine", "yours"]
    assert "LICENSE-3" not in files


def test_draft_replaces_the_inherited_draft(base: Created, make: Make, llama: Llama, store: Store) -> None:
    llama("other", seed=5, num_hidden_layers=1)
    make("FROM base\nDRAFT ./other")
    other = store.resolve(NAME).files["draft/model.safetensors"].read_bytes()
    assert other != store.resolve("base").files["draft/model.safetensors"].read_bytes()


def test_a_stored_package_can_be_the_draft(base: Created, make: Make, llama: Llama, store: Store) -> None:
    llama("small", num_hidden_layers=1)
    make("FROM ./small", "small")
    created = make("FROM base\nDRAFT small")
    assert store.resolve(NAME).files["draft/config.json"] == store.resolve("small").files["config.json"]
    assert created.preparation.draft is not None


def test_the_inherited_draft_can_be_quantized_alone(base: Created, make: Make, store: Store) -> None:
    make("FROM base", quantize_draft="q8")
    files = store.resolve(NAME).files
    assert "quantization" in json.loads(files["draft/config.json"].read_bytes())
    assert files["model.safetensors"] == store.resolve("base").files["model.safetensors"]


# Refusals: one clear error, an unchanged store


def changed(folder: Path, **values: Any) -> None:
    config = json.loads((folder / "config.json").read_bytes())
    (folder / "config.json").write_text(json.dumps(config | values))


def _unknown_architecture(folder: Path) -> None:
    changed(folder, architectures=["FrobnicateForCausalLM"])


def _wrong_shape(folder: Path) -> None:
    changed(folder, intermediate_size=256)


def _no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def _bad_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")


def _other_tokenizer(folder: Path) -> None:
    text = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(text.replace("w7", "z7"))


def _lfs_pointer(folder: Path) -> None:
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")


@pytest.mark.parametrize(
    ("spoil", "kind", "says"),
    [
        (_unknown_architecture, PlanError, "FrobnicateForCausalLM"),
        (_wrong_shape, PlanError, "do not fit its config"),
        (_no_tokenizer, SourceError, "has no tokenizer.json"),
        (_bad_tokenizer, TokenizerError, "tokenizer.json"),
        (_lfs_pointer, SourceError, "LFS"),
    ],
)
def test_a_bad_target_is_refused(
    llama: Llama,
    make: Make,
    store: Store,
    spoil: Callable[[Path], None],
    kind: type[ModelkitError],
    says: str,
) -> None:
    spoil(llama("target"))
    with pytest.raises(kind, match=says):
        make("FROM ./target", quantize="q4")
    assert not store.root.exists()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_unknown_architecture, "the draft .* cannot be run"),
        (_wrong_shape, "do not fit its config"),
        (_other_tokenizer, "the draft's tokenizer is not the target's: id 7"),
    ],
)
def test_a_bad_draft_is_refused(
    llama: Llama, make: Make, store: Store, spoil: Callable[[Path], None], says: str
) -> None:
    llama("target")
    spoil(llama("draft", num_hidden_layers=1))
    with pytest.raises(PlanError, match=says):
        make("FROM ./target\nDRAFT ./draft", quantize="q4")
    assert not store.root.exists()


@pytest.mark.parametrize(
    ("text", "options", "kind", "says"),
    [
        ("FROM ./target", {"quantize": "q9"}, PlanError, "no format 'q9'"),
        ("FROM ./target", {"quantize_draft": "q4"}, PlanError, "no draft to store as q4"),
        ("FROM ./target\nADAPTER ./target", {}, PlanError, "adapters are not applied"),
        ("FROM ./target\nREQUIRES 99.0", {}, PlanError, "requires modelkit 99.0.0"),
        ("FROM nowhere", {}, ModelNotFound, "no file, folder or stored model 'nowhere'"),
        ("FROM ./target\nDRAFT nowhere", {}, ModelNotFound, "nowhere"),
    ],
)
def test_a_bad_request_is_refused(
    llama: Llama,
    make: Make,
    store: Store,
    text: str,
    options: dict[str, str],
    kind: type[ModelkitError],
    says: str,
) -> None:
    llama("target")
    with pytest.raises(kind, match=says):
        make(text, **options)
    assert not store.root.exists()


def test_a_quantized_package_is_not_quantized_again(llama: Llama, make: Make) -> None:
    llama("target")
    make("FROM ./target", "small", quantize="q4")
    with pytest.raises(PlanError, match="small is quantized already"):
        make("FROM small", quantize="q8")


def test_a_package_is_no_draft_of_itself(llama: Llama, make: Make) -> None:
    llama("target")
    make("FROM ./target", "base")
    with pytest.raises(PlanError, match="the draft is its own target"):
        make("FROM base\nDRAFT base")


def test_a_full_disk_is_noticed_before_the_first_byte(
    llama: Llama, make: Make, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    llama("target")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 0))  # pyright: ignore
    with pytest.raises(StoreError, match="must be written"):
        make("FROM ./target", quantize="q4")
    assert not store.root.exists()


@pytest.mark.parametrize("fault", [RuntimeError, KeyboardInterrupt])
def test_a_failure_while_writing_changes_no_name_and_leaves_no_blob(
    llama: Llama,
    make: Make,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    fault: type[BaseException],
) -> None:
    llama("target")
    before = make("FROM ./target")
    kept = blobs(store)

    def fail(*_: object) -> None:
        raise fault

    monkeypatch.setattr(transforming, "transform", fail)
    with pytest.raises(fault):
        make("FROM ./target", quantize="q4")
    assert store.resolve(NAME).digest == before.digest
    assert blobs(store) == kept
    assert not store.prune(dry_run=True).temp_files


def test_a_failure_at_the_last_step_leaves_no_name(
    llama: Llama, make: Make, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    llama("target")

    def fail(*_: object, **__: object) -> None:
        raise StoreError("no")

    monkeypatch.setattr(building, "build_artifact", fail)
    with pytest.raises(StoreError):
        make("FROM ./target", quantize="q4")
    with pytest.raises(ModelNotFound):
        store.resolve(NAME)


def run_python(code: str, *arguments: str) -> int:
    root = Path(__file__).resolve().parents[3]
    return subprocess.run([sys.executable, "-c", code, *arguments], cwd=root, check=False).returncode


KILLED = """
import os, sys
from pathlib import Path
from modelkit.modelfile import Modelfile
from modelkit.pack import transform
from modelkit.pack.build import build
from modelkit.store.name import Name
from modelkit.store.store import Store

transform.transform = lambda *_: os._exit(137)
folder = Path(sys.argv[1])
recipe = Modelfile.parse("FROM ./target").recipe(folder)
build(recipe, Name.parse("story"), Store(folder / "home"), quantize="q4")
"""


def test_a_kill_leaves_temporary_files_only(llama: Llama, make: Make, store: Store, tmp_path: Path) -> None:
    llama("target")
    before = make("FROM ./target")
    assert run_python(KILLED, str(tmp_path)) == 137
    assert store.resolve(NAME).digest == before.digest
    left = store.prune()
    assert left.temp_files
    assert not left.blobs
    assert not store.verify().problems


def test_planning_imports_no_mlx() -> None:
    code = "import sys, modelkit.pack.build; sys.exit('mlx' in sys.modules or 'numpy' in sys.modules)"
    assert run_python(code) == 0


# What is said about it


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
    created = make("FROM ./target\nRENDERER qwen3\nPARSER qwen3")
    assert "RENDERER qwen3 is recorded; here the chat template decides" in created.notes
    assert metadata(store)["parser"] == "qwen3"


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


def test_an_import_that_changes_nothing_keeps_its_config(llama: Llama, make: Make, store: Store) -> None:
    folder = llama("target", dtype=mx.float32)
    make("FROM ./target")
    assert store.resolve(NAME).files["config.json"].read_bytes() == (folder / "config.json").read_bytes()
