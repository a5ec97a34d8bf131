"""A folder of pages over time: limits, queues, failing disks and other processes."""

import errno
import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from runtime.cache.page_files import Tensor, read_page, write_page
from runtime.cache.page_folder import (
    PageFile,
    abandoned_pages,
    clear_pages,
    list_names,
    list_pages,
    model_mark,
    trim_pages,
)
from runtime.cache.pages import page_bytes
from tests.support.disk_pages import KEYS, found, one_file, opened, pages, saved


def aged(folder: Path, seconds: dict[int, float]) -> list[PageFile]:
    for file in list_pages(folder):
        os.utime(file.path, (seconds[file.stop], seconds[file.stop]))
    return list_pages(folder)


def test_the_least_recently_used_pages_go(tmp_path: Path) -> None:
    saved(tmp_path, KEYS[:31], pages(10, 25, 31)).close()
    files = aged(tmp_path, {25: 1000, 10: 2000, 31: 3000})
    assert [file.stop for file in files] == [25, 10, 31]
    limit = sum(file.nbytes for file in files) - 1
    assert trim_pages(tmp_path, limit) == files[0].nbytes
    assert [file.stop for file in list_pages(tmp_path)] == [10, 31]
    assert trim_pages(tmp_path, limit) == 0


def test_writing_keeps_within_the_limit(tmp_path: Path) -> None:
    stored = pages(10, 25, 31)
    saved(tmp_path, KEYS[:31], stored, limit=page_bytes(stored[1].page) + 8000).close()
    assert sum(file.nbytes for file in list_pages(tmp_path)) <= page_bytes(stored[1].page) + 8000


def test_use_makes_pages_young_again_and_parents_youngest(tmp_path: Path) -> None:
    disk = saved(tmp_path, KEYS[:31], pages(10, 25, 31))
    aged(tmp_path, {10: 1000, 25: 2000, 31: 3000})
    found(disk, KEYS)
    assert [file.stop for file in list_pages(tmp_path)] == [31, 25, 10]
    assert list_pages(tmp_path)[0].used_at_s > 4000
    disk.close()


def test_clearing_can_spare_other_models(tmp_path: Path) -> None:
    saved(tmp_path, KEYS[:10], pages(10)).close()
    saved(tmp_path, KEYS[:10], pages(10), model="sha256:bb").close()
    freed = clear_pages(tmp_path, "sha256:bb")
    (left,) = list_pages(tmp_path)
    assert freed == left.nbytes
    assert left.model == model_mark("sha256:aa")
    assert clear_pages(tmp_path / "nowhere") == 0


def test_names_alone_tell_a_models_whole_pages(tmp_path: Path) -> None:
    saved(tmp_path, KEYS[:31], pages(10, 25, 31)).close()
    saved(tmp_path, KEYS[:10], pages(10), model="sha256:bb").close()
    mark = model_mark("sha256:aa")
    own = [file for file in list_pages(tmp_path) if file.model == mark]
    own[0].path.rename(f"{own[0].path}.00000000.part")
    (tmp_path / f"{mark}-notes.txt").touch()
    told = {(one.path, one.start, one.stop, one.key, one.nbytes()): one for one in list_names(tmp_path, mark)}
    assert told.keys() == {(one.path, one.start, one.stop, one.key, one.nbytes) for one in own[1:]}
    own[1].path.unlink()
    assert sorted(one.nbytes() for one in told.values()) == [-1, own[2].nbytes]
    assert list_names(tmp_path / "nowhere", mark) == []


def test_a_page_that_waits_to_be_written_is_not_queued_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, written = threading.Event(), list[Path]()
    monkeypatch.setattr(
        "runtime.cache.disk_pages.write_page", lambda path, *_: (go.wait(99), written.append(path))
    )
    disk = opened(tmp_path)
    for _ in range(3):
        disk.save(KEYS[:25], pages(10, 25))
    go.set()
    disk.close()
    assert len(written) == len({*written}) == 2


def test_what_does_not_fit_the_queue_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = pages(10, 25)
    monkeypatch.setattr("runtime.cache.disk_pages.QUEUED_BYTES", page_bytes(stored[0].page))
    go = threading.Event()
    real = write_page
    monkeypatch.setattr("runtime.cache.disk_pages.write_page", lambda *job: (go.wait(99), real(*job)))
    disk = opened(tmp_path)
    disk.save(KEYS[:25], stored)
    go.set()
    disk.close()
    assert [file.stop for file in list_pages(tmp_path)] == [10]


def test_what_a_killed_writer_left_is_no_page_and_is_cleared(tmp_path: Path) -> None:
    path = one_file(tmp_path)
    part = path.rename(path.with_name(path.name + ".0123abcd.part"))
    with part.open() as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)  # it is not dead yet
        disk = opened(tmp_path)
        assert found(disk, KEYS) == []
        disk.close()
        assert [file.partial for file in list_pages(tmp_path)] == [True]
    assert clear_pages(tmp_path) > 0


def test_a_disk_that_fails_is_tried_again_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be full for a moment, and a server runs for months."""
    tried, real = list[int](), write_page

    def write(path: Path, *rest: Any) -> None:
        tried.append(len(tried))
        if len(tried) <= 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, *rest)

    monkeypatch.setattr("runtime.cache.disk_pages.write_page", write)
    disk, (first, second) = opened(tmp_path), pages(10, 25)
    disk.save(KEYS[:25], [first, second])  # the second comes too soon
    disk.close()
    assert len(tried) == 1
    monkeypatch.setattr("runtime.cache.disk_pages.REST_S", 0.0)
    disk = opened(tmp_path)
    disk.save(KEYS[:25], [first, second])
    disk.close()
    assert len(tried) == 3
    assert [file.stop for file in list_pages(tmp_path)] == [25]
    assert [one.message.partition(": ")[2] for one in caplog.records] == ["No space left on device"] * 2


def test_a_folder_that_was_removed_is_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = opened(tmp_path / "home" / "pages")
    (tmp_path / "home" / "pages").rmdir()
    disk.save(KEYS[:25], pages(10, 25))
    disk.close()
    assert [file.stop for file in list_pages(tmp_path / "home" / "pages")] == [25]
    assert (tmp_path / "home" / "pages").stat().st_mode & 0o777 == 0o700
    assert caplog.text == ""
    disk = opened(tmp_path / "gone" / "pages")  # but not where a disk was taken away
    (tmp_path / "gone").rename(tmp_path / "taken")
    disk.save(KEYS[:25], pages(10, 25))
    disk.close()
    assert not (tmp_path / "gone").exists()
    assert "not written" in caplog.text


def test_a_folder_in_place_of_a_page_costs_that_page_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = one_file(tmp_path)
    path.unlink()
    path.mkdir()
    saved(tmp_path, KEYS[:25], pages(10, 25)).close()
    assert [file.stop for file in list_pages(tmp_path)] == [25]
    assert path.is_dir()
    assert f"{path} is not written: a folder has its name" in caplog.text


def test_a_writer_that_fails_otherwise_goes_on_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.cache.disk_pages.write_page", lambda *_: 1 / 0)
    disk = opened(tmp_path)
    disk.save(KEYS[:25], pages(10, 25))
    disk.close()
    assert len(caplog.records) == 1
    assert "not written" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_a_page_larger_than_the_limit_drives_out_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    small, large = pages(10), pages(30)
    saved(tmp_path, KEYS[:10], small).close()
    (kept,) = list_pages(tmp_path)
    saved(tmp_path, KEYS[:30], large, limit=kept.nbytes + 100).close()
    assert list_pages(tmp_path) == [kept]
    assert "the limit on disk is" in caplog.text


def test_a_page_alone_in_the_queue_may_be_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.cache.disk_pages.QUEUED_BYTES", 1)
    saved(tmp_path, KEYS[:10], pages(10)).close()
    assert len(list_pages(tmp_path)) == 1


def test_a_lower_limit_holds_from_the_start(tmp_path: Path) -> None:
    saved(tmp_path, KEYS[:31], pages(10, 25, 31)).close()
    opened(tmp_path, limit=0).close()
    assert list_pages(tmp_path) == []


def test_trimming_spares_what_is_being_written_and_removes_what_never_will_be(tmp_path: Path) -> None:
    path = one_file(tmp_path)
    new, old = (path.with_name(f"{path.name}.{number:08x}.part") for number in (1, 2))
    for part in (new, old):
        part.write_bytes(b"half")
    with new.open() as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        trim_pages(tmp_path, 1 << 30)
        assert (path.exists(), new.exists(), old.exists()) == (True, True, False)
        trim_pages(tmp_path, 0)
        assert (path.exists(), new.exists()) == (False, True)
    trim_pages(tmp_path, 0)
    assert not new.exists()


def test_a_part_is_locked_while_it_is_written(tmp_path: Path) -> None:
    """Nobody takes it for one that a killed process left."""
    path, seen = one_file(tmp_path), list[int]()

    class Looking(dict[str, Tensor]):
        def values(self) -> Any:
            for tensor in super().values():
                seen.append(len(abandoned_pages(tmp_path)))
                yield tensor

    write_page(path, Looking(read_page(path)))
    assert seen
    assert set(seen) == {0}
    assert [page.partial for page in list_pages(tmp_path)] == [False]


def test_a_part_whose_writer_was_killed_goes_at_once(tmp_path: Path) -> None:
    """The next run begins by trimming."""
    path = one_file(tmp_path)
    part = path.with_name(f"{path.name}.0123abcd.part")
    code = (
        "import fcntl, os, signal, sys\n"
        "file = open(sys.argv[1], 'wb', buffering=0)\n"
        "fcntl.flock(file, fcntl.LOCK_EX); file.write(b'half')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(part)], check=False)
    assert part.exists()
    opened(tmp_path).close()
    assert not part.exists()
    assert path.exists()


def test_a_page_removed_by_another_process_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = saved(tmp_path, KEYS[:25], pages(10, 25))
    real = read_page

    def gone(path: Path) -> object:
        if "-10-25-" in path.name:
            path.unlink()
        return real(path)

    monkeypatch.setattr("runtime.cache.disk_pages.read_page", gone)
    assert [stored.stop for stored in found(disk, KEYS)] == [10]
    assert caplog.text == ""
    disk.close()


def test_clearing_while_a_page_is_written_costs_that_page_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = list[Path]()

    def cleared(path: Path, *rest: Any) -> None:
        calls.append(path)
        if len(calls) == 1:
            raise FileNotFoundError(2, "No such file or directory")
        write_page(path, *rest)

    monkeypatch.setattr("runtime.cache.disk_pages.write_page", cleared)
    saved(tmp_path, KEYS[:25], pages(10, 25)).close()
    assert [file.stop for file in list_pages(tmp_path)] == [25]
    assert caplog.text == ""


TWO = """
import sys
from pathlib import Path
from runtime.cache.page_files import *
from runtime.cache.page_folder import *
folder, seed = Path(sys.argv[1]), int(sys.argv[2])
for turn in range(150):
    number = (turn * 7 + seed) % 40
    key = f"{number:064x}"
    path = folder / page_name("0" * 16, 0, 4, key)
    body = bytes([number]) * 4000
    try:
        write_page(path, {"0.0": Tensor("U32", (1000,), body)})
    except FileNotFoundError:
        continue  # the other one has just cleared the folder
    trim_pages(folder, 60_000)
    for page in [page for page in list_pages(folder) if not page.partial]:
        try:
            (tensor,) = read_page(page.path).values()
        except FileNotFoundError:
            continue
        assert bytes(tensor.data) == bytes([int(page.key, 16)]) * 4000
    if turn % 50 == 49:
        clear_pages(folder)
"""


def test_two_processes_at_once_see_whole_pages_only(tmp_path: Path) -> None:
    jobs = [
        subprocess.Popen([sys.executable, "-c", TWO, str(tmp_path), str(seed)], stderr=subprocess.PIPE)
        for seed in (0, 3)
    ]
    assert [job.communicate()[1].decode() for job in jobs] == ["", ""]
    assert sum(page.nbytes for page in list_pages(tmp_path)) <= 70_000
