"""Names as other programs write them: what is said, and what is found in their folders."""

import errno
import json
import os
import pwd
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import modelkit
from modelkit.errors import FetchError, ModelNotFound, SourceError, StoreError
from modelkit.fetch.find import find_local, what_to_do, where_to_get
from modelkit.pack.origins import recall
from modelkit.settings.places import (
    HubSettings,
    credential_files,
    hub_cache,
    llama_cpp_folders,
    lm_studio_folders,
    ollama_folders,
)
from modelkit.store.digest import Digest
from modelkit.store.store import Store
from tests.support.gguf import Gguf, Tensor
from tests.support.gguf_llama import llama
from tests.support.tiny import write_model

pytestmark = pytest.mark.usefixtures("cache")


def test_a_bare_name_of_the_hub_is_not_fetched_and_the_command_is_said() -> None:
    assert "modelkit pull hf.co/Qwen/Qwen3-8B" in (where_to_get("Qwen/Qwen3-8B") or "")


def test_a_name_of_ollamas_library() -> None:
    said = where_to_get("llama3.2:1b") or ""
    assert "ollama:llama3.2:1b" in said
    assert "modelkit pull ollama.com/llama3.2:1b" in said
    assert "hf.co" not in said
    assert "modelkit pull hf.co/Qwen/Qwen3-8B-GGUF:Q8_0" in (where_to_get("Qwen/Qwen3-8B-GGUF:Q8_0") or "")


@pytest.mark.parametrize("text", ["a/b/c", "", "bad name", "../x/y", "./a/b"])
def test_what_no_other_program_calls_a_model_is_left_to_the_store(text: str) -> None:
    assert where_to_get(text) is None
    assert find_local(text) is None


def test_a_bare_word_leads_to_ollamas_library_unless_it_is_close_to_a_package() -> None:
    """`modelkit run qwen3`, as with Ollama, was told to list the packages, of which there were none yet."""
    missing, typed = (ModelNotFound("", hint="its own", close=close) for close in (False, True))
    said = what_to_do("qwen3", missing) or ""
    assert "modelkit pull ollama.com/qwen3" in said
    assert "hf.co/OWNER/qwen3" in said
    assert what_to_do("sto-ry", typed) == "its own"


@pytest.fixture
def snapshot(cache: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A model in huggingface_hub's cache, at a commit, with its blobs under their digests."""

    def write(commit: str) -> Path:
        model, root = write_model(tmp_path / commit), cache / "models--Qwen--Qwen3-8B"
        folder, blobs = root / "snapshots" / commit, root / "blobs"
        folder.mkdir(parents=True)
        blobs.mkdir(exist_ok=True)
        for file in model.iterdir():
            blob = blobs / Digest.of(file.read_bytes()).hex
            file.replace(blob)
            (folder / file.name).symlink_to(os.path.relpath(blob, folder))
        (root / "refs").mkdir(exist_ok=True)
        (root / "refs" / "main").write_text(commit)
        return folder

    return write


def test_a_model_in_the_cache_is_used_with_a_note(snapshot: Callable[[str], Path], tmp_path: Path) -> None:
    snapshot("b" * 40), snapshot("a" * 40)
    with modelkit.load("Qwen/Qwen3-8B", home=tmp_path / "home") as model:
        assert any("huggingface_hub's cache (commit aaaaaaaaaaaa, of today)" in note for note in model.notes)


def test_a_stored_package_goes_before_the_cache(snapshot: Callable[[str], Path], tmp_path: Path) -> None:
    snapshot("a" * 40)
    (tmp_path / "Modelfile").write_text("FROM Qwen/Qwen3-8B\n")
    modelkit.create(tmp_path / "Modelfile", name="qwen/qwen3-8b", home=tmp_path / "home")
    with modelkit.load("Qwen/Qwen3-8B", home=tmp_path / "home") as model:
        assert model.name == "qwen/qwen3-8b"


def test_a_snapshot_that_is_not_whole_is_said_to_be_so(
    snapshot: Callable[[str], Path], tmp_path: Path
) -> None:
    (snapshot("a" * 40) / "config.json").unlink()
    with pytest.raises(SourceError, match=r"no config\.json"):
        modelkit.load("Qwen/Qwen3-8B", home=tmp_path / "home")


def test_the_folder_of_all_versions_points_to_the_newest(snapshot: Callable[[str], Path]) -> None:
    folder = snapshot("a" * 40)
    with pytest.raises(SourceError) as caught:
        modelkit.load(folder.parents[1])
    assert caught.value.hint == f"Name the newest: {folder}"


def test_lm_studios_folder_is_found_and_never_shared_by_name(tmp_path: Path) -> None:
    folder = write_model(tmp_path / ".lmstudio" / "models" / "Amy" / "Story-MLX")
    (tmp_path / "Modelfile").write_text("FROM amy/story-mlx\n")
    made = modelkit.create(tmp_path / "Modelfile", name="x", home=tmp_path / "home")
    assert any(f"LM Studio's folder {folder}" in note for note in made.notes)
    assert (folder / "model.safetensors").stat().st_nlink == 1  # the user may change that file


def test_another_revision_than_main_is_used_and_said(cache: Path, snapshot: Callable[[str], Path]) -> None:
    for place, commit in enumerate(("a" * 40, "b" * 40)):
        os.utime(snapshot(commit), (1000 * (2 - place),) * 2)  # the first one came last
    refs = cache / "models--Qwen--Qwen3-8B" / "refs"
    (refs / "main").rename(refs / "v2")
    found = find_local("Qwen/Qwen3-8B")
    assert found is not None
    assert f"the newest one there, of another revision than main, commit {'a' * 12}" in found.notes[0]
    (refs / "main").write_text("b" * 40)
    found = find_local("Qwen/Qwen3-8B")
    assert found is not None
    assert f"cache (commit {'b' * 12}" in found.notes[0]


def test_llama_cpps_folder_is_found(tmp_path: Path) -> None:
    folder = tmp_path / ".cache" / "llama.cpp"
    folder.mkdir(parents=True)
    for name in ("amy_story-GGUF_story-Q4_K_M.gguf", "amy_story-GGUF_story-Q8_0.gguf", "amy_other_x.gguf"):
        (folder / name).write_bytes(b"GGUF")
    found = find_local("Amy/Story-GGUF")
    assert found is not None
    assert found.gguf == folder / "amy_story-GGUF_story-Q4_K_M.gguf"
    assert found.notes == (f"Amy/Story-GGUF is taken from llama.cpp's folder {folder}",)


def _lm_studio(home: Path) -> Path:
    folder = home / ".lmstudio" / "models" / "amy" / "story"
    folder.mkdir(parents=True)
    (folder / "story-Q8_0.gguf").symlink_to("/gone")
    return folder


def test_a_link_to_nowhere_beside_a_quant_is_left_out_with_a_note(tmp_path: Path) -> None:
    folder = _lm_studio(tmp_path)
    (folder / "story-Q4_0.gguf").write_bytes(b"GGUF")
    found = find_local("amy/story")
    assert found is not None
    assert found.gguf == folder / "story-Q4_0.gguf"
    assert found.notes[1:] == (
        f"{folder}/story-Q8_0.gguf links to /gone, which does not exist; it is left out",
    )


def test_links_of_other_models_are_nobodys_business(tmp_path: Path) -> None:
    folder = tmp_path / ".cache" / "llama.cpp"
    folder.mkdir(parents=True)
    (folder / "amy_story_story.gguf").write_bytes(b"GGUF")
    (folder / "bob_other_x.gguf").symlink_to("/gone")
    found = find_local("amy/story")
    assert found is not None
    assert len(found.notes) == 1


@pytest.mark.parametrize("beside", [[], ["model.safetensors", "config.json"]], ids=["alone", "safetensors"])
def test_a_link_to_nowhere_that_may_be_a_part_of_the_model_is_refused(
    beside: list[str], tmp_path: Path
) -> None:
    folder = _lm_studio(tmp_path)
    for name in beside:
        (folder / name).write_text("{}")
    with pytest.raises(SourceError, match="links to /gone, which does not exist"):
        find_local("amy/story")


def test_a_model_that_is_nowhere(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"modelkit pull hf\.co/Amy/Story"):
        modelkit.load("Amy/Story", home=tmp_path)


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"HOME": "/home/amy"}, "/home/amy/.cache/huggingface/hub"),
        ({"HOME": "/home/amy", "XDG_CACHE_HOME": "/c"}, "/c/huggingface/hub"),
        ({"HF_HOME": "/hf"}, "/hf/hub"),
        ({"HF_HOME": "/hf", "HF_HUB_CACHE": "/cache"}, "/cache"),
        ({"HOME": "/home/amy", "HF_HOME": "~/hf"}, "/home/amy/hf/hub"),
        ({"HOME": "/home/amy", "HF_HUB_CACHE": "~"}, "/home/amy"),
        ({"HF_HOME": "/big/$WHO/${WHO}$NOBODY", "WHO": "amy"}, "/big/amy/amy$NOBODY/hub"),
        ({"HF_HUB_CACHE": "$BIG/hub", "BIG": "/big"}, "/big/hub"),
    ],
)
def test_where_the_cache_is(environment: dict[str, str], folder: str) -> None:
    assert hub_cache(environment) == Path(folder)


def test_the_cache_is_where_huggingface_hub_has_it() -> None:
    code = "from huggingface_hub.constants import HF_HUB_CACHE; print(HF_HUB_CACHE)"
    for given in ({}, {"HF_HOME": "~/hf"}, {"HF_HUB_CACHE": "$BIG/hub", "BIG": "/b"}, {"HOME": ""}):
        run = [sys.executable, "-c", code]
        ran = subprocess.run(run, env=given, capture_output=True, text=True, check=True)
        assert str(hub_cache(given)) == ran.stdout.strip()


def test_without_home_the_users_folder_is_what_the_system_knows() -> None:
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert hub_cache({}) == home / ".cache" / "huggingface" / "hub"
    assert ollama_folders({})[0] == home / ".ollama" / "models"
    assert lm_studio_folders({})[0].is_relative_to(home)
    assert all(path.is_relative_to(home) for path in credential_files({}))


def test_what_the_surroundings_say_of_the_hub() -> None:
    plain = HubSettings.from_environment({"HOME": "/h"})
    assert (plain.endpoint, plain.offline) == ("https://huggingface.co", False)
    other = HubSettings.from_environment({"HF_ENDPOINT": "https://m.example.org/", "HF_HUB_OFFLINE": "1"})
    assert (other.endpoint, other.offline) == ("https://m.example.org", True)


def test_where_other_programs_keep_models(tmp_path: Path) -> None:
    assert ollama_folders({"OLLAMA_MODELS": "/m"}) == (Path("/m"),)
    assert ollama_folders({"HOME": "/h"})[0] == Path("/h/.ollama/models")
    assert llama_cpp_folders({"LLAMA_CACHE": "/l"}) == (Path("/l"),)
    assert llama_cpp_folders({"XDG_CACHE_HOME": "/c"}) == (Path("/c/llama.cpp"),)
    settings = tmp_path / ".lmstudio" / "settings.json"
    settings.parent.mkdir()
    for text, first in (
        ('{"downloadsFolder": "/big"}', "/big"),
        ("[]", None),
        ("no", None),
        ('{"x": 1}', None),
    ):
        settings.write_text(text)
        expected = Path(first) if first else tmp_path / ".lmstudio" / "models"
        assert lm_studio_folders({"HOME": str(tmp_path)})[0] == expected


def _ollama(tmp_path: Path, layers: list[dict[str, object]], tag: str = "latest") -> Path:
    root = tmp_path / "ollama"
    folder = root / "manifests" / "registry.ollama.ai" / "library" / "story"
    folder.mkdir(parents=True, exist_ok=True)
    config = _layer(root, "x", b"{}")
    manifest = {"schemaVersion": 2, "config": config, "layers": layers}
    (folder / tag).write_text(json.dumps(manifest))
    return root


def _layer(root: Path, kind: str, data: bytes) -> dict[str, object]:
    digest = Digest.of(data)
    (root / "blobs").mkdir(parents=True, exist_ok=True)
    (root / "blobs" / f"sha256-{digest.hex}").write_bytes(data)
    media_type = f"application/vnd.ollama.image.{kind}"
    return {"mediaType": media_type, "digest": str(digest), "size": len(data)}


def test_a_model_that_ollama_has_not_is_said_to_be_there_or_not(tmp_path: Path) -> None:
    with pytest.raises(
        FetchError, match=r"no story:latest on this machine .*\n.*pull ollama\.com/story:latest"
    ):
        modelkit.pull("ollama:story", home=tmp_path)


def test_a_store_of_ollamas_that_may_not_be_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, _: int) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("modelkit.fetch.ollama_store.read_small", refuse)
    with pytest.raises(FetchError, match=r"no story:latest .*ollama, which this user may not read\)"):
        modelkit.pull("ollama:story", home=tmp_path)


def test_a_blob_of_ollamas_that_may_not_be_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _ollama(tmp_path, [_layer(tmp_path / "ollama", "model", b"GGUF")])

    def refuse(path: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", refuse)
    with pytest.raises(StoreError, match=r"blobs/sha256-[0-9a-f]+: permission denied\n.*permission to read"):
        modelkit.pull("ollama:story", home=tmp_path / "home")


def test_a_blob_that_ollama_lacks_or_that_is_damaged(tmp_path: Path) -> None:
    root = tmp_path / "ollama"
    layers = [_layer(root, "model", b"GGUF"), _layer(root, "system", b"You are a pirate.")]
    _ollama(tmp_path, layers)
    blob = root / "blobs" / f"sha256-{Digest.of(b'You are a pirate.').hex}"
    blob.write_bytes(b"You are a parrot.")
    with pytest.raises(StoreError, match="is damaged"):
        modelkit.pull("ollama:story", home=tmp_path / "home")
    blob.unlink()
    with pytest.raises(StoreError, match="is missing"):
        modelkit.pull("ollama:story", home=tmp_path / "home")


def _lora(rank: int) -> bytes:
    """An adapter of `gguf_llama.llama()` as llama.cpp writes them."""
    left = np.ones((256, rank), np.float32)
    stored = {"blk.0.attn_q.weight.lora_a": left.T, "blk.0.attn_q.weight.lora_b": left}
    metadata = {"general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora"}
    tensors = [Tensor(name, "f32", array.shape, array.tobytes()) for name, array in stored.items()]
    return bytes(Gguf({**metadata, "adapter.lora.alpha": 6.0}, tensors))


def test_adapters_that_ollama_keeps_with_a_model_come_along(tmp_path: Path) -> None:
    root, home = tmp_path / "ollama", tmp_path / "home"
    model = _layer(root, "model", llama(["f32"]))
    _ollama(tmp_path, [model, _layer(root, "adapter", _lora(2)), _layer(root, "adapter", _lora(3))])
    made = modelkit.pull("ollama:story", home=home)
    with modelkit.load("story", home=home) as brought:
        assert brought.adapters == ("adapter-1", "adapter-2")
    # The one line that `show` prints of it says all: nothing names a file of another program's.
    (line,) = recall(Store(home), made.digest)
    assert line.keyword == "FROM"
    assert line.value.startswith("ollama.com/library/story:latest@sha256:")


def test_an_adapter_of_ollamas_that_is_damaged(tmp_path: Path) -> None:
    root = tmp_path / "ollama"
    _ollama(tmp_path, [_layer(root, "model", llama(["f32"])), _layer(root, "adapter", _lora(2))])
    blob = root / "blobs" / f"sha256-{Digest.of(_lora(2)).hex}"
    data = bytearray(blob.read_bytes())
    data[-3] ^= 1
    blob.write_bytes(data)
    with pytest.raises(SourceError, match="is not what it should be"):
        modelkit.pull("ollama:story", home=tmp_path / "home")


def test_a_draft_goes_without_its_adapters(tmp_path: Path) -> None:
    root, home = tmp_path / "ollama", tmp_path / "home"
    _ollama(tmp_path, [_layer(root, "model", llama(["f32"])), _layer(root, "adapter", _lora(2))])
    (tmp_path / "target.gguf").write_bytes(llama(["f16"]))
    (tmp_path / "Modelfile").write_text("FROM ./target.gguf\nDRAFT ollama:story\n")
    created = modelkit.create(tmp_path / "Modelfile", name="pair", home=home)
    assert "ollama:story:latest has adapters, which are not used for a draft" in created.notes
