"""Caches: what they say is true, and whatever is wrong with them is the same as not knowing."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modelkit.errors import SourceError
from modelkit.store import Digest, Store
from tests.modelkit.store.packages import TREE, put

WEIGHTS = str(Digest.of(TREE["model.safetensors"]))


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute from now, as the store sees it."""
    import time

    now_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + 60_000_000_000)


def test_a_conversion_is_remembered(store: Store):
    put(store, "a")
    value = {"files": {"model.safetensors": {"digest": WEIGHTS, "size": 5000}}, "note": "é"}
    store.memo_put("sources + plan", value)
    assert store.memo_get("sources + plan") == value
    assert store.memo_get("other sources + plan") is None
    assert store.verify().problems == ()


def test_a_conversion_that_lost_a_blob_is_forgotten_and_pruned(store: Store):
    put(store, "a")
    put(store, "b", {"x.json": b"x"})
    store.memo_put("gone", {"blobs": [WEIGHTS, str(Digest.of(b"x"))]})
    store.memo_put("kept", {"blobs": [str(Digest.of(b"x"))]})
    store.remove("a")
    assert store.memo_get("gone") is None
    assert store.prune().conversions == 1
    assert store.memo_get("kept") is not None
    assert len(list((store.root / "conversions").iterdir())) == 1


def test_a_conversion_keeps_no_blob_alive(store: Store):
    put(store, "a")
    store.memo_put("k", {"blobs": [WEIGHTS]})
    store.remove("a")
    assert not (store.root / "blobs" / "sha256" / WEIGHTS[7:]).exists()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    junk=st.binary(max_size=40)
    | st.sampled_from([b"{}", b'{"key":"k"}', b'{"key":"k","value":[]}', b"[" * 99999])
)
def test_a_damaged_cache_reads_as_empty(store: Store, tmp_path: Path, junk: bytes):
    put(store, "a")
    store.memo_put("k", {"a": 1})
    for path in (next((store.root / "conversions").iterdir()), store.root / "sources.json"):
        path.write_bytes(junk)
    source = written(tmp_path / "w", b"weights")
    assert store.memo_get("k") is None
    assert store.source_digest(source) == Digest.of(b"weights")
    store.prune()
    assert store.verify().problems == ()


@pytest.mark.usefixtures("later")
def test_an_unchanged_source_is_read_once(store: Store, tmp_path: Path):
    source = written(tmp_path / "w", b"weights")
    seen: list[int] = []
    assert store.source_digest(source, progress=seen.append) == Digest.of(b"weights")
    assert Store(tmp_path / "home").source_digest(source, progress=seen.append) == Digest.of(b"weights")
    assert seen == [7]


@pytest.mark.usefixtures("later")
def test_a_changed_source_is_read_again(store: Store, tmp_path: Path):
    source = written(tmp_path / "w", b"weights")
    store.source_digest(source)
    times = source.stat().st_mtime_ns
    source.write_bytes(b"WEIGHTS")
    os.utime(source, ns=(times, times))  # the ctime still tells
    assert store.source_digest(source) == Digest.of(b"WEIGHTS")


def test_a_source_changed_just_now_is_not_trusted_to_stay(store: Store, tmp_path: Path):
    source = written(tmp_path / "w", b"weights")
    seen: list[int] = []
    store.source_digest(source, progress=seen.append)
    store.source_digest(source, progress=seen.append)
    assert seen == [7, 7]


@pytest.mark.usefixtures("later")
def test_storing_a_file_is_knowing_it(store: Store, tmp_path: Path):
    source = written(tmp_path / "w", TREE["model.safetensors"])
    seen: list[int] = []
    with store.begin() as new:
        new.add_file(source, progress=seen.append)
        new.add_file(source, progress=seen.append)
    assert str(store.source_digest(source, progress=seen.append)) == WEIGHTS
    assert seen == [5000]


@pytest.mark.usefixtures("later")
def test_the_table_of_sources_stays_small(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("modelkit.store.memo._SOURCES", 3)
    for n in range(5):
        store.source_digest(written(tmp_path / f"w{n}", bytes([n])))
    seen: list[int] = []
    for n in (4, 3, 2, 1):
        store.source_digest(tmp_path / f"w{n}", progress=seen.append)
    assert seen == [1]


def test_a_source_that_is_no_file_is_refused(store: Store, tmp_path: Path):
    for path in (tmp_path, tmp_path / "missing", Path("/dev/zero")):
        with pytest.raises(SourceError):
            store.source_digest(path)


def test_a_source_that_changes_while_it_is_hashed_is_refused(store: Store, tmp_path: Path):
    source = written(tmp_path / "w", b"weights")
    with pytest.raises(SourceError, match="changed while"):
        store.source_digest(source, progress=lambda _: os.truncate(source, 3))


@pytest.mark.usefixtures("later")
def test_a_wrong_memory_of_a_source_costs_a_reading_not_a_failure(store: Store, tmp_path: Path):
    source = written(tmp_path / "w", b"weights")
    store.source_digest(source)
    table = store.root / "sources.json"
    table.write_text(table.read_text().replace(str(Digest.of(b"weights")), str(Digest.of(b"wrong"))))
    with store.begin() as new:
        assert new.add_file(source).digest == Digest.of(b"weights")
