"""Against the reference implementation: Debian's docker-registry, killed and restarted at bad moments."""

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from modelkit.address import RegistryAddress
from modelkit.errors import FetchError
from modelkit.fetch.access import Access
from modelkit.fetch.registry.manifests import referrers, tags
from modelkit.fetch.registry.push import push
from modelkit.fetch.registry.session import Session, Sessions
from modelkit.fetch.registry.source import open_registry
from modelkit.fetch.registry.wire import Body
from modelkit.store import Blob, Digest, Name, Store
from tests.modelkit.fetch.conftest import QUICK, pull
from tests.modelkit.store.packages import TREE, put, read
from tests.support import debian_registry, killed_transfer

pytestmark = pytest.mark.skipif(not debian_registry.installed, reason="docker-registry is not installed")

MB = 1 << 20
LARGE = {**TREE, "model.safetensors": hashlib.shake_256(b"weights").digest(9 * MB)}
NAME = Name.parse("back")


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    with debian_registry.DebianRegistry(tmp_path_factory.mktemp("debian"), relative=True) as running:
        yield running


def test_out_and_back_in_chunks(debian, store: Store, tmp_path: Path) -> None:
    digest = put(store, "story", LARGE)
    address = RegistryAddress(debian.host, "amy/chunks", "q4")
    first = push("story", address, store, Access(), limits=QUICK, chunk_bytes=2 * MB)
    again = push("story", address, store, Access(), limits=QUICK, chunk_bytes=2 * MB)
    assert (first.digest, again.sent_bytes) == (digest, 0)
    beside = RegistryAddress(debian.host, "amy/mounted", "q4")
    mounted = push("story", beside, store, Access(), limits=QUICK)
    assert (mounted.sent_bytes, mounted.mounted) == (0, len(LARGE))
    with open_registry(address, insecure=False) as registry:
        assert tags(registry, "amy/chunks") == ["q4"]
        assert referrers(registry, "amy/chunks", digest) == []
    other = Store(tmp_path / "other")
    assert pull(beside, NAME, other, Access(), limits=QUICK).digest == digest
    assert read(other, "back") == LARGE
    assert other.verify().problems == ()


def test_a_push_that_was_killed_in_a_chunk_begins_the_blob_again(debian, store: Store) -> None:
    # This registry gives up an upload that has more bytes than the last answer said.
    digest = put(store, "story", LARGE)
    killed_transfer.run("push", store.root.parent, debian.host, "amy/killed", 7 * MB, 2 * MB)
    debian.stop()
    debian.start()
    address = RegistryAddress(debian.host, "amy/killed")
    with pytest.raises(FetchError, match="does not have amy/killed:latest"):
        pull(address, NAME, store, Access(), limits=QUICK)
    assert push("story", address, store, Access(), limits=QUICK, chunk_bytes=2 * MB).digest == digest


def test_a_push_that_died_between_chunks_goes_on(
    debian, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = put(store, "story", LARGE)
    address = RegistryAddress(debian.host, "amy/between")
    whole = Sessions.chunk

    def dying(self: Sessions, session: Session, blob: Blob, count: int, body: Body) -> Session:
        if session.offset >= 6 * MB:
            raise ZeroDivisionError
        return whole(self, session, blob, count, body)

    with monkeypatch.context() as patched:
        patched.setattr(Sessions, "chunk", dying)
        with pytest.raises(ZeroDivisionError):
            push("story", address, store, Access(), limits=QUICK, chunk_bytes=MB)
    debian.stop()
    debian.start()
    done = push("story", address, store, Access(), limits=QUICK, chunk_bytes=MB)
    assert (done.digest, done.sent_bytes) == (digest, 3 * MB)


def test_a_pull_that_was_killed_goes_on(debian, store: Store, tmp_path: Path) -> None:
    digest = put(store, "story", LARGE)
    address = RegistryAddress(debian.host, "amy/fetched")
    push("story", address, store, Access(), limits=QUICK)
    home = tmp_path / "other"
    killed_transfer.run("pull", home, debian.host, "amy/fetched", 6 * MB, MB)
    other = Store(home)
    assert other.packages() == []
    debian.stop()
    debian.start()
    heard = Heard()
    assert pull(address, NAME, other, Access(listener=heard), limits=QUICK).digest == digest
    assert read(other, "back") == LARGE
    assert heard.first >= 5 * MB  # what was there already, told at once


@pytest.mark.skipif(not shutil.which("skopeo"), reason="skopeo is not installed")
def test_skopeo_takes_it_from_there_and_brings_it_back(debian, store: Store, tmp_path: Path) -> None:
    digest = put(store, "story", LARGE)
    push("story", RegistryAddress(debian.host, "amy/pushed"), store, Access(), limits=QUICK)
    for source, target in (
        (f"docker://{debian.host}/amy/pushed:latest", f"dir:{tmp_path / 'out'}"),
        (f"dir:{tmp_path / 'out'}", f"docker://{debian.host}/amy/copied:latest"),
    ):
        done = subprocess.run(
            ["skopeo", "copy", "--src-tls-verify=false", "--dest-tls-verify=false", source, target]
            if source.startswith("docker") and target.startswith("docker")
            else ["skopeo", "copy", "--src-tls-verify=false", source, target]
            if source.startswith("docker")
            else ["skopeo", "copy", "--dest-tls-verify=false", source, target],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    assert Digest.of((tmp_path / "out" / "manifest.json").read_bytes()) == digest
    other = Store(tmp_path / "other")
    copied = RegistryAddress(debian.host, "amy/copied")
    assert pull(copied, NAME, other, Access(), limits=QUICK).digest == digest


class Heard:
    """Keeps the largest of the first few steps that a bar is told of."""

    def __init__(self) -> None:
        self.first = 0

    def say(self, sentence: str) -> None: ...
    def begin(self, label: str, total_bytes: int) -> None: ...
    def finish(self) -> None: ...

    def advance(self, done_bytes: int) -> None:
        self.first = max(self.first, done_bytes)
