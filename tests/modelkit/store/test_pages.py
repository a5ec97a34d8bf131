"""Files that are mapped are written by large pages, however their bytes come."""

import os
import random
from pathlib import Path

import pytest

from modelkit.store import Blob, Digest, Store, disk
from modelkit.store.disk import PAGE_BYTES, PageWriter

DATA = random.Random(1).randbytes(4 * PAGE_BYTES + 12345)


@pytest.fixture
def wrote(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(place, count) of what was written since."""
    found: list[tuple[int, int]] = []
    write = os.write

    def noted(fd: int, data: memoryview) -> int:
        found.append((os.lseek(fd, 0, os.SEEK_CUR), len(data)))
        return write(fd, data)

    monkeypatch.setattr(disk.os, "write", noted)
    return found


@pytest.mark.parametrize("most", [1000, PAGE_BYTES // 3, PAGE_BYTES, 3 * PAGE_BYTES])
def test_pieces_of_any_size_become_whole_pages(
    most: int, tmp_path: Path, wrote: list[tuple[int, int]]
) -> None:
    draws, left = random.Random(most), memoryview(DATA)
    fd = disk.create(tmp_path / "file")
    pages = PageWriter(fd)
    while left:
        count = draws.randint(0, most)
        pages.write(left[:count])
        left = left[count:]
    pages.end()
    os.close(fd)
    assert (tmp_path / "file").read_bytes() == DATA
    whole = [(place, count) for place, count in wrote if count]
    assert all(place % PAGE_BYTES == 0 for place, _ in whole)
    assert all(count % PAGE_BYTES == 0 for _, count in whole[:-1])


def test_a_file_goes_on_where_it_ended(tmp_path: Path, wrote: list[tuple[int, int]]) -> None:
    fd = disk.create(tmp_path / "file")
    at = 0
    for stop in (10, PAGE_BYTES - 1, PAGE_BYTES, PAGE_BYTES + 5, len(DATA)):
        pages = PageWriter(fd, at)
        for start in range(at, stop, 700_000):
            if start % 3 == 0:
                pages.end()
            pages.write(memoryview(DATA)[start : min(start + 700_000, stop)])
        pages.end()
        at = stop
    os.close(fd)
    assert (tmp_path / "file").read_bytes() == DATA
    assert all(place // PAGE_BYTES == (place + count - 1) // PAGE_BYTES for place, count in wrote if count)


def test_what_was_written_is_on_its_way_to_the_disk_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(disk, "begin_sync", lambda fd, start, stop: sent.append((start, stop)))
    fd = disk.create(tmp_path / "file")
    pages = PageWriter(fd, 12345)
    for _ in range(8):
        for start in range(0, len(DATA), 700_000):
            pages.write(memoryview(DATA)[start : start + 700_000])
    starts, stops = [start for start, _ in sent], [stop for _, stop in sent]
    assert starts == [12345, *stops[:-1]]
    assert stops[-1] > 8 * len(DATA) - 5 * PAGE_BYTES
    os.close(fd)


def test_beginning_to_sync_loses_nothing(tmp_path: Path) -> None:
    fd = disk.create(tmp_path / "file")
    disk.write_all(fd, memoryview(DATA))
    disk.begin_sync(fd, 0, len(DATA))
    disk.sync(fd)
    os.close(fd)
    assert (tmp_path / "file").read_bytes() == DATA


def test_a_blob_has_all_that_was_written(store: Store) -> None:
    with store.begin() as new, new.write_blob() as writer:
        for start in range(0, len(DATA), 1_234_567):
            writer.write(DATA[start : start + 1_234_567])
        blob = writer.commit()
        assert (blob.digest, blob.size_bytes) == (Digest.of(DATA), len(DATA))
        assert (store.root / "blobs" / "sha256" / blob.digest.hex).read_bytes() == DATA


@pytest.mark.parametrize("count", [1, 3])
def test_pages_that_are_made_ahead_cover_nothing_that_came(count: int, store: Store) -> None:
    """The stretches in turn, in pieces, with the end of the journal lost once."""
    draws, blob = random.Random(count), Blob(Digest.of(DATA), len(DATA))
    for attempt in range(2):
        with store.begin() as new, new.fetch_blob(blob) as part:
            if not attempt:
                part.restart(count)
            done = {one: max(one.done_bytes - 700_000, 0) for one in part.stretches()}
            ends = {one: (one.stop - one.start) // (2 - attempt) for one in done}
            while open_ones := [one for one in done if done[one] < ends[one]]:
                one = draws.choice(open_ones)
                start = one.start + done[one]
                stop = min(start + draws.randint(1, PAGE_BYTES // 2), one.start + ends[one])
                done[one] = part.write(one, done[one], DATA[start:stop])
            if attempt:
                assert part.commit()
                assert (store.root / "blobs" / "sha256" / blob.digest.hex).read_bytes() == DATA


def test_a_page_that_comes_in_pieces_is_made_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int]] = []
    pwrite = os.pwrite

    def noted(fd: int, data: bytes | memoryview, place: int) -> int:
        if len(data) >= PAGE_BYTES:
            made.append((place, len(data)))
        return pwrite(fd, data, place)

    monkeypatch.setattr(disk.os, "pwrite", noted)
    blob = Blob(Digest.of(DATA), len(DATA))
    with store.begin() as new, new.fetch_blob(blob) as part:
        part.restart(1)
        (whole,) = part.stretches()
        for start in range(0, len(DATA), 100_000):
            part.write(whole, start, DATA[start : start + 100_000])
        assert part.commit()
    assert made == [(number * PAGE_BYTES, PAGE_BYTES) for number in range(4)]
