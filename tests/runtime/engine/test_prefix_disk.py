"""Prefixes that outlive the process."""

import errno
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from runtime.cache import disk_pages
from runtime.cache.page_files import Tensor, read_page
from runtime.cache.page_folder import PrefixFolder, clear_pages, list_pages
from runtime.engine.engine import Engine, Options
from runtime.engine.request import Request
from tests.support.engines import GREEDY, finished, ids_of, prompt, run, start

KINDS = ["llama", "llama4_text", "qwen3_5", "recurrent_gemma", "gemma4_text"]
SYSTEM, USER, OTHER = tuple(range(20, 50)), tuple(range(60, 72)), tuple(range(80, 95))
ASK = (5, 6)
MARKS = (len(SYSTEM), len(SYSTEM + USER))


def begin(folder: Path, kind: str, model: str | None = "sha256:aa") -> Engine:
    """With pages on disk, or with no memory of anything when `model` is None."""
    kept = None if model is None else PrefixFolder(folder / "pages", model, 1 << 30)
    kept_bytes = None if kept is None else 1 << 30
    return start(
        folder / "model", kind, max_rows=3, prefix_bytes=kept_bytes, prefix_folder=kept, mark_spacing=1
    )


def ask(engine: Engine, ids: tuple[int, ...], marks: tuple[int, ...] = ()) -> tuple[tuple[int, ...], int]:
    """The answer, and how many prompt tokens were not computed for it."""
    tokens, finish = finished(engine, Request(ids, 10, GREEDY, marks=marks))
    return tuple(tokens), finish.usage.cached_tokens


def written(engine: Engine) -> None:
    """Wait until all pages of what was computed are on disk."""
    while engine.call(lambda _model: (disk := engine._loop._prefixes._disk) is not None and disk._queued):
        time.sleep(0.001)


@pytest.mark.parametrize("kind", KINDS)
def test_a_restart_loses_nothing(tmp_path: Path, kind: str) -> None:
    prompt = (*SYSTEM, *USER, *ASK)
    engine = begin(tmp_path, kind)
    answer, _ = ask(engine, prompt, MARKS)
    following = (*prompt, *answer, *OTHER, *ASK)
    edited = (*SYSTEM, *OTHER, *ASK)
    engine.close()
    plain = begin(tmp_path, kind, model=None)
    wanted = [ask(plain, ids)[0] for ids in (following, edited)]
    plain.close()

    engine = begin(tmp_path, kind)
    again, cached = ask(engine, prompt, MARKS)
    assert (again, cached) == (answer, len(SYSTEM + USER))
    engine.close()
    engine = begin(tmp_path, kind)
    assert ask(engine, following) == (wanted[0], len(prompt) + len(answer) - 1)
    assert ask(engine, edited, MARKS) == (wanted[1], len(SYSTEM))
    engine.close()


def test_nothing_is_read_that_memory_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = begin(tmp_path, "qwen3_5")
    ask(first, (*SYSTEM, *USER, *ASK), MARKS)
    first.close()  # all is written
    read: list[Path] = []
    monkeypatch.setattr(
        disk_pages, "read_page", lambda path, *rest: (read.append(path), read_page(path, *rest))[1]
    )
    engine = begin(tmp_path, "qwen3_5")
    ask(engine, (*SYSTEM, *USER, *ASK), MARKS)
    known = len(read)
    assert known > 0
    assert ask(engine, (*SYSTEM, *OTHER, *ASK), MARKS)[1] == len(SYSTEM)
    assert len(read) == known
    engine.close()


@contextmanager
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> Generator[tuple[threading.Event, threading.Event]]:
    """Is a page asked for, and may it come?"""
    asked, go = threading.Event(), threading.Event()

    def read(path: Path) -> dict[str, Tensor]:
        asked.set()
        assert go.wait(60)
        return read_page(path)

    with monkeypatch.context() as patched:
        patched.setattr(disk_pages, "read_page", read)
        yield asked, go
        go.set()


@pytest.mark.parametrize("kind", ["llama", "qwen3_5"])
def test_others_are_served_while_a_page_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    engine, prompt = begin(tmp_path, kind), (*SYSTEM, *USER, *ASK)
    wanted, _ = ask(engine, prompt, MARKS)
    engine.close()
    engine = begin(tmp_path, kind)
    with slow_disk(monkeypatch) as (asked, go):
        running = engine.submit(Request(OTHER, 60, GREEDY))
        waits = engine.submit(Request(prompt, 10, GREEDY, marks=MARKS))
        left = engine.submit(Request(prompt, 10, GREEDY, marks=MARKS))
        assert asked.wait(60)
        assert len(list(running)) == 60
        assert ask(engine, (*OTHER, *ASK))[0]  # one that came later
        left.close()
        assert engine.activity.waiting == 1
        go.set()
        assert tuple(token for delta in waits for token in delta.ids) == wanted
    assert waits.finish is not None
    assert waits.finish.usage.cached_tokens == len(SYSTEM + USER)
    engine.close()


def reading(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The pages that are read from now on, as they are."""
    read: list[Path] = []
    monkeypatch.setattr(disk_pages, "read_page", lambda path: (read.append(path), read_page(path))[1])
    return read


@pytest.mark.parametrize("kind", ["llama", "qwen3_5"])
def test_what_is_read_for_one_of_many_is_there_when_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Though memory has not the room of two of them, and though many begin alike."""
    asked = [prompt(number, 60) for number in range(3)]
    first = begin(tmp_path, kind)
    wanted = [ask(first, ids, (56,))[0] for ids in asked]
    kept_bytes = first.activity.prefix_bytes // 2
    first.close()
    kept = PrefixFolder(tmp_path / "pages", "sha256:aa", 1 << 30)
    read = reading(monkeypatch)
    for rows, limit, requests, pages in ((1, kept_bytes, asked, 3), (3, 1 << 30, asked[:1] * 4, 1)):
        read.clear()
        engine = start(tmp_path / "model", kind, max_rows=rows, prefix_bytes=limit, prefix_folder=kept)
        texts, finishes = run(engine, [Request(ids, 10, GREEDY, marks=(56,)) for ids in requests])
        assert [tuple(text) for text in texts] == [wanted[asked.index(ids)] for ids in requests]
        assert min(finish.usage.cached_tokens for finish in finishes) >= 56
        assert len(read) == len({*read}) == pages
        engine.close()


def test_a_row_whose_place_was_taken_while_the_disk_read_begins_with_it_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = (*SYSTEM, *USER, *ASK)
    engine = begin(tmp_path, "qwen3_5")
    wanted, _ = ask(engine, ids, MARKS)
    engine.close()
    kept = PrefixFolder(tmp_path / "pages", "sha256:aa", 1 << 30)
    engine = start(tmp_path / "model", "qwen3_5", max_rows=1, prefix_bytes=1 << 30, prefix_folder=kept)
    with slow_disk(monkeypatch) as (asked, go):
        waits = engine.submit(Request(ids, 10, GREEDY, marks=MARKS))
        assert asked.wait(60)
        taken = engine.submit(Request(OTHER, 200, GREEDY))
        assert taken.read() is not None
        go.set()
        assert tuple(ids_of(waits)) == wanted
        assert len(ids_of(taken)) < 200
    assert waits.finish is not None
    assert waits.finish.usage.cached_tokens == len(SYSTEM + USER)
    engine.close()


def test_who_leaves_while_a_page_is_read_waits_for_no_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = (*SYSTEM, *USER, *ASK)
    engine = begin(tmp_path, "qwen3_5")
    ask(engine, ids, MARKS)
    engine.close()
    read = reading(monkeypatch)
    engine = begin(tmp_path, "qwen3_5")
    with slow_disk(monkeypatch) as (asked, go):
        left = engine.submit(Request(ids, 10, GREEDY, marks=MARKS))
        assert asked.wait(60)
        closing = threading.Thread(target=left.close)
        closing.start()
        closing.join(30)  # and nothing else is there that would wake the engine
        assert not closing.is_alive()
        go.set()
    assert ask(engine, (*SYSTEM, *OTHER))[1] == len(SYSTEM)  # the disk reads for the next one now
    engine.close()
    assert not any(f"-{MARKS[1]}-" in path.name for path in read)  # nobody wanted more of it


def test_an_engine_is_closed_while_a_page_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, prompt = begin(tmp_path, "qwen3_5"), (*SYSTEM, *USER, *ASK)
    ask(engine, prompt, MARKS)
    engine.close()
    engine = begin(tmp_path, "qwen3_5")
    with slow_disk(monkeypatch) as (asked, go):
        waits = engine.submit(Request(prompt, 10, GREEDY, marks=MARKS))
        assert asked.wait(60)
        closing = threading.Thread(target=engine.close)
        closing.start()
        assert list(waits) == []
        assert waits.finish is not None
        assert waits.finish.reason == "cancelled"
        go.set()
        closing.join(60)
        assert not closing.is_alive()


def test_another_model_starts_anew(tmp_path: Path) -> None:
    first = begin(tmp_path, "llama")
    ask(first, SYSTEM)
    first.close()
    second = begin(tmp_path, "llama", model="sha256:bb")
    assert ask(second, (*SYSTEM, 9))[1] == 0
    second.close()


def test_damaged_pages_cost_time_and_nothing_else(tmp_path: Path) -> None:
    engine = begin(tmp_path, "gemma4_text")
    prompt = (*SYSTEM, *USER, *ASK)
    answer, _ = ask(engine, prompt, MARKS)
    engine.close()
    for file in list_pages(tmp_path / "pages"):
        if file.start > 0:
            content = bytearray(file.path.read_bytes())
            content[-3] ^= 1
            file.path.write_bytes(content)
    engine = begin(tmp_path, "gemma4_text")
    assert ask(engine, prompt, MARKS) == (answer, len(SYSTEM))
    engine.close()


def test_pages_removed_while_running_are_computed_again(tmp_path: Path) -> None:
    engine = begin(tmp_path, "mamba2")
    answer, _ = ask(engine, SYSTEM)
    written(engine)
    engine.clear_prefixes()
    assert clear_pages(tmp_path / "pages") > 0
    assert ask(engine, SYSTEM) == (answer, 0)
    engine.close()


@pytest.mark.parametrize("kind", ["llama", "qwen3_5"])
def test_no_answer_fails_where_no_file_can_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """A server's clients may take all the files that a process may have open; later there are some again."""
    prompt = (*SYSTEM, *USER, *ASK)
    engine = begin(tmp_path, kind)
    answer, _ = ask(engine, prompt, MARKS)
    written(engine)
    engine.close()
    kept = {page.path for page in list_pages(tmp_path / "pages")}

    def refused(*_: object) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    for opened in ("read_page", "write_page", "trim_pages", "list_names"):
        engine = begin(tmp_path, kind)
        with monkeypatch.context() as patched:
            patched.setattr(disk_pages, opened, refused)
            running = engine.submit(Request((*OTHER, *SYSTEM), 40, GREEDY, marks=(5,)))
            assert ask(engine, prompt, MARKS)[0] == answer
            assert len(list(running)) == 40
            written(engine)
        assert kept <= {page.path for page in list_pages(tmp_path / "pages")}
        ask(engine, (*OTHER, *USER, *ASK), (len(OTHER),))
        written(engine)
        engine.close()
        assert any(page.stop == len(OTHER) for page in list_pages(tmp_path / "pages"))
        clear = {page.path for page in list_pages(tmp_path / "pages")} - kept
        for path in clear:
            path.unlink()
    assert sum("cannot be found: Too many open files" in one.message for one in caplog.records) == 1


def test_a_folder_without_memory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="prefix_bytes"):
        Options(256, prefix_folder=PrefixFolder(tmp_path, "sha256:aa", 1))
