"""The store: its packages are found, listed, copied and removed, and others' layouts are read."""

import errno
import os
import stat
from pathlib import Path

import pytest

from modelkit.errors import InvalidName, ModelNotFound, StoreError
from modelkit.store import BrokenPackage, Digest, Package, Store, build_artifact, layout
from modelkit.store.disk import read_small
from tests.modelkit.store.packages import TREE, blob, blobs_named, blobs_on_disk, damage, names, put, read

# Reading


def test_reading_a_store_that_does_not_exist_creates_nothing(store: Store):
    assert store.packages() == []
    assert store.verify().problems == ()
    assert store.prune().blobs == ()
    assert store.memo_get("x") is None
    with pytest.raises(ModelNotFound):
        store.resolve("a")
    with pytest.raises(ModelNotFound):
        store.remove("a")
    assert not store.root.exists()


@pytest.mark.parametrize("home", ["file", "file/below", "link"])
def test_a_home_that_is_a_file_is_said_to_be_one(tmp_path: Path, home: str):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(StoreError, match="not a directory") as caught:
        put(Store(tmp_path / home), "story")
    assert caught.value.hint == "A file stands where the store needs a folder."
    assert (tmp_path / "file").read_text() == "mine"


def test_a_package_is_found_however_its_name_is_written(store: Store):
    put(store, "Amy/Story:Q4")
    assert str(store.resolve("amy/story:q4").name) == "amy/story:q4"
    with pytest.raises(InvalidName):
        store.resolve("../story")


def test_a_missing_name_suggests_each_package_once_by_its_shortest_name(store: Store):
    for name in ("stories", "stories8", "stories:q4"):
        put(store, name)
    with pytest.raises(ModelNotFound) as caught:
        store.resolve("storis")
    assert sorted(str(caught.value.hint).removeprefix("Did you mean ").rstrip("?").split(" or ")) == [
        "stories",
        "stories8",
        "stories:q4",
    ]


def test_a_missing_name_suggests_what_is_close(store: Store):
    put(store, "story:q4")
    with pytest.raises(ModelNotFound, match=r"Did you mean story:q4\?"):
        store.resolve("storry:q4")
    with pytest.raises(ModelNotFound, match="story:q4"):
        store.resolve("story")
    with pytest.raises(ModelNotFound, match="modelkit list"):
        store.resolve("qwen")


def test_a_size_counts_each_blob_once(store: Store):
    put(store, "story")
    package = store.resolve("story")
    assert package.size_bytes == sum(
        path.stat().st_size for path in (store.root / "blobs" / "sha256").iterdir()
    )


def test_a_package_knows_when_it_was_last_named(store: Store):
    put(store, "story")
    first = store.resolve("story").modified_s
    put(store, "story")
    assert first < store.resolve("story").modified_s


def test_packages_are_listed_by_name(store: Store):
    for name in ("b", "amy/z", "c:2", "c:1"):
        put(store, name)
    assert names(store) == ["amy/z", "b", "c:1", "c:2"]


def test_a_broken_package_is_listed_as_broken_and_hides_no_other(store: Store):
    put(store, "good")
    put(store, "bad", {"config.json": b"{}", "model.safetensors": b"lost"})
    blob(store, b"lost").unlink()
    bad, good = store.packages()
    assert isinstance(good, Package)
    assert isinstance(bad, BrokenPackage)
    assert "model.safetensors is missing" in bad.problem


@pytest.mark.parametrize("data", [b"", b"lost and found", b"los"])
def test_a_file_of_the_wrong_size_is_damage(store: Store, data: bytes):
    put(store, "bad", {"config.json": b"{}", "model.safetensors": b"lost"})
    damage(blob(store, b"lost"), data)
    with pytest.raises(StoreError, match=r"model\.safetensors has .* of 4 bytes"):
        store.resolve("bad")


def test_a_manifest_that_was_tampered_with_is_not_used(store: Store):
    digest = put(store, "bad")
    damage(store.root / "blobs" / "sha256" / digest.hex, b'{"layers":[]}')
    with pytest.raises(StoreError, match="not those its name promises"):
        store.resolve("bad")


def test_a_store_that_cannot_be_written_can_be_read(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    put(store, "story")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    before = sorted(store.root.rglob("*"))
    with store.hold("story") as package:
        assert package.files["LICENSE"].read_bytes() == b"MIT"
    assert store.verify().problems == ()
    assert sorted(store.root.rglob("*")) == before


def test_a_folder_of_another_kind_or_version_is_refused(store: Store):
    put(store, "story")
    (store.root / "oci-layout").write_text('{"imageLayoutVersion":"2.0.0"}')
    for action in (store.packages, store.prune, lambda: put(store, "other"), lambda: store.resolve("story")):
        with pytest.raises(StoreError, match=r"version 1\.0\.0 is expected"):
            action()


def test_a_store_of_another_user_is_not_written(store: Store, monkeypatch: pytest.MonkeyPatch):
    put(store, "story")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(StoreError, match="another user"):
        put(store, "other")
    assert names(store) == ["story"]


def test_a_file_where_the_store_should_be_is_named_in_the_error(tmp_path: Path):
    (tmp_path / "home").write_text("in the way")
    with pytest.raises(StoreError, match="home"):
        put(Store(tmp_path / "home"), "story")


def test_a_layout_made_by_another_tool_can_be_read_and_added_to(store: Store):
    put(store, "story")
    for extra in ("lock", "ingest", "conversions"):
        path = store.root / extra
        path.rmdir() if path.is_dir() else path.unlink()
    assert names(store) == ["story"]
    assert not (store.root / "lock").exists()
    put(store, "other")
    assert names(store) == ["other", "story"]


def test_what_may_not_be_read_is_no_reason_to_remove_it(store: Store, monkeypatch: pytest.MonkeyPatch):
    put(store, "story")
    read_small = layout.read_small

    def refusing(path: Path, limit_bytes: int) -> bytes:
        if path.parent == store.root / "blobs" / "sha256":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return read_small(path, limit_bytes)

    monkeypatch.setattr(layout, "read_small", refusing)
    with pytest.raises(StoreError, match="story cannot be used") as caught:
        store.resolve("story")
    assert "who owns the folder" in str(caught.value.hint)


@pytest.mark.timeout(60)
def test_pipes_that_nobody_writes_to_are_not_waited_for(store: Store):
    put(store, "story")
    (store.root / "lock").unlink()
    os.mkfifo(store.root / "lock")
    (store.root / "ingest" / "0").mkdir()
    os.mkfifo(store.root / "ingest" / "0" / "lease")
    os.mkfifo(store.root / "partial" / ("0" * 64))
    assert names(store) == ["story"]
    store.prune()
    assert list((store.root / "ingest").iterdir()) == []


# Copy, remove, hold


def test_a_copy_shares_everything_and_stands_alone(store: Store):
    digest = put(store, "story")
    before = blobs_on_disk(store)
    store.copy("story", "amy/tale:2")
    assert blobs_on_disk(store) == before
    store.remove("story")
    assert store.resolve("amy/tale:2").digest == digest
    assert read(store, "amy/tale:2") == TREE


def test_copying_over_a_name_frees_what_it_stood_for(store: Store):
    put(store, "a")
    put(store, "b", {"model.safetensors": b"only b's"})
    store.copy("a", "b")
    assert blobs_on_disk(store) == blobs_named(store)


def test_copying_to_itself_changes_nothing(store: Store):
    put(store, "a")
    before = (store.root / "index.json").read_bytes()
    store.copy("a", "A:latest")
    assert (store.root / "index.json").read_bytes() == before


def test_copying_what_is_not_there_changes_nothing(store: Store):
    put(store, "a")
    with pytest.raises(ModelNotFound):
        store.copy("b", "a")
    assert names(store) == ["a"]


def test_removing_frees_only_what_no_other_needs(store: Store):
    put(store, "a")
    put(store, "b", {**TREE, "model.safetensors": b"only b's"})
    freed = store.remove("b")
    assert Digest.of(b"only b's") in {blob.digest for blob in freed.blobs}
    assert freed.size_bytes == sum(blob.size_bytes for blob in freed.blobs)
    assert blobs_on_disk(store) == blobs_named(store)
    assert read(store, "a") == TREE


def test_removing_the_last_package_empties_the_store(store: Store):
    put(store, "a")
    store.remove("a")
    assert blobs_on_disk(store) == set()


def test_a_held_package_outlives_its_name_until_it_is_let_go(store: Store):
    put(store, "a")
    with store.hold("a") as package:
        assert store.remove("a").blobs == ()
        assert store.prune().blobs == ()
        assert package.files["model.safetensors"].read_bytes() == TREE["model.safetensors"]
    assert blobs_on_disk(store) == set()


def test_a_broken_package_can_be_removed(store: Store):
    digest = put(store, "bad")
    (store.root / "blobs" / "sha256" / digest.hex).unlink()
    store.remove("bad")
    assert names(store) == []
    store.prune()
    assert blobs_on_disk(store) == set()


def test_a_broken_package_is_healed_by_creating_it_again(store: Store):
    put(store, "bad")
    blob(store, TREE["model.safetensors"]).unlink()
    put(store, "bad")
    assert read(store, "bad") == TREE


def test_blobs_stay_readable_by_their_owner_only_folders(store: Store):
    with store.begin() as new:
        new.commit("a", build_artifact({"config.json": new.add_bytes(b"{}")}))
    assert stat.S_IMODE(store.root.stat().st_mode) == 0o700


def test_no_more_memory_is_asked_for_than_a_file_has(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"{}")
    assert read_small(tmp_path / "small", 1 << 60) == b"{}"
