"""Writing blobs: a blob is visible only under its digest, only whole, and only after commit."""

import ctypes
import hashlib
import os
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modelkit.errors import SourceError, StoreError
from modelkit.store import Blob, BlobWriter, Digest, Store
from modelkit.store import disk as disk_module
from tests.modelkit.store.packages import blobs_on_disk


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(st.binary(max_size=50), max_size=5))
def test_a_blob_has_the_digest_and_size_of_what_was_written(store: Store, pieces: list[bytes]):
    whole = b"".join(pieces)
    with store.begin() as new, new.write_blob() as writer:
        for piece in pieces:
            writer.write(piece)
        blob = writer.commit()
        assert blob == Blob(Digest.of(whole), len(whole))
        assert (store.root / "blobs" / "sha256" / blob.digest.hex).read_bytes() == whole


def test_any_contiguous_buffer_may_be_written(store: Store):
    numbers = memoryview(bytearray(24)).cast("I", (2, 3))
    with store.begin() as new, new.write_blob() as writer:
        writer.write(numbers)
        writer.write((ctypes.c_float * 0)())
        assert writer.commit().size_bytes == 24


def test_nothing_is_visible_before_commit(store: Store):
    with store.begin() as new, new.write_blob() as writer:
        writer.write(b"x")
        assert blobs_on_disk(store) == set()


def test_a_writer_left_without_commit_leaves_nothing(store: Store):
    with store.begin() as new:
        with new.write_blob() as writer:
            writer.write(b"x")
        assert [path.name for path in (store.root / "ingest").glob("*/*")] == ["lease"]
    assert list((store.root / "ingest").iterdir()) == []


def test_blobs_are_read_only_and_folders_private_whatever_the_umask(store: Store):
    old = os.umask(0)
    try:
        with store.begin() as new:
            blob = new.add_bytes(b"x")
            temp = next((store.root / "ingest").iterdir())
            assert stat.S_IMODE((store.root / "blobs" / "sha256" / blob.digest.hex).stat().st_mode) == 0o444
            assert stat.S_IMODE(temp.stat().st_mode) == 0o700
    finally:
        os.umask(old)
    for folder in (store.root, *(path for path in store.root.rglob("*") if path.is_dir())):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_blob_that_is_there_already_stays(store: Store):
    with store.begin() as new:
        first = new.add_bytes(b"same")
        path = store.root / "blobs" / "sha256" / first.digest.hex
        inode = path.stat().st_ino
        assert new.add_bytes(b"same") == first
        assert path.stat().st_ino == inode


def test_a_blob_of_the_wrong_size_is_replaced(store: Store):
    with store.begin() as new:
        path = store.root / "blobs" / "sha256" / new.add_bytes(b"whole").digest.hex
        path.unlink()
        path.write_bytes(b"who")
        new.add_bytes(b"whole")
        assert path.read_bytes() == b"whole"


def test_a_link_planted_in_a_blobs_place_is_never_written_through(store: Store, tmp_path: Path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    with store.begin() as new:
        path = store.root / "blobs" / "sha256" / Digest.of(b"new").hex
        path.symlink_to(victim)
        assert new.has(Digest.of(b"new")) is None
        new.add_bytes(b"new")
        assert victim.read_bytes() == b"precious"
        assert not path.is_symlink()


@pytest.mark.parametrize("came", [b"", b"abcdef", b"abc!", b"abcde"])
def test_bytes_other_than_the_expected_are_refused(store: Store, came: bytes):
    def write_and_commit(writer: BlobWriter) -> None:
        writer.write(came)
        writer.commit()

    with (
        store.begin() as new,
        new.write_blob(Blob(Digest.of(b"abcd"), 4)) as writer,
        pytest.raises(StoreError),
    ):
        write_and_commit(writer)
    assert blobs_on_disk(store) == set()


def test_too_many_bytes_are_refused_as_they_come(store: Store):
    with store.begin() as new, new.write_blob(Blob(Digest.of(b"abcd"), 4)) as writer:
        writer.write(b"abc")
        with pytest.raises(StoreError, match="more came"):
            writer.write(b"de")


def test_several_threads_may_write_at_once(store: Store):
    data = [os.urandom(10_000) for _ in range(8)] * 2
    with store.begin() as new:
        threads = [threading.Thread(target=new.add_bytes, args=(piece,)) for piece in data]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert blobs_on_disk(store) == {hashlib.sha256(piece).hexdigest() for piece in data}


def test_a_file_is_stored_byte_for_byte_and_counted(store: Store, tmp_path: Path):
    source = tmp_path / "w"
    source.write_bytes(os.urandom((4 << 20) + 17))
    seen: list[int] = []
    with store.begin() as new:
        blob = new.add_file(source, progress=seen.append)
        assert (store.root / "blobs" / "sha256" / blob.digest.hex).read_bytes() == source.read_bytes()
    assert sum(seen) == blob.size_bytes == (4 << 20) + 17


def test_changing_a_source_later_does_not_change_the_blob(store: Store, tmp_path: Path):
    source = tmp_path / "w"
    source.write_bytes(b"before")
    with store.begin() as new:
        blob = new.add_file(source)
        with source.open("r+b") as file:
            file.write(b"after!")
        assert (store.root / "blobs" / "sha256" / blob.digest.hex).read_bytes() == b"before"


def test_a_disk_that_shares_blocks_is_used_and_still_hashed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def clone(source: int, target: Path) -> bool:
        target.write_bytes(os.pread(source, 1 << 20, 0))
        return True

    monkeypatch.setattr("modelkit.store.ingest.clone", clone)
    source = tmp_path / "w"
    source.write_bytes(b"shared")
    with store.begin() as new:
        assert new.add_file(source) == Blob(Digest.of(b"shared"), 6)


def test_a_disk_that_cannot_share_blocks_leaves_no_trace(tmp_path: Path):
    (tmp_path / "pipe").write_bytes(b"")
    read, write = os.pipe()  # nothing shares blocks with a pipe
    assert disk_module.clone(read, tmp_path / "copy") is False
    assert not (tmp_path / "copy").exists()
    os.close(read)
    os.close(write)


def test_a_known_file_is_not_read_again(store: Store, tmp_path: Path):
    source = tmp_path / "w"
    source.write_bytes(b"known")
    with store.begin() as new:
        blob = new.add_file(source)
        seen: list[int] = []
        assert new.add_file(source, expect=blob.digest, progress=seen.append) == blob
        assert seen == []


def test_a_file_that_is_not_the_expected_one_is_refused(store: Store, tmp_path: Path):
    source = tmp_path / "w"
    source.write_bytes(b"other")
    with store.begin() as new, pytest.raises(SourceError, match="is not what it should be"):
        new.add_file(source, expect=Digest.of(b"expected"))
    assert blobs_on_disk(store) == set()


def _kept(folder: Path, data: bytes, prefix: str = "") -> Path:
    """A file that is called by its digest, as stores keep them."""
    path = folder / f"{prefix}{Digest.of(data).hex}"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("prefix", ["", "sha256-"])
def test_a_file_called_by_its_digest_becomes_a_second_name_or_shares_its_blocks(
    store: Store, tmp_path: Path, prefix: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("modelkit.store.ingest.clone", lambda *_: False)  # a disk that cannot share blocks
    theirs = _kept(tmp_path, b"weights", prefix)
    (tmp_path / "model").symlink_to(theirs.name)
    with store.begin() as new:
        blob = new.add_file(tmp_path / "model", expect=Digest.of(b"weights"))
        ours = store.root / "blobs" / "sha256" / blob.digest.hex
        assert os.path.samefile(theirs, ours)
        assert theirs.stat().st_mode & 0o222 == 0  # nobody writes to it by mistake
        theirs.unlink()
        assert ours.read_bytes() == b"weights"


@pytest.mark.parametrize("case", ["another name", "no digest is expected", "the disk cannot"])
def test_any_other_file_is_copied(store: Store, tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("modelkit.store.ingest.clone", lambda *_: False)
    theirs = _kept(tmp_path, b"weights")
    if case == "another name":
        theirs = theirs.rename(tmp_path / "model.safetensors")
    if case == "the disk cannot":
        monkeypatch.setattr(os, "link", lambda *_, **__: os.stat("/nowhere"))
    with store.begin() as new:
        blob = new.add_file(theirs, expect=None if "expected" in case else Digest.of(b"weights"))
        ours = store.root / "blobs" / "sha256" / blob.digest.hex
        assert not os.path.samefile(theirs, ours)
        assert ours.read_bytes() == b"weights"


def test_another_users_file_is_not_made_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    theirs = _kept(tmp_path, b"weights")
    monkeypatch.setattr(os, "geteuid", lambda: theirs.stat().st_uid + 1)
    with theirs.open("rb") as file:
        assert not disk_module.link_file(file.fileno(), theirs, tmp_path / "second")
    assert theirs.stat().st_nlink == 1


def test_a_file_whose_name_lies_is_not_taken(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("modelkit.store.ingest.clone", lambda *_: False)
    theirs = tmp_path / Digest.of(b"weights").hex
    theirs.write_bytes(b"Weights")
    mode = theirs.stat().st_mode
    with store.begin() as new, pytest.raises(SourceError, match="is not what it should be"):
        new.add_file(theirs, expect=Digest.of(b"weights"))
    assert blobs_on_disk(store) == set()
    assert (theirs.stat().st_mode, theirs.stat().st_nlink) == (mode, 1)


def test_a_file_that_grows_while_it_is_read_is_refused(store: Store, tmp_path: Path):
    source = tmp_path / "w"
    source.write_bytes(b"x" * 10)

    def grow(_: int) -> None:
        with source.open("ab") as file:
            file.write(b"more")
        if source.stat().st_size > 30:
            raise AssertionError("still reading")

    with store.begin() as new, pytest.raises(SourceError, match="changed while"):
        new.add_file(source, progress=grow)


def test_a_file_that_is_written_over_while_it_is_read_is_refused(store: Store, tmp_path: Path):
    source = tmp_path / "w"
    source.write_bytes(b"x" * 10)
    os.utime(source, (1, 1))  # longer ago than a tick of the clock

    def overwrite(_: int) -> None:
        source.write_bytes(b"y" * 10)

    with store.begin() as new, pytest.raises(SourceError, match="changed while"):
        new.add_file(source, progress=overwrite)
    assert blobs_on_disk(store) == set()


def test_links_to_sources_are_followed_but_only_regular_files_read(store: Store, tmp_path: Path):
    (tmp_path / "w").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "w")
    os.mkfifo(tmp_path / "pipe")
    with store.begin() as new:
        assert new.add_file(tmp_path / "link").digest == Digest.of(b"x")
        for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero"), tmp_path / "missing"):
            with pytest.raises(SourceError):
                new.add_file(path)
