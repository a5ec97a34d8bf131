"""Export: a folder of ordinary files that costs no space, and that nothing is lost to."""

import errno
import os
from pathlib import Path

import pytest

from modelkit.errors import ModelNotFound, StoreError
from modelkit.pack.gguf.writing import refuse_taken
from modelkit.server.http.place import Place, listen
from modelkit.server.log import PromptLog
from modelkit.store import Exported, Store
from modelkit.store.export import write_folder
from tests.modelkit.store.packages import TREE, blobs_on_disk, put


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_export_is_the_tree_by_hard_links(store: Store, tmp_path: Path):
    put(store, "story")
    assert store.export("story", tmp_path / "a" / "out") == Exported(linked=5, copied=0, present=0)
    assert tree(tmp_path / "a" / "out") == TREE
    exported = tmp_path / "a" / "out" / "model.safetensors"
    assert exported.samefile(store.resolve("story").files["model.safetensors"])


def test_copies_are_the_users_own(store: Store, tmp_path: Path):
    put(store, "story")
    assert store.export("story", tmp_path / "out", link=False).copied == 5
    (tmp_path / "out" / "model.safetensors").write_bytes(b"mine now")
    assert store.verify().problems == ()


def test_a_disk_without_room_for_copies_gets_none(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    put(store, "story")
    monkeypatch.setattr("modelkit.disk_faults.free_bytes", lambda _: 10)
    with pytest.raises(StoreError, match=r"and a twentieth more, must be written to .*out, where 10 B"):
        store.export("story", tmp_path / "out", link=False)
    assert not (tmp_path / "out").exists()
    assert store.export("story", tmp_path / "out").linked == 5


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_where_links_cannot_reach_files_are_copied(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    put(store, "story")
    monkeypatch.setattr(os, "link", refuse)
    assert store.export("story", tmp_path / "out").copied == 5
    assert tree(tmp_path / "out") == TREE


def test_exporting_again_changes_nothing(store: Store, tmp_path: Path):
    put(store, "story")
    store.export("story", tmp_path / "out")
    assert store.export("story", tmp_path / "out") == Exported(linked=0, copied=0, present=5)


def test_an_export_that_was_cut_short_is_completed(store: Store, tmp_path: Path):
    put(store, "story")
    store.export("story", tmp_path / "out", link=False)
    (tmp_path / "out" / "config.json").unlink()
    blob = store.resolve("story").files["config.json"]
    (tmp_path / "out" / f".{blob.name}.part").write_bytes(b"{")
    assert store.export("story", tmp_path / "out") == Exported(linked=1, copied=0, present=4)
    assert tree(tmp_path / "out") == TREE


@pytest.mark.parametrize("other", ["notes.txt", "draft/notes.txt", "config.json"])
def test_a_folder_with_anything_else_is_left_alone(store: Store, tmp_path: Path, other: str):
    put(store, "story")
    path = tmp_path / "out" / other
    path.parent.mkdir(parents=True)
    path.write_bytes(b'{"model_type":"other"}')
    with pytest.raises(StoreError, match="is not empty"):
        store.export("story", tmp_path / "out")
    assert tree(tmp_path / "out") == {other: b'{"model_type":"other"}'}


@pytest.mark.parametrize("place", ["", "new", "blobs/sha256", "../link/ingest/a/b"])
def test_nothing_of_the_users_goes_into_a_store(store: Store, tmp_path: Path, place: str):
    put(store, "story")
    (store.root.parent / "link").symlink_to(store.root)
    before = tree(store.root)
    with pytest.raises(StoreError, match="where models are stored: no other file may be there"):
        store.export("story", store.root / place)
    with pytest.raises(StoreError, match="where models are stored"):
        write_folder({"adapter_config.json": b"{}"}, store.root / place)
    with pytest.raises(StoreError, match="where models are stored"):
        refuse_taken(store.root / place / "story.gguf")
    with pytest.raises(StoreError, match="where models are stored"):
        PromptLog(store.root / place / "index.json")
    with pytest.raises(StoreError, match="where models are stored"):
        listen(Place(uds=store.root / place / "socket"))
    assert tree(store.root) == before


def test_an_export_follows_no_link_inside_its_folder(store: Store, tmp_path: Path):
    put(store, "story")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "draft").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="is not empty"):
        store.export("story", tmp_path / "out")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_failed_copy_leaves_no_half_file(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    put(store, "story")
    write = os.write

    def full(fd: int, data: memoryview) -> int:
        if len(data) == len(TREE["model.safetensors"]):
            write(fd, data[:100])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StoreError, match="no space left"):
        store.export("story", tmp_path / "out", link=False)
    assert "model.safetensors" not in tree(tmp_path / "out")
    assert not list(tmp_path.rglob("*.part"))


def test_an_export_outlives_the_package(store: Store, tmp_path: Path):
    put(store, "story")
    store.export("story", tmp_path / "out")
    store.remove("story")
    assert blobs_on_disk(store) == set()
    assert tree(tmp_path / "out") == TREE


def test_progress_adds_up_to_the_files(store: Store, tmp_path: Path):
    put(store, "story")
    seen: list[int] = []
    store.export("story", tmp_path / "out", progress=seen.append)
    assert sum(seen) == sum(map(len, TREE.values()))


def test_exporting_what_is_not_there_creates_no_folder(store: Store, tmp_path: Path):
    with pytest.raises(ModelNotFound):
        store.export("story", tmp_path / "out")
    assert not (tmp_path / "out").exists()
