"""What is refused leaves one clear error and an unchanged store; so do failures, and a kill."""

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

from modelkit.errors import (
    ModelkitError,
    ModelNotFound,
    PlanError,
    SourceError,
    StoreError,
    TokenizerError,
)
from modelkit.modelfile import Modelfile
from modelkit.pack import build as building
from modelkit.pack.build import Created
from modelkit.pack.prepare import prepare
from modelkit.pack.writing import transform as transforming
from modelkit.store.name import Name
from modelkit.store.store import Store
from runtime.weights.files import load_file

Llama = Callable[..., Path]
Make = Callable[..., Created]
NAME = Name.parse("story")


def blobs(store: Store) -> set[str]:
    return {path.name for path in (store.root / "blobs" / "sha256").iterdir()}


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


def _many_files(folder: Path) -> None:
    for number in range(4096):
        (folder / f"LICENSE-{number}").touch()


def _lfs_pointer(folder: Path) -> None:
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")


def _norm_of(kind: type) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / "model.safetensors"
        arrays = {name: np.array(array.astype(mx.float32)) for name, array in load_file(path).items()}
        save_file({**arrays, "model.norm.weight": arrays["model.norm.weight"].astype(kind)}, path)

    return spoil


def _wrapped(folder: Path) -> None:
    path = folder / "model.safetensors"
    arrays = {f"_orig_mod.{name}": np.array(one.astype(mx.float32)) for name, one in load_file(path).items()}
    save_file(arrays, path)


@pytest.mark.parametrize(
    ("spoil", "kind", "says"),
    [
        (_unknown_architecture, PlanError, "FrobnicateForCausalLM"),
        (_wrong_shape, PlanError, "do not fit its config(?s:.*)\nTake all files from the same model"),
        (_wrapped, PlanError, "do not fit its config(?s:.*)\nEvery name begins with `_orig_mod.`, as torch"),
        (_norm_of(np.complex64), PlanError, r"model\.norm\.weight has dtype C64, which is not read"),
        (_norm_of(np.int64), PlanError, r"model\.norm\.weight has dtype int64, expected float"),
        (_norm_of(np.bool_), PlanError, r"model\.norm\.weight has dtype bool, expected float"),
        (_no_tokenizer, SourceError, "has no tokenizer.json"),
        (_bad_tokenizer, TokenizerError, "tokenizer.json"),
        (_lfs_pointer, SourceError, "LFS"),
        (_many_files, StoreError, "1 to 4,096 files, not 4,10"),
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
    with pytest.raises((PlanError, StoreError), match=says):
        make("FROM ./target\nDRAFT ./draft", quantize="q4")
    assert not store.root.exists()


@pytest.mark.parametrize(
    ("text", "options", "kind", "says"),
    [
        ("FROM ./target", {"quantize": "q9"}, PlanError, "no format 'q9'"),
        ("FROM ./target", {"quantize_draft": "q4"}, PlanError, "no draft to store as q4"),
        ("FROM ./target\nADAPTER ./target", {}, SourceError, "is a model, not an adapter"),
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
    with pytest.raises(PlanError, match="Modelfile:2:1: the draft is its own target"):
        make("FROM base\nDRAFT base")


def test_in_fewer_bits_a_model_can_draft_for_itself(llama: Llama, make: Make) -> None:
    llama("target")
    draft = make("FROM ./target\nDRAFT ./target\nQUANTIZE draft q4").preparation.draft
    assert draft
    assert draft.plan.label == "q4"


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

    def fail(*_: object, **__: object) -> None:
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


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "README.md", "model.safetensors"])
@pytest.mark.parametrize("how", ["written", "replaced", "gone"])
def test_a_folder_that_changes_between_looking_and_reading_is_refused(
    llama: Llama, store: Store, tmp_path: Path, name: str, how: str
) -> None:
    folder = llama("target")
    (folder / "README.md").write_text("# Story")
    prepared = prepare(Modelfile.parse("FROM ./target").recipe(tmp_path), store)
    content = (folder / name).read_bytes()
    if how != "written":
        (folder / name).unlink()
    if how != "gone":
        (folder / name).write_bytes(content.replace(b"w7", b"z7") + b" " * (how == "written"))
    with pytest.raises(SourceError, match=f"{name} changed while|{name}: no such file"):
        building.write_package(prepared, NAME, store)
    assert not store.packages()


def run_python(code: str, *arguments: str) -> int:
    root = Path(__file__).resolve().parents[3]
    return subprocess.run([sys.executable, "-c", code, *arguments], cwd=root, check=False).returncode


KILLED = """
import os, sys
from pathlib import Path
from modelkit.modelfile import Modelfile
from modelkit.pack.writing import transform
from modelkit.pack.build import build
from modelkit.store.name import Name
from modelkit.store.store import Store

transform.transform = lambda *_, **__: os._exit(137)
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


@pytest.mark.parametrize("role", ["target", "draft"])
def test_documents_of_names_that_no_package_can_have_are_no_reason_to_refuse(
    role: str, llama: Llama, make: Make, store: Store
) -> None:
    folders = {"target": llama("target"), "draft": llama("draft", num_hidden_layers=1)}
    for name in ("README: old.md", "NOTICE", "notice"):
        (folders[role] / name).touch()
    notes = make("FROM ./target\nDRAFT ./draft").notes
    before, inside = ("", "") if role == "target" else ("draft: ", "draft/")
    assert f"{before}not kept: README: old.md (not a safe file name)" in notes
    assert f"{before}not kept: notice (the name of another but for capitals)" in notes
    found = [name for name in store.resolve(NAME).files if "NOTICE" in name.upper()]
    assert found == [f"{inside}NOTICE"]


def test_a_matrix_that_config_json_says_otherwise_of_is_refused(
    llama: Callable[..., Path], make: Callable[..., Created]
) -> None:
    """Eight bits by 32 have as many scales as four bits by 64, of rows that are half as long."""
    folder, module = llama("target"), "model.layers.1.mlp.up_proj"
    path = folder / "model.safetensors"
    arrays = mx.load(str(path), format="safetensors")
    assert isinstance(arrays, dict)
    parts = mx.quantize(arrays.pop(f"{module}.weight"), group_size=32, bits=8)
    names = (f"{module}.{leaf}" for leaf in ("weight", "scales", "biases"))
    mx.save_safetensors(str(path), {**arrays, **dict(zip(names, parts, strict=True))})
    config = json.loads((folder / "config.json").read_text())
    block: dict[str, Any] = {"group_size": 64, "bits": 4}

    def write() -> None:
        (folder / "config.json").write_text(json.dumps({**config, "quantization": block}))

    write()
    with pytest.raises(PlanError, match=rf"{module}\.weight is packed in 8 bits in groups of 32, and config"):
        make("FROM ./target")
    block[module] = {"group_size": 32, "bits": 8}
    write()
    make("FROM ./target")
