"""Container tools understand the store: skopeo takes packages out of it and puts them back."""

import shutil
import subprocess
from pathlib import Path

import pytest

from modelkit.store import Digest, Name, Store
from tests.modelkit.store.packages import TREE, put, read

pytestmark = pytest.mark.skipif(not shutil.which("skopeo"), reason="skopeo is not installed")


def skopeo(*arguments: str) -> str:
    done = subprocess.run(["skopeo", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def reference(store: Store, name: str) -> str:
    return f"oci:{store.root}:{Name.parse(name).full}"


@pytest.mark.parametrize(
    "name",
    [
        *("story", "story:q4_k_m", "amy/my_story-2.5:q4", "localhost:5000/amy/story:1", "a--b"),
        *("_why/_the/_lucky:_stiff", "a__b", "a---b:x_"),
    ],
)
def test_every_name_can_be_addressed(store: Store, tmp_path: Path, name: str):
    digest = put(store, name)
    skopeo("copy", reference(store, name), f"dir:{tmp_path / 'out'}")
    assert Digest.of((tmp_path / "out" / "manifest.json").read_bytes()) == digest
    for data in TREE.values():
        assert (tmp_path / "out" / Digest.of(data).hex).read_bytes() == data


def test_out_and_back_is_the_same_package(store: Store, tmp_path: Path):
    digest = put(store, "story", format="safetensors")
    skopeo("copy", reference(store, "story"), f"dir:{tmp_path / 'out'}")
    store.remove("story")
    skopeo("copy", f"dir:{tmp_path / 'out'}", reference(store, "amy/back:2"))
    assert store.resolve("amy/back:2").digest == digest
    assert read(store, "amy/back:2") == TREE
    assert store.verify().problems == ()


def test_a_layout_that_skopeo_made_is_a_store(tmp_path: Path):
    first, second = Store(tmp_path / "first"), Store(tmp_path / "second")
    digest = put(first, "story")
    second.root.parent.mkdir()
    skopeo("copy", reference(first, "story"), reference(second, "story"))
    assert second.resolve("story").digest == digest
    put(second, "other", {"x.json": b"{}"})
    second.remove("story")
    assert [str(package.name) for package in second.packages()] == ["other"]
    assert second.prune().blobs == ()


def test_skopeo_leaves_our_other_names_alone(store: Store, tmp_path: Path):
    put(store, "story")
    put(store, "other", {"x.json": b"{}"})
    skopeo("copy", reference(store, "story"), f"dir:{tmp_path / 'out'}")
    skopeo("copy", f"dir:{tmp_path / 'out'}", reference(store, "story"))
    assert read(store, "story") == TREE
    assert read(store, "other") == {"x.json": b"{}"}
    assert len(store.packages()) == 2
