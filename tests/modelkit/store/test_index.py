"""index.json: names in, names out, and entries of other tools left alone."""

import json
from pathlib import Path

import pytest

from modelkit.errors import StoreError
from modelkit.store import Blob, Digest, Name, Store
from modelkit.store.index import Entry, Index
from tests.modelkit.store.packages import put

BLOB = Blob(Digest.of(b"m"), 1)


def test_an_entry_reads_back_with_its_time():
    index = Index(()).with_entry(Entry.make(Name.parse("amy/story:q4"), BLOB))
    (entry,) = Index.parse(index.to_bytes()).entries
    assert (entry.name, entry.blob) == (Name.parse("amy/story:q4"), BLOB)
    assert entry.modified_s == index.entries[0].modified_s


def test_a_name_occurs_once():
    index = Index(())
    for digest in (b"1", b"2", b"3"):
        index = index.with_entry(Entry.make(Name.parse("a"), Blob(Digest.of(digest), 1)))
    assert len(index.entries) == 1
    assert index.without(Name.parse("a")).entries == ()


def test_the_later_of_two_entries_of_one_name_counts():
    entries = [Entry.make(Name.parse("a"), Blob(Digest.of(text), 1)) for text in (b"1", b"2")]
    index = Index.parse(Index(tuple(entries)).to_bytes())
    assert index.named[Name.parse("A:latest")].blob == Blob(Digest.of(b"2"), 1)


def test_entries_of_other_tools_survive_a_change(store: Store):
    put(store, "mine")
    path = store.root / "index.json"
    value = json.loads(path.read_bytes())
    foreign = {
        "mediaType": "x/y",
        "digest": value["manifests"][0]["digest"],
        "size": 1,
        "urls": ["u"],
        "data": "e30=",
    }
    path.write_text(json.dumps({**value, "manifests": [*value["manifests"], foreign]}))
    store.copy("mine", "yours")
    assert foreign in json.loads(path.read_bytes())["manifests"]


@pytest.mark.parametrize(
    "created", [None, 7, "", "yesterday", "99999-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59"]
)
def test_a_time_that_is_none_reads_as_none(created: object):
    entry = Entry.parse({"annotations": {"org.opencontainers.image.created": created}})
    assert entry.modified_s is None or created == "0001-01-01T00:00:00+23:59"


@pytest.mark.parametrize(
    "raw", ["", "[]", "{", "{}", '{"manifests":7}', '{"manifests":[7]}', '{"manifests":{}}']
)
def test_a_damaged_index_stops_everything_and_deletes_nothing(store: Store, raw: str):
    put(store, "mine")
    (store.root / "index.json").write_text(raw)
    before = _files(store.root)
    for action in (store.packages, store.prune, lambda: store.remove("mine"), lambda: put(store, "other")):
        with pytest.raises(StoreError, match=f"index.json(.|\\n)*move {store.root} away"):
            action()
    assert _files(store.root) >= before


def test_a_missing_index_is_damage_not_an_empty_store(store: Store):
    put(store, "mine")
    (store.root / "index.json").unlink()
    with pytest.raises(StoreError, match=r"index\.json"):
        store.prune()


def test_a_missing_mark_of_the_layout_hides_nothing(store: Store):
    put(store, "mine")
    (store.root / "oci-layout").unlink()
    assert [str(package.name) for package in store.packages()] == ["mine"]
    put(store, "other")
    assert len(store.packages()) == 2


def test_an_index_too_large_to_be_ours_is_refused(store: Store):
    put(store, "mine")
    with (store.root / "index.json").open("r+b") as file:
        file.truncate(1 << 30)
    with pytest.raises(StoreError, match="at most"):
        store.packages()


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}
