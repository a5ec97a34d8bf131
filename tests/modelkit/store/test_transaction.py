"""Transactions: all of a package or nothing of it."""

import os
import sys
import threading
from pathlib import Path

import pytest

from modelkit.errors import StoreError
from modelkit.store import Artifact, Blob, Digest, Name, Store, build_artifact
from tests.modelkit.store.packages import TREE, blobs_named, blobs_on_disk, put, read


def test_a_committed_package_is_there_whole(store: Store):
    digest = put(store, "story", format="safetensors")
    package = store.resolve("story")
    assert package.digest == digest
    assert read(store, "story") == TREE
    assert package.config["config"] == {"format": "safetensors"}


def test_equal_files_have_equal_digests_in_any_store(tmp_path: Path):
    first, second = Store(tmp_path / "a"), Store(tmp_path / "elsewhere" / "b")
    assert put(first, "one") == put(second, "two", dict(reversed(TREE.items())))


def test_the_same_file_twice_is_stored_once(store: Store):
    put(store, "story")
    assert len(blobs_on_disk(store)) == len(set(TREE.values())) + 2  # and the manifest and the config


def test_leaving_without_commit_leaves_the_store_as_it_was(store: Store):
    put(store, "story")
    before = blobs_on_disk(store)
    with pytest.raises(RuntimeError), store.begin() as new:  # noqa: PT012 - the block is the point
        new.add_bytes(b"half a model")
        raise RuntimeError
    assert blobs_on_disk(store) == before
    assert list((store.root / "ingest").iterdir()) == []


def test_leaving_without_commit_spares_what_others_have(store: Store):
    put(store, "story")
    with store.begin() as new:
        new.add_bytes(TREE["model.safetensors"])
    assert read(store, "story") == TREE


def test_what_a_commit_does_not_use_is_freed(store: Store):
    with store.begin() as new:
        new.add_bytes(b"not in the package")
        new.commit(Name.parse("a"), build_artifact({"config.json": new.add_bytes(b"{}")}))
    assert blobs_on_disk(store) == blobs_named(store)


def test_replacing_a_package_frees_the_old_one(store: Store):
    put(store, "story", {**TREE, "model.safetensors": b"old"})
    put(store, "story")
    assert blobs_on_disk(store) == blobs_named(store)
    assert read(store, "story") == TREE


@pytest.mark.parametrize("size_bytes", [0, 3])
def test_a_package_with_a_missing_blob_is_not_named(store: Store, size_bytes: int):
    missing = Blob(Digest.of(b"never stored"), size_bytes)
    with store.begin() as new, pytest.raises(StoreError, match="is not in the store"):
        new.commit(Name.parse("a"), build_artifact({"config.json": missing}))
    assert store.packages() == []
    assert blobs_on_disk(store) == set()


def test_a_config_that_is_not_the_manifests_is_refused(store: Store):
    with store.begin() as new:
        blob = new.add_bytes(b"{}")
        good = build_artifact({"config.json": blob})
        other = build_artifact({"config.json": blob}, config={"format": "gguf"})
        with pytest.raises(StoreError, match="is not in the store"):
            new.commit("a", Artifact(good.manifest, other.config))
    assert store.packages() == []


def test_a_manifest_from_elsewhere_keeps_its_bytes(store: Store):
    with store.begin() as new:
        made = build_artifact({"config.json": new.add_bytes(b"{}")})
        loose = Artifact(b"\n " + made.manifest + b"\n", made.config)
        assert new.commit("a", loose) == Digest.of(loose.manifest)
    assert store.resolve("a").digest == Digest.of(loose.manifest)


def test_a_prune_meanwhile_spares_what_is_being_written(store: Store):
    with store.begin() as new, new.write_blob() as writer:
        blob = new.add_bytes(b"done")
        writer.write(b"not done")
        pruned = store.prune()
        assert (pruned.blobs, pruned.temp_files) == ((), ())
        new.commit("a", build_artifact({"a.json": blob, "b.json": writer.commit()}))
    assert read(store, "a") == {"a.json": b"done", "b.json": b"not done"}


def test_a_blob_found_in_time_is_kept_though_its_name_goes(store: Store):
    put(store, "old", {"config.json": b"{}", "model.safetensors": b"reused"})
    with store.begin() as new:
        found = new.has(Digest.of(b"reused"))
        store.remove("old")
        assert found is not None
        new.commit("new", build_artifact({"model.safetensors": found}))
    assert read(store, "new") == {"model.safetensors": b"reused"}
    assert blobs_on_disk(store) == blobs_named(store)


def test_two_transactions_at_once_both_succeed(store: Store):
    barrier = threading.Barrier(2)

    def create(name: str) -> None:
        with store.begin() as new:
            blob = new.add_bytes(b"shared")
            barrier.wait()
            new.commit(name, build_artifact({"model.safetensors": blob}))

    threads = [threading.Thread(target=create, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read(store, "a") == read(store, "b") == {"model.safetensors": b"shared"}


@pytest.mark.skipif(sys.platform == "darwin", reason="syncs with fcntl, which this test does not watch")
def test_nothing_is_named_before_it_is_durable(store: Store, monkeypatch: pytest.MonkeyPatch):
    """What makes a power cut harmless: data, sync, name, the folder's sync, and only then the index."""
    put(store, "before")
    log: list[tuple[str, str]] = []
    rename, write = os.rename, os.write

    def path_of(fd: int) -> str:
        return os.readlink(f"/proc/self/fd/{fd}")

    def logged_rename(old: Path, new: Path) -> None:
        log.append(("rename", f"{old} {new}"))
        rename(old, new)

    def logged_write(fd: int, data: memoryview) -> int:
        log.append(("write", path_of(fd)))
        return write(fd, data)

    monkeypatch.setattr(os, "fsync", lambda fd: log.append(("sync", path_of(fd))))
    monkeypatch.setattr(os, "rename", logged_rename)
    monkeypatch.setattr(os, "write", logged_write)
    put(store, "story", {"model.safetensors": b"new"})

    blobs, index = str(store.root / "blobs" / "sha256"), str(store.root / "index.json")
    named: list[int] = []
    for place, (call, what) in enumerate(log):
        if call == "rename":
            source, target = what.split()
            written = max(i for i in range(place) if log[i] == ("write", source))
            assert ("sync", source) in log[written:place]
            named += [place] if target == index else []
    last_blob = max(i for i, (call, what) in enumerate(log) if call == "rename" and blobs in what)
    assert len(named) == 1
    assert ("sync", blobs) in log[last_blob : named[0]]
    assert ("sync", str(store.root)) in log[named[0] :]
