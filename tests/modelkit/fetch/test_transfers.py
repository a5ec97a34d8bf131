"""Blobs travel in parts, over bad connections, through servers that forget, and only once."""

import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from modelkit.address import RegistryAddress
from modelkit.errors import FetchError, StoreError
from modelkit.fetch.access import Access, NoListener
from modelkit.fetch.registry import download
from modelkit.fetch.registry.manifests import tags
from modelkit.fetch.registry.push import push
from modelkit.fetch.registry.source import open_registry
from modelkit.store import Name, Store
from modelkit.units import size
from tests.modelkit.fetch.conftest import QUICK, SHORT, at, pull
from tests.modelkit.store.packages import TREE, put, read
from tests.support import killed_transfer
from tests.support.fake_registry import Call, FakeRegistry, digest_of
from tests.support.hub import Listener

MB = 1 << 20
WEIGHTS = hashlib.shake_256(b"weights").digest(3 * MB)
LARGE = {**TREE, "model.safetensors": WEIGHTS}
NAME = Name.parse("back")
CHUNK = MB // 2


def sent(store: Store, registry: FakeRegistry) -> int:
    return push("story", at(registry), store, Access(), limits=QUICK, chunk_bytes=CHUNK).sent_bytes


def fetched(registry: FakeRegistry, home: Path) -> dict[str, bytes]:
    store = Store(home)
    pull(at(registry), NAME, store, Access(), limits=QUICK)
    assert store.verify().problems == ()
    return read(store, "back")


def once(rule: Callable[[Call], bool | None]) -> Callable[[Call], bool | None]:
    """The rule for the first request that it acts on."""
    acted: list[bool] = []

    def act(call: Call) -> bool | None:
        if acted:
            return None
        found = rule(call)
        if found:
            acted.append(True)
        return found

    return act


def on(method: str, part: str, act: Callable[[Call], bool | None]) -> Callable[[Call], bool | None]:
    return lambda call: act(call) if call.method == method and part in call.path else None


def cut_off(call: Call) -> bool:
    """Take half of what comes, keep it, and hang up."""
    registry = call.handler.server.registry
    upload = registry.uploads[call.path.rpartition("/")[2]]
    upload += call.handler.rfile.read(int(call.header("content-length") or 0) // 2)
    call.handler.close_connection = True
    return True


# Sending


@pytest.mark.parametrize(
    "rule",
    [
        on("PATCH", "uploads", cut_off),
        on("PATCH", "uploads", lambda call: call.answer(503, Retry_After="0")),
        on("PATCH", "uploads", lambda call: call.answer(404)),
        on("PATCH", "uploads", lambda call: call.answer(416)),
        on("PUT", "uploads", lambda call: call.answer(404)),
        on("HEAD", "blobs", lambda call: call.answer(502)),
        on("POST", "uploads", lambda call: call.answer(429, Retry_After="0")),
        on("PUT", "manifests", lambda call: call.answer(500)),
        on("PATCH", "uploads", lambda call: call.answer(308, Location=f"{call.handler.path}&moved=1")),
        on("POST", "uploads", lambda call: call.answer(307, Location=f"{call.handler.path}?moved=1")),
    ],
    ids=[
        *("cut off", "busy", "forgotten", "range", "forgotten at the end", "head", "post", "manifest"),
        *("chunk moved", "post moved"),
    ],
)
def test_a_push_gets_over_one_failure(
    rule: Callable[[Call], bool | None], store: Store, registry: FakeRegistry, tmp_path: Path
) -> None:
    put(store, "story", LARGE)
    registry.rules.append(once(rule))
    sent(store, registry)
    assert fetched(registry, tmp_path / "other") == LARGE


def test_what_the_registry_has_after_a_failure_is_not_sent_again(
    store: Store, registry: FakeRegistry
) -> None:
    put(store, "story", LARGE)
    registry.rules.append(once(on("PATCH", "uploads", cut_off)))
    assert sent(store, registry) <= len(WEIGHTS) + CHUNK + 20_000


def test_a_push_that_was_killed_goes_on_where_it_ended(store: Store, registry: FakeRegistry) -> None:
    put(store, "story", LARGE)
    killed_transfer.run("push", store.root.parent, registry.host, "amy/story", 2 * MB, CHUNK)
    registry.settle()
    done = push("story", at(registry, tag=None), store, Access(), limits=QUICK, chunk_bytes=CHUNK)
    assert done.sent_bytes < 2 * MB
    assert not [
        row for row in (store.root.parent / "registries.json").read_bytes().split() if b"_state" in row
    ]


def test_the_end_of_an_upload_may_take_its_time(store: Store, registry: FakeRegistry) -> None:
    """As long as its size allows: 3 MB are not moved in 1.5 s everywhere, and a short file is."""
    put(store, "story", LARGE)
    late = {digest_of(WEIGHTS): 1.8}
    registry.rules.append(
        on("PUT", "uploads", lambda call: time.sleep(late.pop(call.query["digest"][0], 0.0)))
    )
    hasty = replace(QUICK, silence_s=1.5, answer_s=1.5)
    push("story", at(registry), store, Access(), limits=hasty, chunk_bytes=CHUNK)
    assert not late
    assert registry.count("PUT", "uploads") == len(LARGE)


def test_the_end_of_a_short_upload_is_not_waited_for(store: Store, registry: FakeRegistry) -> None:
    put(store, "story", TREE)
    over = threading.Event()
    registry.rules.append(on("PUT", "uploads", lambda call: over.wait(100)))
    hasty = replace(QUICK, answer_s=0.3)  # what else it asks has the time that a busy machine takes
    with pytest.raises(FetchError, match="forgets the upload"):
        push("story", at(registry), store, Access(), limits=hasty)
    over.set()


def test_a_least_size_of_chunks_is_kept(store: Store, registry: FakeRegistry) -> None:
    put(store, "story", LARGE)
    registry.least_chunk = 2 * MB
    sent(store, registry)
    lengths = [int(headers["Content-Length"]) for method, _, headers in registry.log if method == "PATCH"]
    assert lengths == [2 * MB, MB]


def test_a_location_may_be_relative_and_hold_a_query(
    store: Store, registry: FakeRegistry, tmp_path: Path
) -> None:
    put(store, "story", LARGE)
    registry.relative = True
    sent(store, registry)
    ends = [path for method, path, _ in registry.log if method == "PUT" and "uploads" in path]
    assert all("?_state=" in path and "&digest=sha256:" in path for path in ends)
    assert fetched(registry, tmp_path / "other") == LARGE


def test_what_is_there_is_not_sent(store: Store, registry: FakeRegistry) -> None:
    put(store, "story", LARGE)
    first = push("story", at(registry), store, Access(), limits=QUICK)
    assert first.sent_bytes > len(WEIGHTS)
    again = push("story", at(registry, tag="second"), store, Access(), limits=QUICK)
    assert (again.sent_bytes, again.mounted) == (0, 0)
    beside = push("story", at(registry, "bob/copy"), store, Access(), limits=QUICK)
    assert (beside.sent_bytes, beside.mounted) == (0, len(LARGE))


def test_a_damaged_blob_is_not_sent(store: Store, registry: FakeRegistry) -> None:
    put(store, "story", LARGE)
    path = store.resolve("story").files["model.safetensors"]
    path.chmod(0o600)
    path.write_bytes(b"x" * len(WEIGHTS))
    with pytest.raises(StoreError, match="damaged"):
        sent(store, registry)
    assert registry.count("POST", "uploads") == 0


def test_a_registry_that_always_forgets_is_given_up(store: Store, registry: FakeRegistry) -> None:
    put(store, "story", LARGE)
    registry.rules.append(on("PATCH", "uploads", lambda call: call.answer(404)))
    with pytest.raises(FetchError, match="forgets the upload"):
        sent(store, registry)
    assert registry.count("PUT", "manifests") == 0


def test_a_manifest_that_the_registry_changes_is_an_error(store: Store, registry: FakeRegistry) -> None:
    put(store, "story")
    changed = digest_of(b"another")
    registry.rules.append(
        on("PUT", "manifests", lambda call: call.answer(201, Docker_Content_Digest=changed))
    )
    with pytest.raises(FetchError, match="has changed the manifest"):
        sent(store, registry)


# Fetching


def hang_up_after(count: int) -> Callable[[Call], bool | None]:
    """Serve a blob's range, but not more than `count` bytes of it."""

    def act(call: Call) -> bool:
        data = call.handler.server.registry.blobs[call.path.rpartition("/")[2]]
        start, stop = 0, len(data)
        if asked := call.header("range"):
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start, stop = int(first), int(last) + 1
        headers = {"Content_Range": f"bytes {start}-{stop - 1}/{len(data)}"} if asked else {}
        call.handler.close_connection = True
        return call.answer(
            206 if asked else 200, data[start : min(stop, start + count)], length=stop - start, **headers
        )

    return on("GET", "/blobs/", act)


@pytest.fixture
def stored(store: Store, registry: FakeRegistry) -> FakeRegistry:
    put(store, "story", LARGE)
    push("story", at(registry), store, Access(), limits=QUICK)
    registry.log.clear()
    return registry


def test_a_server_that_breaks_off_again_and_again_is_asked_for_the_rest(
    stored: FakeRegistry, tmp_path: Path
) -> None:
    stored.rules.append(hang_up_after(256 << 10))
    assert fetched(stored, tmp_path / "other") == LARGE


def test_a_large_blob_comes_in_several_ranges(
    stored: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "LARGE_BYTES", MB)
    stored.rules.append(hang_up_after(100_000))
    assert fetched(stored, tmp_path / "other") == LARGE
    starts = {headers["Range"].partition("-")[0] for _, _, headers in stored.log if "Range" in headers}
    quarter = len(WEIGHTS) // 4
    assert {f"bytes={quarter * number}" for number in range(4)} <= starts


@pytest.mark.parametrize("large", [False, True])
def test_a_server_without_ranges_is_read_from_the_start(
    large: bool, stored: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "LARGE_BYTES", MB if large else 1 << 40)
    stored.rules.append(once(hang_up_after(MB)))
    stored.rules.append(
        on("GET", "/blobs/", lambda call: call.answer(200, stored.blobs[call.path.rpartition("/")[2]]))
    )
    assert fetched(stored, tmp_path / "other") == LARGE


def test_a_pull_that_was_killed_goes_on_where_it_ended(stored: FakeRegistry, tmp_path: Path) -> None:
    home = tmp_path / "other"
    stored.manifests["amy/story", "latest"] = stored.manifests["amy/story", "q4"]
    killed_transfer.run("pull", home, stored.host, "amy/story", 2 * MB, CHUNK)
    assert Store(home).packages() == []
    stored.log.clear()
    assert fetched(stored, home) == LARGE
    assert any(
        int(headers["Range"][6:].partition("-")[0]) >= MB
        for _, _, headers in stored.log
        if "Range" in headers
    )


def test_what_is_left_after_a_kill_is_what_is_said_and_needs_room(
    store: Store, stored: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, told, needed = tmp_path / "other", Listener(), list[int]()
    stored.manifests["amy/story", "latest"] = stored.manifests["amy/story", "q4"]
    killed_transfer.run("pull", home, stored.host, "amy/story", 2 * MB, CHUNK)
    whole = sum(blob.size_bytes for blob in store.resolve("story").manifest.blobs)
    monkeypatch.setattr(Store, "require_space", lambda _store, count: needed.append(count))
    stored.log.clear()
    pull(at(stored), NAME, Store(home), Access(listener=told), limits=QUICK)
    (first,) = (
        int(headers["Range"][6:].partition("-")[0]) for _, _, headers in stored.log if "Range" in headers
    )
    assert MB <= first < len(WEIGHTS)
    assert 0 <= needed[0] - (len(WEIGHTS) - first) <= whole - len(WEIGHTS)  # small ones may be missing, too
    assert told.said == [f"{at(stored)}: {size(needed[0])} of {size(whole)} to fetch"]


def test_what_a_killed_pull_left_is_pruned(stored: FakeRegistry, tmp_path: Path) -> None:
    store = Store(tmp_path / "other")
    stored.manifests["amy/story", "latest"] = stored.manifests["amy/story", "q4"]
    killed_transfer.run("pull", store.root.parent, stored.host, "amy/story", 2 * MB, CHUNK)
    assert store.prune().temp_bytes >= MB
    assert list((store.root / "partial").iterdir()) == []


def test_two_pulls_at_once_fetch_a_blob_once(stored: FakeRegistry, tmp_path: Path) -> None:
    home = tmp_path / "other"
    threads = [threading.Thread(target=fetched, args=(stored, home)) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert stored.count("GET", f"/blobs/{digest_of(WEIGHTS)}") == 1


def test_a_damaged_beginning_is_found_and_fetched_again(stored: FakeRegistry, tmp_path: Path) -> None:
    store = Store(tmp_path / "other")
    stored.manifests["amy/story", "latest"] = stored.manifests["amy/story", "q4"]
    killed_transfer.run("pull", store.root.parent, stored.host, "amy/story", 2 * MB, CHUNK)
    part = next(path for path in (store.root / "partial").iterdir() if path.name == digest_of(WEIGHTS)[7:])
    part.write_bytes(b"x" * part.stat().st_size)
    assert fetched(stored, store.root.parent) == LARGE


# Small documents


def test_tags_come_page_by_page(store: Store, registry: FakeRegistry) -> None:
    put(store, "story")
    for number in range(7):
        push("story", at(registry, tag=f"v{number}"), store, Access(), limits=QUICK)
    registry.page = 3
    with open_registry(at(registry), insecure=False, limits=QUICK) as asked:
        assert tags(asked, "amy/story") == [f"v{number}" for number in range(7)]
    with pytest.raises(FetchError) as caught:
        pull(at(registry, tag="gone"), NAME, store, Access(), limits=QUICK)
    assert caught.value.hint == "Its tags are v0, v1, v2, v3, v4, v5, v6."


@pytest.mark.parametrize("known", [True, False], ids=["referrers", "tag"])
def test_what_refers_to_a_package_is_said(
    known: bool, store: Store, registry: FakeRegistry, tmp_path: Path
) -> None:
    digest = str(put(store, "story"))
    push("story", at(registry), store, Access(), limits=QUICK)
    entry = {
        "mediaType": "x",
        "artifactType": "application/vnd.example.signature",
        "digest": digest,
        "size": 1,
    }
    if known:
        registry.referrers = {digest: [entry]}
    else:
        index = {"schemaVersion": 2, "manifests": [entry]}
        kind = "application/vnd.oci.image.index.v1+json"
        registry.put_manifest("amy/story", digest.replace(":", "-"), index, kind)
    pulled = pull(at(registry), NAME, Store(tmp_path / "other"), Access(), limits=QUICK)
    assert pulled.notes == (
        "others have attached to it: application/vnd.example.signature; signatures are not checked here",
    )


class Bars(NoListener):
    """Those that begin and end."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def begin(self, label: str, total_bytes: int) -> None:
        self.heard.append(label)

    def finish(self) -> None:
        self.heard.append("end")


def test_a_bar_that_has_not_begun_does_not_end(store: Store, registry: FakeRegistry) -> None:
    put(store, "story")  # written a moment ago, so there is nothing to check
    push("story", at(registry), store, Access(listener=(bars := Bars())), limits=QUICK)
    assert bars.heard == ["push", "end"]


def test_what_is_made_already_is_not_fetched_to_be_quantized(
    store: Store, registry: FakeRegistry, tmp_path: Path
) -> None:
    put(store, "story")
    push("story", at(registry), store, Access(), limits=QUICK)
    registry.log.clear()
    with pytest.raises(FetchError, match="a package already, which a pull does not quantize"):
        pull(at(registry), NAME, Store(tmp_path / "other"), Access(), limits=QUICK, quantize="q4")
    assert registry.count("GET", "/blobs/") == 0


def test_a_registry_that_does_not_answer_is_told_in_the_systems_words() -> None:
    nobody = RegistryAddress("127.0.0.1:1", "amy/story", "q4")
    with open_registry(nobody, insecure=True, limits=SHORT) as asked, pytest.raises(FetchError) as raised:
        asked.ping()
    assert raised.value.message == "cannot reach 127.0.0.1:1: Connection refused"
