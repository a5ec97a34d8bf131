"""Transfers from the hub that are cut, killed, stopped or not needed, and who is told the token."""

import hashlib
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from pathlib import Path
from typing import ClassVar

import pytest

import modelkit
from modelkit.errors import DiskFull, FetchError, SourceError
from modelkit.fetch import other_programs
from modelkit.fetch.hub import library, obtain, transfer
from modelkit.fetch.hub.library import READ_S, headers_for
from tests.support.hub import STORY, Hub, Listener


def test_a_connection_that_ends_too_soon_is_taken_up_again(hub: Hub, tmp_path: Path) -> None:
    hub.faults = {"model.safetensors": ["cut", "503", "cut", "ignore range"], "tokenizer.json": ["cut"]}
    told = Listener()
    modelkit.pull(STORY, home=tmp_path / "home", progress=told)
    ranges = [one.headers["range"] for one in hub.asked("/cdn/") if "range" in one.headers]
    third = len(hub.repositories["Amy/Story"].files["model.safetensors"]) // 3
    assert f"bytes={third}-" in ranges
    assert told.said


class Waited(threading.Event):
    """Notes how long somebody would have waited for it."""

    seconds: ClassVar[list[float]] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout or 0.0)
        return self.is_set()


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    monkeypatch.setattr(transfer, "Event", Waited)
    monkeypatch.setattr(Waited, "seconds", [])
    return Waited.seconds


@pytest.mark.parametrize("said", ["Retry-After: 7", 'RateLimit: "resolvers";r=0;t=7'])
def test_a_server_that_wants_time_is_given_it(
    hub: Hub, tmp_path: Path, waited: list[float], said: str
) -> None:
    hub.faults = {"model.safetensors": [f"429 {said}", "429 Retry-After: soon"]}
    modelkit.pull(STORY, home=tmp_path / "home")
    assert waited[0] == 7
    assert 0 < waited[1] < 1


def test_a_list_of_files_is_waited_for_where_nothing_is_cached(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(obtain.time, "sleep", slept.append)
    hub.faults = {"api": ["429 Retry-After: 7", "503 Retry-After: 2"]}
    modelkit.pull(STORY, home=tmp_path / "home")
    hub.faults = {"api": ["429 Retry-After: 7"]}
    modelkit.pull(STORY, name="again", home=tmp_path / "home")
    assert slept == [7, 2]
    hub.faults = {"api": ["429 Retry-After: 3600"]}
    with pytest.raises(FetchError, match="asks to come back in 3600 s"):
        modelkit.pull(f"{STORY}@other", home=tmp_path / "home")


def test_a_server_that_wants_an_hour_is_not_waited_for(
    hub: Hub, tmp_path: Path, cache: Path, waited: list[float]
) -> None:
    hub.faults = {"model.safetensors": ["cut", "429 Retry-After: 3600"]}
    with pytest.raises(FetchError, match="asks to come back in 3600 s"):
        modelkit.pull(STORY, home=tmp_path / "home")
    hub.faults = {"model.safetensors": [f"429 Retry-After: {formatdate(time.time() + 3600, usegmt=True)}"]}
    with pytest.raises(FetchError, match=r"asks to come back in 3[56]\d\d s"):
        modelkit.pull(STORY, home=tmp_path / "home")
    assert max(waited) < 1
    assert list(cache.rglob("*.part"))  # the next command goes on from here


@pytest.mark.parametrize("fault", ["drip", "drip head"])
def test_a_file_that_drips_is_given_up_and_what_came_is_kept(
    hub: Hub, tmp_path: Path, cache: Path, waited: list[float], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    hub.faults = {"model.safetensors": [fault] * 20}
    started = time.monotonic()
    with monkeypatch.context() as hasty:
        hasty.setattr(library, "ANSWER_S", 0.3)
        with pytest.raises(library.Unreachable, match=r"within 0\.3 s"):
            modelkit.pull(STORY, home=tmp_path / "home")
    assert time.monotonic() - started < 60  # the first of them drips for a minute
    assert len(hub.asked("/cdn/Amy/Story/model.safetensors")) == transfer.ATTEMPTS
    came_bytes = sum(path.stat().st_size for path in cache.rglob("*.part"))
    hub.faults = {}
    modelkit.pull(STORY, home=tmp_path / "home")
    asked_for = hub.asked("/cdn/Amy/Story/model.safetensors")[-1].headers.get("range", "bytes=0-")
    assert asked_for == f"bytes={came_bytes}-"
    assert (came_bytes > 0) == (fault == "drip")


def test_a_file_that_drips_and_then_comes_is_had(
    hub: Hub, tmp_path: Path, waited: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "ANSWER_S", 0.3)
    hub.faults = {"model.safetensors": ["drip", "drip head", "drip"]}
    modelkit.pull(STORY, home=tmp_path / "home")


def test_a_slow_line_is_no_drip(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it all takes, and whatever the pieces are."""
    now_s = iter(range(0, 10_000, 20))
    monkeypatch.setattr(library, "monotonic", lambda: next(now_s))
    third = bytes(-(-library.PACE_BYTES // 3))
    assert len(list(library.in_pace(iter([third] * 300), "x"))) == 300
    with pytest.raises(library.Unreachable, match="x: the server sent only 12 bytes within 60 s"):
        list(library.in_pace(iter([third] * 3 + [b"abc"] * 300), "x"))


def test_an_error_without_end_is_read_as_far_as_it_is_shown(hub: Hub, tmp_path: Path) -> None:
    hub.faults = {"model.safetensors": ["endless 403"]}
    with pytest.raises(FetchError, match=r"refuses model\.safetensors \(xxx"):
        modelkit.pull(STORY, home=tmp_path / "home")
    assert hub.sent_bytes < hub.endless_bytes


def test_a_killed_fetch_goes_on_where_it_ended(hub: Hub, tmp_path: Path, cache: Path) -> None:
    """But for the page that was not full yet; pages are small ones here."""
    hub.faults = {"model.safetensors": ["stall"]}
    code = "import modelkit; from modelkit.store import disk; disk.PAGE_BYTES = 4096;"
    code += f"modelkit.pull({STORY!r}, home={str(tmp_path / 'home')!r})"
    data = hub.repositories["Amy/Story"].files["model.safetensors"]
    part = cache / "models--Amy--Story" / "blobs" / f"{hashlib.sha256(data).hexdigest()}.part"
    left = len(data) // 3 // 4096 * 4096
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL) as child:
        assert hub.stalled.wait(60)
        while part.stat().st_size < left:
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
    modelkit.pull(STORY, home=tmp_path / "home")
    assert f"bytes={left}-" in [one.headers.get("range") for one in hub.asked("model.safetensors")]
    assert not list(cache.rglob("*.part"))


def test_of_a_file_that_is_begun_the_rest_is_left(
    hub: Hub, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = hub.repositories["Amy/Story"].files["model.safetensors"]
    part = cache / "models--Amy--Story" / "blobs" / f"{hashlib.sha256(data).hexdigest()}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(data[:-100])
    told, needed = Listener(), list[int]()
    monkeypatch.setattr(obtain, "_require_space", lambda _folder, count: needed.append(count))
    modelkit.pull(STORY, home=tmp_path / "home", progress=told)
    total = sum(bar for _, bar in told.bars[:1])
    here = obtain.size(len(data) - 100)
    assert needed == [total - len(data) + 100]
    assert told.said[0].endswith(f": 7 files to fetch, {obtain.size(needed[0])}; {here} are here already")


def test_a_part_of_other_bytes_costs_a_second_transfer(hub: Hub, tmp_path: Path, cache: Path) -> None:
    digest = hashlib.sha256(hub.repositories["Amy/Story"].files["model.safetensors"]).hexdigest()
    part = cache / "models--Amy--Story" / "blobs" / f"{digest}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 100)
    modelkit.pull(STORY, home=tmp_path / "home")
    assert not part.exists()


def test_the_token_goes_to_the_hub_alone(hub: Hub, tmp_path: Path, cache: Path) -> None:
    modelkit.pull(STORY, home=tmp_path / "home")
    for one in hub.requests:
        sent = one.headers.get("authorization")
        assert sent == ("Bearer hf_secret" if one.host.startswith("127.0.0.1") else None)
    written = [path for path in tmp_path.rglob("*") if path.is_file() and b"hf_secret" in path.read_bytes()]
    assert written == []


def test_a_server_without_encryption_is_given_no_token(hub: Hub) -> None:
    assert "authorization" in {name.lower() for name in headers_for(hub.endpoint)}
    assert "authorization" in {name.lower() for name in headers_for("https://mirror.example.org")}
    assert "authorization" not in {name.lower() for name in headers_for("http://mirror.example.org")}


def test_two_at_once_fetch_a_file_once(hub: Hub, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        pulled = list(pool.map(lambda one: modelkit.pull(STORY, home=tmp_path / one), ("a", "b")))
    assert pulled[0].digest == pulled[1].digest
    assert len(hub.asked("/cdn/Amy/Story/model.safetensors")) == 1


@pytest.mark.parametrize("fault", ["stall", "mute"])
def test_ctrl_c_does_not_wait_for_a_silent_server(hub: Hub, tmp_path: Path, fault: str) -> None:
    hub.faults = {"model.safetensors": [fault]}
    main, interrupted = threading.get_ident(), list[float]()

    def interrupt() -> None:
        assert hub.stalled.wait(60)
        time.sleep(0.1)
        interrupted.append(time.monotonic())
        signal.pthread_kill(main, signal.SIGINT)

    # A shell's background jobs have it ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    waiting = threading.Thread(target=interrupt)
    waiting.start()
    with pytest.raises(KeyboardInterrupt):
        modelkit.pull(STORY, home=tmp_path / "home")
    waiting.join()
    signal.signal(signal.SIGINT, before)
    assert time.monotonic() - interrupted[0] < READ_S / 2
    if fault == "stall":  # of a server that is mute, the thread that waits has the file to itself
        hub.faults = {}
        modelkit.pull(STORY, home=tmp_path / "home")


def test_a_file_that_cannot_be_had_ends_the_others_at_once(hub: Hub, tmp_path: Path) -> None:
    hub.faults = {"model.safetensors": ["mute"], "config.json": ["404"]}
    started = time.monotonic()
    with pytest.raises(FetchError, match=r"does not have config\.json \(status 404\)"):
        modelkit.pull(STORY, home=tmp_path / "home")
    assert time.monotonic() - started < READ_S / 2


def test_a_full_disk_is_seen_before_a_byte_moves(hub: Hub, tmp_path: Path) -> None:
    hub.repositories["Amy/Story"].siblings = {
        "model.safetensors": {"lfs": {"sha256": "0" * 64, "size": 1 << 43, "pointerSize": 1}}
    }
    with pytest.raises(DiskFull, match=r"8\.8 TB, and a twentieth more, must be fetched to"):
        modelkit.pull(STORY, home=tmp_path / "home")
    assert not hub.asked("/resolve/")


@pytest.mark.parametrize("who", ["Ollama", "LM Studio", "llama.cpp"])
def test_what_another_program_has_is_not_fetched(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    monkeypatch.setattr(other_programs, "LEAST_BYTES", 1)
    data = hub.repositories["Amy/Story"].files["model.safetensors"]
    place = {
        "Ollama": tmp_path / "ollama" / "blobs" / f"sha256-{hashlib.sha256(data).hexdigest()}",
        "LM Studio": tmp_path / ".lmstudio" / "models" / "Amy" / "Story" / "model.safetensors",
        "llama.cpp": tmp_path / ".cache" / "llama.cpp" / "Amy_Story_model.safetensors",
    }[who]
    place.parent.mkdir(parents=True)
    place.write_bytes(data)
    theirs = modelkit.pull(STORY, home=tmp_path / "a")
    assert not hub.asked("model.safetensors")
    assert theirs.digest == modelkit.pull(STORY, home=tmp_path / "b").digest
    place.chmod(0o644)
    place.write_bytes(data[:-1] + b"x")  # the same size, and not the same
    if who == "Ollama":  # its name is a promise, and checked when the file is read
        with pytest.raises(SourceError, match=r"Remove it and get it again"):
            modelkit.pull(STORY, home=tmp_path / "c")
    else:
        assert modelkit.pull(STORY, home=tmp_path / "c").digest == theirs.digest
        assert hub.asked("model.safetensors")
