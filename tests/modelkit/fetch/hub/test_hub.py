"""Models of the hub: what is fetched, what is said before, and what a package keeps of its origin."""

import errno
import hashlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import modelkit
from modelkit.cli.main import cli
from modelkit.errors import FetchError, SourceError, StoreError, UnsupportedSource
from modelkit.fetch.hub import obtain
from modelkit.showing.texts import modelfile
from modelkit.store.store import Store
from tests.support.hub import STORY, Hub, Listener, Repository
from tests.support.peft_folders import write_peft

KEPT = {
    *("LICENSE", "README.md", "chat_template.jinja", "config.json", "model.safetensors"),
    *("tokenizer.json", "tokenizer_config.json"),
}


def upstream(home: Path, name: str = "amy/story") -> dict[str, object]:
    package = Store(home).resolve(name)
    return json.loads(package.files["modelkit.json"].read_bytes())["provenance"]["target"]["upstream"]


def test_only_what_is_needed_is_fetched(hub: Hub, tmp_path: Path) -> None:
    modelkit.pull(STORY, home=tmp_path / "home")
    asked = {one.path.rpartition("/")[2] for one in hub.asked("/resolve/")}
    assert asked == KEPT
    assert {*Store(tmp_path / "home").resolve("amy/story").files} >= KEPT - {"model.safetensors"}


def test_what_will_be_fetched_is_said_before(hub: Hub, tmp_path: Path) -> None:
    told = Listener()
    modelkit.pull(STORY, home=tmp_path / "home", progress=told)
    files = hub.repositories["Amy/Story"].files
    total = sum(len(files[name]) for name in KEPT)
    assert told.said == [f"{STORY} (commit {'a' * 12}): 7 files to fetch, {obtain.size(total)}"]
    assert told.bars[0] == ("fetch Story", total)


def test_where_a_package_came_from_is_kept(hub: Hub, tmp_path: Path) -> None:
    hub.branches["v1"] = "a" * 40
    modelkit.pull(f"{STORY}@v1", home=tmp_path / "home", name="tale")
    found = upstream(tmp_path / "home", "tale")
    files = found.pop("files")
    assert found == {
        "kind": "hub",
        "endpoint": hub.endpoint,
        "repository": "Amy/Story",
        "commit": "a" * 40,
        "licence": "apache-2.0",
    }
    data = hub.repositories["Amy/Story"].files
    assert files == {
        name: {"digest": f"sha256:{hashlib.sha256(data[name]).hexdigest()}", "size": len(data[name])}
        for name in sorted(KEPT)
    }


def test_the_same_commit_gives_the_same_package_from_the_network_and_the_cache(
    hub: Hub, tmp_path: Path
) -> None:
    first = modelkit.pull(STORY, home=tmp_path / "a")
    again = modelkit.pull(STORY, home=tmp_path / "b", offline=True)
    (tmp_path / "Modelfile").write_text("FROM Amy/Story\n")
    bare = modelkit.create(tmp_path / "Modelfile", home=tmp_path / "c", name="x")
    assert first.digest == again.digest == bare.digest
    assert any("commit aaaaaaaaaaaa, of today" in note for note in again.notes)
    assert any("taken from huggingface_hub's cache" in note for note in bare.notes)


def test_a_modelfile_of_the_package_names_the_commit_and_makes_it_again(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "Modelfile").write_text(f"FROM {STORY}\nQUANTIZE q4\nSYSTEM Be brief.\n")
    made = modelkit.create(tmp_path / "Modelfile", name="story", home=tmp_path / "home")
    store = Store(tmp_path / "home")
    text = modelfile(store.resolve("story"), store)
    assert text.startswith(f"FROM {STORY}@{'a' * 40}\n")
    hub.repositories["Amy/Story"].files["config.json"] = (
        b"{}"  # the branch moves on; the commit stays in the cache
    )
    hub.repositories["Amy/Story"].commit = "b" * 40
    (tmp_path / "Modelfile").write_text(text)
    again = modelkit.create(tmp_path / "Modelfile", name="again", home=tmp_path / "other", offline=True)
    assert again.digest == made.digest


def test_list_and_show_say_where_a_package_came_from(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELKIT_HOME", str(tmp_path / "home"))
    pulled = CliRunner().invoke(cli, ["pull", STORY])
    assert pulled.exit_code == 0
    assert "7 files to fetch" in pulled.stderr
    assert pulled.stdout.startswith("pulled amy/story ")
    listed = CliRunner().invoke(cli, ["list"]).output
    assert listed.splitlines()[0].endswith("FROM")
    assert listed.splitlines()[1].endswith(STORY)
    shown = CliRunner().invoke(cli, ["show", "amy/story"]).output
    assert f"{STORY}@{'a' * 40}" in shown
    assert "apache-2.0" in shown


def test_the_weights_are_on_the_disk_once(hub: Hub, tmp_path: Path, cache: Path) -> None:
    modelkit.pull(STORY, home=tmp_path / "home")
    digest = hashlib.sha256(hub.repositories["Amy/Story"].files["model.safetensors"]).hexdigest()
    theirs = cache / "models--Amy--Story" / "blobs" / digest
    ours = Store(tmp_path / "home").root / "blobs" / "sha256" / digest
    shared = os.path.samefile(theirs, ours)  # else the disk shares blocks, which only it knows
    assert shared or theirs.stat().st_ino != ours.stat().st_ino
    if shared:
        assert ours.stat().st_mode & 0o222 == 0
    theirs.unlink()
    assert hashlib.sha256(ours.read_bytes()).hexdigest() == digest


def test_from_and_draft_and_load_take_an_address(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "Modelfile").write_text(f"FROM {STORY}\nDRAFT {STORY}\nPARAMETER seed 1\n")
    with pytest.raises(modelkit.errors.PlanError, match="the draft"):  # a model is not a draft of itself
        modelkit.create(tmp_path / "Modelfile", home=tmp_path / "home", name="x")
    with modelkit.load(STORY, home=tmp_path / "home") as model:
        assert model.name == "amy/story"
        assert len(model.generate("ab", raw=True, num_predict=3, temperature=0).ids) <= 3
    asked = len(hub.requests)
    modelkit.load(STORY, home=tmp_path / "home").close()
    assert len(hub.requests) == asked  # what a pull has stored is not asked for again


def test_without_a_network_the_cached_commit_is_used_and_named(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modelkit.pull(STORY, home=tmp_path / "a")
    hub.repositories["Amy/Story"].commit = "b" * 40
    hub.faults = {"api": ["503", "cut"]}
    for home, said in (("b", "answers with error 503"), ("c", "does not answer")):
        pulled = modelkit.pull(STORY, home=tmp_path / home)
        assert any(said in note and "commit aaaaaaaaaaaa" in note for note in pulled.notes)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert any("aaaaaaaaaaaa" in note for note in modelkit.pull(STORY, home=tmp_path / "d").notes)
    with pytest.raises(FetchError, match=r"127\.0\.0\.1 cannot be reached"):
        modelkit.pull("hf.co/Amy/Other", home=tmp_path / "e")


def test_a_branch_with_a_slash_is_fetched_and_found_again(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.branches["feature/x"] = "b" * 40
    pulled = modelkit.pull(f"{STORY}@feature/x", home=tmp_path / "a")
    assert str(pulled.name) == "amy/story:feature-x"
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert modelkit.pull(f"{STORY}@feature/x", home=tmp_path / "b").digest == pulled.digest
    with pytest.raises(FetchError, match="so none of Q8_0, as far as it is cached"):
        modelkit.pull(f"{STORY}:Q8_0@feature/x", home=tmp_path / "c")


def test_a_cache_that_only_others_write_to_is_read(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulled = modelkit.pull(STORY, home=tmp_path / "a")
    real = os.replace

    def refuse(source: Path, target: Path) -> None:
        if str(tmp_path / "hub") in str(target):
            raise PermissionError(errno.EACCES, "Permission denied")
        real(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    assert modelkit.pull(STORY, home=tmp_path / "b").digest == pulled.digest
    hub.repositories["Amy/Story"].commit = "b" * 40
    with pytest.raises(StoreError, match=r"permission denied\n.*HF_HUB_CACHE"):  # its links would be new
        modelkit.pull(STORY, home=tmp_path / "c")
    assert not list((tmp_path / "hub").rglob(".*"))  # what was begun is gone


def test_a_branch_that_moved_brings_its_new_files(hub: Hub, tmp_path: Path) -> None:
    first = modelkit.pull(STORY, home=tmp_path / "home")
    repository = hub.repositories["Amy/Story"]
    repository.commit, repository.files["LICENSE"] = "b" * 40, b"Ask first.\n"
    asked = len(hub.asked("/resolve/"))
    second = modelkit.pull(STORY, home=tmp_path / "home")
    assert first.digest != second.digest
    assert [one.path.rpartition("/")[2] for one in hub.asked("/resolve/")[asked:]] == ["LICENSE"]


def test_a_shard_that_the_index_does_not_name_is_not_fetched(hub: Hub, tmp_path: Path) -> None:
    files = hub.repositories["Amy/Story"].files
    data = files["model.safetensors"]
    names = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    shard = "model-00001-of-00001.safetensors"
    files[shard] = files.pop("model.safetensors")
    placed = {name: shard for name in names if name != "__metadata__"}
    files["model.safetensors.index.json"] = json.dumps({"weight_map": placed}).encode()
    files["model-fp16.safetensors"] = b"another"
    modelkit.pull(STORY, home=tmp_path / "home")
    assert not hub.asked("model-fp16")


def test_an_adapter_of_the_hub_goes_into_the_package(hub: Hub, tmp_path: Path) -> None:
    layer = "base_model.model.model.layers.0.self_attn.q_proj"
    tensors = {
        f"{layer}.lora_A.weight": np.ones((3, 64), "f4"),
        f"{layer}.lora_B.weight": np.ones((64, 3), "f4"),
    }
    hub.repositories["Amy/tale-1.5"] = Repository.of(
        write_peft(tmp_path / "adapter", tensors), **{"x.py": b"1", "chat_template.jinja": b"{{ messages }}"}
    )
    (tmp_path / "Modelfile").write_text(f"FROM {STORY}\nADAPTER hf.co/Amy/tale-1.5\n")
    created = modelkit.create(tmp_path / "Modelfile", name="told", home=tmp_path / "home")
    assert any("the chat template beside it" in note for note in created.notes)
    package = Store(tmp_path / "home").resolve("told")
    assert "adapters/tale-1.5/adapter.safetensors" in package.files
    assert not hub.asked("x.py")
    (tmp_path / "Modelfile").write_text("FROM hf.co/Amy/tale-1.5\n")
    with pytest.raises(UnsupportedSource, match="is a LoRA adapter, not a model"):
        modelkit.create(tmp_path / "Modelfile", name="told", home=tmp_path / "home")


def test_an_adapter_that_the_cache_has_damaged_is_refused(hub: Hub, tmp_path: Path, cache: Path) -> None:
    layer = "base_model.model.model.layers.0.self_attn.q_proj"
    tensors = {
        f"{layer}.lora_A.weight": np.ones((3, 64), "f4"),
        f"{layer}.lora_B.weight": np.ones((64, 3), "f4"),
    }
    hub.repositories["Amy/tale"] = Repository.of(write_peft(tmp_path / "adapter", tensors))
    (tmp_path / "Modelfile").write_text(f"FROM {STORY}\nADAPTER hf.co/Amy/tale\n")
    modelkit.create(tmp_path / "Modelfile", name="told", home=tmp_path / "home")
    (blob,) = {path.resolve() for path in cache.rglob("snapshots/*/adapter_model.safetensors")}
    data = bytearray(blob.read_bytes())
    data[-3] ^= 1
    blob.chmod(0o644)
    blob.write_bytes(data)
    with pytest.raises(SourceError, match="is not what it should be"):
        modelkit.create(tmp_path / "Modelfile", name="again", home=tmp_path / "other")


def test_a_cache_without_links_is_read(hub: Hub, tmp_path: Path, cache: Path) -> None:
    """As huggingface_hub makes it where a disk has none."""
    first = modelkit.pull(STORY, home=tmp_path / "a")
    for link in list(cache.rglob("snapshots/*/*")):
        data = link.read_bytes()
        link.unlink()
        link.write_bytes(data)
    shutil.rmtree(next(cache.rglob("blobs")))
    assert modelkit.pull(STORY, home=tmp_path / "b", offline=True).digest == first.digest
