"""Files that a client sends for a package that is to be made: `/api/blobs`, and the disk below."""

import hashlib
import os
from pathlib import Path

import httpx
import ollama
import pytest

from modelkit.errors import StoreError
from modelkit.server.models.model_source import StoredModels
from modelkit.server.ollama.staging import Staging
from modelkit.settings import Settings
from tests.support.served import served


def test_blobs_are_what_they_say(address: str, home: Path) -> None:
    data = b"x" * 100_000
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert httpx.head(f"{address}/api/blobs/{digest}").status_code == 404
    wrong = httpx.post(f"{address}/api/blobs/{digest}", content=data + b"y")
    assert (wrong.status_code, "digest mismatch" in wrong.json()["error"]) == (400, True)
    assert httpx.head(f"{address}/api/blobs/{digest}").status_code == 404
    assert httpx.post(f"{address}/api/blobs/{digest}", content=data).status_code == 201
    assert httpx.post(f"{address}/api/blobs/{digest}", content=data).status_code == 200
    assert httpx.head(f"{address}/api/blobs/{digest}").status_code == 200
    assert httpx.post(f"{address}/api/blobs/sha256:..", content=b"").status_code in (400, 404)
    assert not list((home / "staging").glob("part-*"))


def test_a_disk_that_takes_nothing_is_told_in_words(home: Path, tmp_path: Path) -> None:
    """The folder for files cannot be made, as on a disk that is read only."""
    (tmp_path / "staging").write_text("in the way")
    with served(StoredModels(Settings(tmp_path)), tmp_path) as url:
        digest = f"sha256:{hashlib.sha256(b'abc').hexdigest()}"
        answers = [
            httpx.post(f"{url}/api/blobs/{digest}", content=b"abc"),
            httpx.post(f"{url}/api/create", json={"model": "new", "from": "amy/story:q4"}),
        ]
    assert [answer.status_code for answer in answers] == [500, 500]
    assert all("staging: file exists" in answer.json()["error"] for answer in answers)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no disk that is always full")
def test_a_full_disk_is_told_by_the_last_bytes_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written is not on the disk before the file is closed, and closing it again fails again."""
    monkeypatch.setattr("modelkit.server.ollama.staging.require_space", lambda *_: None)
    incoming = Staging(tmp_path).begin(f"sha256:{hashlib.sha256(b'abc').hexdigest()}", 3)
    incoming.write(b"abc")
    os.dup2(full := os.open("/dev/full", os.O_WRONLY), incoming._file.fileno())  # pyright: ignore[reportPrivateUsage]
    os.close(full)
    with pytest.raises(StoreError, match="no space left"):
        incoming.finish()
    incoming.close()
    assert not list((tmp_path / "staging").iterdir())


def test_what_a_file_holds_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name says which bytes it has, and nobody looks again: a power cut must not leave others there."""
    held: list[bytes] = []

    def synced(_: int) -> None:
        held.extend(path.read_bytes() for path in (tmp_path / "staging").iterdir())

    monkeypatch.setattr("modelkit.server.ollama.staging.require_space", lambda *_: None)
    monkeypatch.setattr("modelkit.server.ollama.staging.sync", synced)
    digest = f"sha256:{hashlib.sha256(b'abc').hexdigest()}"
    incoming = Staging(tmp_path).begin(digest, 3)
    incoming.write(b"abc")
    assert Staging(tmp_path).find(digest) is None
    incoming.finish()
    assert held == [b"abc"]
    assert Staging(tmp_path).find(digest)


def test_a_package_is_made_while_another_ones_files_go(
    client: ollama.Client, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda self: iter([*there(self), self / "use-that-has-gone"]))
    assert client.create("beside", from_="amy/story:q4").status == "success"
    client.delete("beside")
