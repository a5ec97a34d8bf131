"""A disk without room: one clear error, no change, and what is stored can still be used, and removed."""

import os
from pathlib import Path
from typing import Any, NoReturn

import pytest

from modelkit.errors import DiskFull, StoreError
from modelkit.store import Digest, Store
from tests.modelkit.store.packages import TREE, blob, put, read


def full_disk() -> NoReturn:
    raise OSError(28, "No space left on device")


def test_too_little_room_is_refused_beforehand(store: Store):
    store.require_space(1)
    with pytest.raises(DiskFull, match=r"[1-9][0-9.]* [kMGT]?B are free"):
        store.require_space(1 << 60)
    assert not store.root.exists()


def test_room_is_counted_where_the_folder_will_be(tmp_path: Path):
    """One that cannot be looked at, for its name or its owner, is not there; writing it says why."""
    Store(tmp_path / ("x" * 300) / "store").require_space(1)


def test_a_full_disk_is_one_clear_error_and_no_change(store: Store, monkeypatch: pytest.MonkeyPatch):
    put(store, "a")
    before = sorted(store.root.rglob("*"))
    write = os.write

    def write_some(fd: int, data: memoryview) -> int:
        if len(data) > 1000:
            full_disk()
        return write(fd, data)

    monkeypatch.setattr(os, "write", write_some)
    with pytest.raises(
        DiskFull, match=r"(?s)ingest.*no space left on device; .* free there\nThe disk is full"
    ):
        put(store, "a", {"model.safetensors": b"new" * 1000})
    assert sorted(store.root.rglob("*")) == before
    assert read(store, "a") == TREE


def test_a_pin_cut_short_by_a_full_disk_harms_no_other(store: Store, monkeypatch: pytest.MonkeyPatch):
    put(store, "a", {"a.json": b"a"})
    put(store, "b", {"b.json": b"b"})
    write = os.write
    with store.begin() as new:
        monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:10]) and full_disk())
        with pytest.raises(StoreError):
            new.has(Digest.of(b"a"))
        monkeypatch.setattr(os, "write", write)
        assert new.has(Digest.of(b"b"))
        store.remove("a")
        store.remove("b")
        assert not blob(store, b"a").exists()
        assert blob(store, b"b").exists()


@pytest.mark.parametrize("call", ["mkdir", "open", "write"])
def test_what_is_stored_can_be_used_from_a_full_disk(
    store: Store, monkeypatch: pytest.MonkeyPatch, call: str
):
    """Whichever of its calls is the first that finds no room."""
    put(store, "a")
    before = sorted(store.root.rglob("*"))
    plain = getattr(os, call)

    def only_what_is_there(what: "int | Path", *rest: Any, **named: Any) -> Any:
        return (
            full_disk() if isinstance(what, int) or not Path(what).exists() else plain(what, *rest, **named)
        )

    monkeypatch.setattr(os, call, only_what_is_there)
    with store.hold("a") as package:
        assert str(package.name) == "a"
    assert store.verify().problems == ()
    with pytest.raises(StoreError, match="The disk is full"):
        store.copy("a", "b")
    monkeypatch.undo()
    assert sorted(store.root.rglob("*")) == before


def test_a_package_can_be_removed_from_a_full_disk(store: Store, monkeypatch: pytest.MonkeyPatch):
    put(store, "a")
    put(store, "b", {**TREE, "model.safetensors": b"other"})
    write, blobs = os.write, len(list(store.root.glob("blobs/*/*")))
    monkeypatch.setattr(
        os,
        "write",
        lambda fd, data: write(fd, data) if len(list(store.root.glob("blobs/*/*"))) < blobs else full_disk(),
    )
    assert store.remove("b").size_bytes > 0
    assert read(store, "a") == TREE
    assert [str(package.name) for package in store.packages()] == ["a"]


def test_a_second_name_stays_on_a_full_disk_where_it_frees_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    put(store, "a")
    store.copy("a", "b")
    monkeypatch.setattr(os, "write", lambda *_: full_disk())
    with pytest.raises(StoreError, match="The disk is full"):
        store.remove("b")
    assert read(store, "a") == read(store, "b") == TREE
