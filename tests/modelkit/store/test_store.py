"""The store's commands: resolve, list, copy, remove, prune, verify."""

import errno
import fcntl
import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from modelkit.errors import InvalidName, ModelNotFound, StoreError
from modelkit.store import BrokenPackage, Digest, Package, Store, build_artifact, layout
from modelkit.store.disk import read_small
from modelkit.store.layout import Layout
from modelkit.store.lock import is_held
from tests.modelkit.store.packages import TREE, blob, blobs_named, blobs_on_disk, put, read


def damage(path: Path, data: bytes) -> None:
    path.chmod(0o600)
    path.write_bytes(data)


def names(store: Store) -> list[str]:
    return [str(package.name) for package in store.packages()]


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


@pytest.mark.parametrize("place", ["ingest", "partial", "conversions", "slices"])
def test_nothing_is_cleared_away_behind_a_link(store: Store, tmp_path: Path, place: str):
    put(store, "mine")
    mine = tmp_path / "others"
    mine.mkdir()
    (mine / "notes").write_text("of somebody")
    shutil.rmtree(store.root / place)
    (store.root / place).symlink_to(mine)
    for action in (store.prune, lambda: store.remove("mine"), lambda: put(store, "other")):
        with pytest.raises(StoreError, match=f"{place} is a link to"):
            action()
    assert (mine / "notes").read_text() == "of somebody"


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


# Prune


def orphan(store: Store, data: bytes) -> Path:
    path = blob(store, data)
    path.write_bytes(data)
    return path


def test_what_would_be_pruned_is_told_of_a_store_that_cannot_be_written(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    put(store, "story")
    (store.root / "ingest" / "single").write_bytes(b"12")
    opened = os.open

    def refuse(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & (os.O_CREAT | os.O_RDWR | os.O_WRONLY):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opened(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", refuse)
    assert [path.name for path in store.prune(dry_run=True).temp_files] == ["single"]
    with pytest.raises(StoreError, match="read-only"):
        store.prune()


def test_nothing_comes_or_goes_while_a_dry_run_looks(store: Store, monkeypatch: pytest.MonkeyPatch):
    put(store, "story")
    alone: list[bool] = []

    def look(layout: Layout) -> list[Path]:
        alone.append(is_held(layout.root / "lock"))
        return []

    monkeypatch.setattr("modelkit.store.store.leftovers", look)
    store.prune(dry_run=True)
    assert alone == [True]


def test_a_dry_run_does_without_a_lock_that_readers_cannot_have(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    put(store, "story")
    locked = fcntl.flock

    def as_nfs(fd: int, how: int) -> None:
        if how == fcntl.LOCK_EX and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        locked(fd, how)

    monkeypatch.setattr(fcntl, "flock", as_nfs)
    assert store.prune(dry_run=True).blobs == ()


def test_what_goes_while_prune_counts_is_no_fault(store: Store, monkeypatch: pytest.MonkeyPatch):
    put(store, "story")
    gone = store.root / "partial" / "gone.done"  # the journal of a blob that is whole goes without a lock
    monkeypatch.setattr("modelkit.store.store.abandoned", lambda _layout: [gone])
    assert store.prune().temp_bytes == 0


def test_prune_removes_orphans_and_temporary_files_of_the_dead(store: Store):
    put(store, "a")
    lost = orphan(store, b"orphan")
    dead = store.root / "ingest" / "0123456789abcdef"
    dead.mkdir()
    (dead / "lease").write_text(f"{Digest.of(b'orphan')}\n")
    (dead / "0").write_bytes(b"half a blob")
    (store.root / "ingest" / "x.tmp").write_bytes(b"half an index")
    planned = store.prune(dry_run=True)
    assert lost.exists()
    assert dead.exists()
    assert store.prune() == planned
    assert [each.digest for each in planned.blobs] == [Digest.of(b"orphan")]
    assert planned.size_bytes >= len(b"orphan") + len(b"half a blob") + len(b"half an index")
    assert list((store.root / "ingest").iterdir()) == []
    assert blobs_on_disk(store) == blobs_named(store)


def test_nothing_is_freed_while_a_manifest_is_unreadable(store: Store):
    put(store, "good")
    digest = put(store, "bad", {"model.safetensors": b"still wanted"})
    lost = orphan(store, b"orphan")
    damage(store.root / "blobs" / "sha256" / digest.hex, b"{}")
    with pytest.raises(StoreError, match="the package bad cannot be read"):
        store.prune()
    freed = store.remove("good")
    assert freed.blobs == ()
    assert "bad cannot be read" in (freed.held or "")
    assert lost.exists()
    assert blob(store, TREE["model.safetensors"]).exists()
    store.remove("bad")
    assert len(store.prune().blobs) > 3
    assert blobs_on_disk(store) == set()


def test_images_of_other_tools_keep_their_blobs(store: Store):
    put(store, "a")
    layer, config = orphan(store, b"layer"), orphan(store, b"image config")
    image = {
        "config": {"digest": f"sha256:{config.name}", "size": 12},
        "layers": [{"mediaType": "application/gzip", "digest": f"sha256:{layer.name}", "size": 5}],
    }
    inner = orphan(store, json.dumps(image).encode())
    listing = {"manifests": [{"digest": f"sha256:{inner.name}", "size": inner.stat().st_size}]}
    outer = orphan(store, json.dumps(listing).encode())
    index = json.loads((store.root / "index.json").read_bytes())
    index["manifests"].append({"digest": f"sha256:{outer.name}", "size": outer.stat().st_size})
    (store.root / "index.json").write_text(json.dumps(index))
    assert store.prune().blobs == ()
    assert names(store) == ["a"]


def test_files_that_are_no_blobs_are_left_and_reported(store: Store):
    put(store, "a")
    stray = store.root / "blobs" / "sha256" / "notes.txt"
    stray.write_text("mine")
    store.prune()
    assert stray.exists()
    assert [problem.subject for problem in store.verify().problems] == [str(stray)]


# Verify


def test_verify_reads_every_blob_of_a_sound_store(store: Store):
    put(store, "a")
    put(store, "b", {"x.json": b"b"})
    seen: list[int] = []
    report = store.verify(progress=seen.append)
    assert (report.problems, report.packages) == ((), 2)
    assert (
        report.read_bytes
        == sum(seen)
        == sum(p.stat().st_size for p in (store.root / "blobs/sha256").iterdir())
    )


def test_verify_finds_a_flipped_bit_and_says_who_suffers(store: Store):
    put(store, "a")
    store.copy("a", "b")
    path = blob(store, TREE["model.safetensors"])
    damage(path, b"T" + TREE["model.safetensors"][1:])
    assert store.verify(read_data=False).problems == ()
    (problem,) = store.verify().problems
    assert (problem.subject, problem.names) == (str(path), ("a", "b"))


def test_verify_of_some_names_reads_only_theirs(store: Store):
    put(store, "a", {"a.json": b"a"})
    put(store, "b", {"b.json": b"b"})
    damage(blob(store, b"b"), b"B")
    assert store.verify(["a"]).problems == ()
    assert len(store.verify(["a", "b"]).problems) == 1
    with pytest.raises(ModelNotFound):
        store.verify(["c"])


def test_verify_reports_missing_blobs_and_planted_links(store: Store, tmp_path: Path):
    put(store, "a")
    path = blob(store, TREE["model.safetensors"])
    path.unlink()
    path.symlink_to("/etc/passwd")
    problems = {problem.subject: problem.what for problem in store.verify().problems}
    assert "model.safetensors is missing" in problems["a"]
    assert "plain file" in problems[str(path)]


def test_blobs_stay_readable_by_their_owner_only_folders(store: Store):
    with store.begin() as new:
        new.commit("a", build_artifact({"config.json": new.add_bytes(b"{}")}))
    assert stat.S_IMODE(store.root.stat().st_mode) == 0o700


def test_no_more_memory_is_asked_for_than_a_file_has(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"{}")
    assert read_small(tmp_path / "small", 1 << 60) == b"{}"
