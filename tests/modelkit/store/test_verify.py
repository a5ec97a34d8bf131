"""Verifying: every byte is read, and whoever suffers from a wrong one is named."""

from pathlib import Path

import pytest

from modelkit.errors import ModelNotFound
from modelkit.store import Store
from tests.modelkit.store.packages import TREE, blob, damage, put


def test_verify_reads_every_blob_of_a_sound_store(store: Store):
    put(store, "a")
    put(store, "b", {"x.json": b"b"})
    seen: list[int] = []
    report = store.verify(progress=seen.append)
    assert (report.problems, report.packages) == ((), 2)
    assert (
        report.read_bytes
        == sum(seen)
        == sum(p.stat().st_size for p in (store.root / "blobs/sha256").iterdir())
    )


def test_verify_finds_a_flipped_bit_and_says_who_suffers(store: Store):
    put(store, "a")
    store.copy("a", "b")
    path = blob(store, TREE["model.safetensors"])
    damage(path, b"T" + TREE["model.safetensors"][1:])
    (problem,) = store.verify().problems
    assert (problem.subject, problem.names) == (str(path), ("a", "b"))


def test_verify_of_some_names_reads_only_theirs(store: Store):
    put(store, "a", {"a.json": b"a"})
    put(store, "b", {"b.json": b"b"})
    damage(blob(store, b"b"), b"B")
    assert store.verify(["a"]).problems == ()
    assert len(store.verify(["a", "b"]).problems) == 1
    with pytest.raises(ModelNotFound):
        store.verify(["c"])


def test_verify_reports_missing_blobs_and_planted_links(store: Store, tmp_path: Path):
    put(store, "a")
    path = blob(store, TREE["model.safetensors"])
    path.unlink()
    path.symlink_to("/etc/passwd")
    problems = {problem.subject: problem.what for problem in store.verify().problems}
    assert "model.safetensors is missing" in problems["a"]
    assert "plain file" in problems[str(path)]
