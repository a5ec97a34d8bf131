"""Pruning: what goes, what it is said to free, and what stays."""

import errno
import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from modelkit.errors import StoreError
from modelkit.store import Digest, Store
from modelkit.store.layout import Layout
from modelkit.store.lock import is_held
from tests.modelkit.store.packages import TREE, blob, blobs_named, blobs_on_disk, damage, names, put


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
