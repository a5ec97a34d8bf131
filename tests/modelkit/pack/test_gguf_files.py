"""What is taken for a GGUF model: by its first bytes, of a folder, and beside what else."""

import json
from pathlib import Path

import numpy as np
import pytest

import modelkit
from modelkit.errors import SourceError, UnsupportedSource
from modelkit.modelfile import Modelfile
from modelkit.pack.build import build
from modelkit.pack.sources import open_gguf
from modelkit.store.name import Name
from modelkit.store.store import Store
from tests.support import gguf_llama
from tests.support.gguf import Gguf, Tensor
from tests.support.gguf_package import create, write


@pytest.mark.parametrize("name", ["sha256-" + "a" * 64, "ggml-model-f16.bin", "m.Q8_0", "m.ggml"])
def test_a_file_is_known_by_its_first_bytes(name: str, tmp_path: Path) -> None:
    """What `ollama show --modelfile` prints names blobs, of models and of adapters."""
    (tmp_path / name).write_bytes(gguf_llama.llama(["f32"]))
    pair = {"blk.0.attn_q.weight.lora_a": np.ones((3, 256)), "blk.0.attn_q.weight.lora_b": np.ones((256, 3))}
    tensors = [Tensor(key, "f32", one.shape, one.astype(np.float32).tobytes()) for key, one in pair.items()]
    said = {"general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": 6.0}
    (tmp_path / "sha256-bb").write_bytes(bytes(Gguf({"general.architecture": "llama", **said}, tensors)))
    recipe = Modelfile.parse(f"FROM ./{name}\nADAPTER ./sha256-bb\n").recipe(tmp_path)
    build(recipe, Name.parse("m"), Store(tmp_path / "home"))
    package = Store(tmp_path / "home").resolve("m")
    assert json.loads(package.files["config.json"].read_bytes())["model_type"] == "llama"
    assert "adapters/sha256-bb/adapter.safetensors" in package.files
    with modelkit.load(tmp_path / name) as model:
        assert model.logits([1, 5]).shape == (2, gguf_llama.VOCABULARY)


@pytest.mark.parametrize("name", ["ggml-model-f16.bin", "model.ggmlv3.q4_0.bin", "pytorch_model.bin"])
def test_a_folders_only_weights_are_known_by_their_first_bytes(name: str, tmp_path: Path) -> None:
    """llama.cpp's converter called its GGUF files so at first."""
    folder = write(tmp_path / "model", gguf_llama.llama(["f32"]), name).parent
    (folder / "README.md").write_bytes(b"GGUF is what it is")
    with modelkit.load(folder) as model:
        assert model.logits([1, 5]).shape == (2, gguf_llama.VOCABULARY)


@pytest.mark.parametrize(
    ("head", "said"), [(b"lmgg", "is a GGML file, not safetensors"), (b"PK\3\4", "is a ZIP archive")]
)
@pytest.mark.parametrize("name", ["ggml-model-f16.bin", "sha256-aa"])
def test_what_a_named_file_is_instead_is_told_by_its_first_bytes(
    name: str, head: bytes, said: str, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedSource, match=said):
        modelkit.load(write(tmp_path / "model", head + bytes(100), name))


def test_a_folder_stands_for_the_only_model_in_it(store: Store, tmp_path: Path) -> None:
    content = gguf_llama.llama(["q8_0"])
    folder = write(tmp_path / "s", content, "tiny-Q8_0.gguf").parent
    write(folder, b"", "mmproj-tiny.gguf")
    assert create(store, folder).files
    write(folder, content, "tiny-Q4_K_M.gguf")
    with pytest.raises(
        UnsupportedSource, match=r"2 GGUF models: tiny-Q4_K_M\.gguf, tiny-Q8_0\.gguf"
    ) as caught:
        create(store, folder)
    assert f"Name one of them, such as {folder}/tiny-Q4_K_M.gguf." in str(caught.value)


def test_documents_in_the_folder_come_along_and_other_files_are_noted(store: Store, tmp_path: Path) -> None:
    folder = write(tmp_path / "s", gguf_llama.llama(["q8_0"])).parent
    for name in ("LICENSE", "README.md", "chat_template.jinja", "generation_config.json", "mmproj-x.gguf"):
        (folder / name).write_text("{}")
    package = create(store, folder)
    assert {"LICENSE", "README.md"} <= package.files.keys()
    assert package.files["generation_config.json"].read_text() != "{}"
    assert "chat_template.jinja" not in package.files
    note = "not kept: chat_template.jinja, generation_config.json (the GGUF file says what they would say)"
    with modelkit.load(folder, home=tmp_path) as model:
        assert note in model.notes
        assert any(one.startswith("not kept: mmproj-x.gguf (beside the model") for one in model.notes)
    (folder / "LICENSE").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(SourceError, match="LICENSE is a Git-LFS pointer"):
        create(store, folder)


def test_no_model_is_refused_by_what_it_is(store: Store, tmp_path: Path) -> None:
    for kind in ("adapter", "mmproj", "imatrix"):
        path = write(tmp_path / "s", gguf_llama.llama(["q8_0"], more={"general.type": kind}))
        with pytest.raises(SourceError, match=kind):
            create(store, path)


def test_what_a_file_has_beside_its_model_is_told_where_it_is_run_too(tmp_path: Path) -> None:
    made = gguf_llama.tensors(["nvfp4"])
    made.append(Tensor("v.patch_embd.weight", "f32", (4,), bytes(16)))
    made.append(Tensor("blk.0.ffn_up.input_scale", "f32", (1,), bytes(4)))
    path = write(tmp_path / "s", bytes(Gguf(gguf_llama.metadata(), made)))
    notes = open_gguf(path, "it").notes
    assert "1 tensors for images and sound are left out" in notes
    assert "1 scales that activations would be rounded by are left out" in notes
    with modelkit.load(path, home=tmp_path) as model:
        assert set(notes) <= set(model.notes)
    modelfile = Modelfile.parse(f"FROM {path}")
    assert set(notes) <= set(modelkit.create(modelfile, name="it", home=tmp_path).notes)
