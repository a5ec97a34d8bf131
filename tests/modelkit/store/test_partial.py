"""Blobs that come in pieces: what is there survives, what is wrong never counts."""

import errno
import os
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from modelkit.errors import StoreError
from modelkit.store import Blob, Digest, Store
from modelkit.store.lock import is_held
from modelkit.store.partial import MOST_STRETCHES, PartialBlob
from tests.modelkit.store.packages import blobs_on_disk

DATA = bytes(range(256)) * 40
BLOB = Blob(Digest.of(DATA), len(DATA))


def fill(part: PartialBlob, data: bytes = DATA, most: int = 1000) -> None:
    for one in part.stretches():
        done = one.done_bytes
        while one.start + done < one.stop:
            place = one.start + done
            done = part.write(one, done, data[place : min(place + most, one.stop)])


@pytest.mark.parametrize("count", [0, 1, 4, MOST_STRETCHES + 1])
def test_stretches_cover_the_blob(count: int, store: Store) -> None:
    with store.begin() as new, new.fetch_blob(BLOB) as part:
        part.restart(count)
        stretches = part.stretches()
        assert stretches[0].start == 0
        assert stretches[-1].stop == len(DATA)
        assert all(one.stop == other.start for one, other in pairwise(stretches))
        assert len(stretches) <= MOST_STRETCHES
        fill(part)
        assert part.commit()
        assert new.sound(BLOB.digest) == BLOB
        assert list((store.root / "partial").iterdir()) == []


def test_what_was_written_is_there_for_the_next_one(store: Store) -> None:
    with store.begin() as new, new.fetch_blob(BLOB) as part:
        part.restart(2)
        part.write(part.stretches()[0], 0, DATA[:3000])
    with store.begin() as new, new.fetch_blob(BLOB) as part:
        assert [one.done_bytes for one in part.stretches()] == [3000, 0]
        fill(part)
        assert part.commit()


def test_one_that_cannot_be_begun_is_let_go(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with store.begin() as new:
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            with pytest.raises(StoreError, match="no space"):
                new.fetch_blob(BLOB).__enter__()
        path = store.root / "partial" / BLOB.digest.hex
        assert not is_held(path), "the next attempt would wait for ever"


def test_of_what_was_begun_the_rest_is_left(store: Store) -> None:
    with store.begin() as new:
        assert new.left_bytes(BLOB) == len(DATA)
        with new.fetch_blob(BLOB) as part:
            part.restart(2)
            part.write(part.stretches()[1], 0, DATA[part.stretches()[1].start :][:3000])
            assert new.left_bytes(BLOB) == len(DATA) - 3000
        assert new.left_bytes(BLOB) == len(DATA) - 3000
        with new.fetch_blob(BLOB) as part:
            fill(part)
            assert part.commit()
        assert new.left_bytes(BLOB) == 0


@pytest.mark.parametrize("journal", [b"", b"x", b"\xff" * 16, (1 << 60).to_bytes(8, "little") * 16])
def test_a_journal_that_says_nothing_sound_leaves_all_of_it(journal: bytes, store: Store) -> None:
    with store.begin() as new:
        with new.fetch_blob(BLOB) as part:
            fill(part)
        (store.root / "partial" / f"{BLOB.digest.hex}.done").write_bytes(journal)
        assert new.left_bytes(BLOB) == len(DATA)


def test_a_journal_that_is_ahead_of_the_data_is_found_out(store: Store) -> None:
    with store.begin() as new, new.fetch_blob(BLOB) as part:
        fill(part)
    (store.root / "partial" / BLOB.digest.hex).write_bytes(DATA[:5000] + bytes(len(DATA) - 5000))
    with store.begin() as new, new.fetch_blob(BLOB) as part:
        assert part.here_bytes == len(DATA)
        assert not part.commit()
        assert part.here_bytes == 0
    assert blobs_on_disk(store) == set()


@pytest.mark.parametrize("journal", [b"\xff" * 8, b"\0" * 3, b"\xff" * 7 + b"\x7f", b"\1" * 8000, b""])
def test_a_journal_of_nonsense_is_a_new_start(journal: bytes, store: Store) -> None:
    with store.begin() as new, new.fetch_blob(BLOB) as part:
        fill(part)
    (store.root / "partial" / f"{BLOB.digest.hex}.done").write_bytes(journal)
    with store.begin() as new, new.fetch_blob(BLOB) as part:
        fill(part)
        assert part.commit()


def test_more_than_a_stretch_has_is_refused(store: Store) -> None:
    with store.begin() as new, new.fetch_blob(BLOB) as part:
        part.restart(2)
        first = part.stretches()[0]
        with pytest.raises(StoreError, match="more bytes"):
            part.write(first, 0, DATA)
        with pytest.raises(StoreError):
            part.write(first, -1, b"x")


def test_one_fetches_and_the_other_waits(store: Store) -> None:
    entered, seen = threading.Event(), list[bool]()

    def second() -> None:
        with store.begin() as new:
            entered.set()
            with new.fetch_blob(BLOB) as part:
                seen.append(new.sound(BLOB.digest) == BLOB)
                part.remove()

    thread = threading.Thread(target=second)
    with store.begin() as new:
        with new.fetch_blob(BLOB) as part:
            thread.start()
            entered.wait()
            assert store.prune().temp_files == ()  # what is being fetched is nobody's left-over
            fill(part)
            assert part.commit()
        thread.join()
    assert seen == [True]
    assert list((store.root / "partial").iterdir()) == []


def test_what_nobody_fetches_is_pruned(store: Store) -> None:
    with store.begin() as new, new.fetch_blob(BLOB) as part:
        part.write(part.stretches()[0], 0, DATA[:3000])
    found = store.prune(dry_run=True)
    assert (found.temp_bytes, len(found.temp_files)) == (3008, 2)
    store.prune()
    assert list((store.root / "partial").iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write into what nobody may write into")
def test_one_that_was_whole_when_its_process_died(store: Store) -> None:
    with store.begin() as new, new.fetch_blob(BLOB) as part:
        fill(part)
    (store.root / "partial" / BLOB.digest.hex).chmod(0o444)
    with store.begin() as new, new.fetch_blob(BLOB) as part:
        fill(part)
        assert part.commit()


def test_a_link_is_not_written_through(store: Store, tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"mine")
    with store.begin() as new:
        (store.root / "partial" / BLOB.digest.hex).symlink_to(tmp_path / "mine")
        with pytest.raises(StoreError), new.fetch_blob(BLOB):
            pass
    assert (tmp_path / "mine").read_bytes() == b"mine"


def test_an_empty_blob(store: Store) -> None:
    nothing = Blob(Digest.of(b""), 0)
    with store.begin() as new, new.fetch_blob(nothing) as part:
        assert part.commit()
        assert new.sound(nothing.digest) == nothing
