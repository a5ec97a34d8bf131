"""A package goes to a registry and comes back as it was; what is there already does not travel."""

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import pytest

from modelkit.address import RegistryAddress
from modelkit.errors import ModelkitError
from modelkit.fetch.access import Access
from modelkit.fetch.registry.push import push
from modelkit.pack import pulling
from modelkit.store import Name, Store
from tests.modelkit.fetch.conftest import QUICK, at, pull
from tests.modelkit.store.packages import TREE, blobs_on_disk, put, read
from tests.support import dflash
from tests.support.checkpoints import write_checkpoint
from tests.support.fake_registry import FakeRegistry, whole_fetches
from tests.support.tiny import write_model

NAME = Name.parse("back")


def tree(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def model(tmp_path: Path) -> dict[str, bytes]:
    return tree(write_model(tmp_path / "model"))


def test_out_and_back_is_the_same_package(store: Store, registry: FakeRegistry, tmp_path: Path) -> None:
    digest = put(store, "story", format="safetensors")
    pushed = push("story", at(registry), store, Access(), limits=QUICK)
    assert (pushed.digest, pushed.sent_bytes > 5000, str(pushed.address)) == (
        digest,
        True,
        f"oci://{registry.host}/amy/story:q4",
    )
    other = Store(tmp_path / "other")
    pulled = pull(at(registry), NAME, other, Access(), limits=QUICK)
    assert (pulled.digest, pulled.notes) == (digest, ())
    assert read(other, "back") == TREE
    assert other.verify().problems == ()
    assert not list((other.root / "partial").iterdir())


def offered(store: Store, registry: FakeRegistry, files: Mapping[str, bytes]) -> RegistryAddress:
    put(store, "story", files)
    return push("story", at(registry), store, Access(), limits=QUICK).address


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"config.json": b'{"model_type": "nonsense"}'}, "nonsense"),
        ({"tokenizer.json": b"{}"}, "tokenizer.json"),
        ({"model.safetensors": b"\x08" + bytes(7) + b"nonsense"}, "model.safetensors"),
        ({"modelkit.json": b'{"version": 1, "requires": "99.0"}'}, "requires modelkit 99.0"),
    ],
    ids=["config", "tokenizer", "header", "version"],
)
def test_what_does_not_run_here_is_refused_before_its_weights_come(
    changes: Mapping[str, bytes],
    said: str,
    model: Mapping[str, bytes],
    store: Store,
    registry: FakeRegistry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files, other = {**model, **changes}, Store(tmp_path / "other")
    address = offered(store, registry, files)
    for moment_bytes in (0, 1 << 30):  # what is small comes at once
        registry.log.clear()
        monkeypatch.setattr("modelkit.fetch.registry.early_check.MOMENT_BYTES", moment_bytes)
        with pytest.raises(ModelkitError, match=said):
            pulling.pull(address, other, Access(), name=NAME)
        assert whole_fetches(registry, files["model.safetensors"]) == (1 if moment_bytes else 0)
        assert (other.packages(), blobs_on_disk(other)) == ([], set())


def test_what_runs_here_is_fetched_once(
    model: Mapping[str, bytes],
    store: Store,
    registry: FakeRegistry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("modelkit.fetch.registry.early_check.MOMENT_BYTES", 0)
    address, other = offered(store, registry, model), Store(tmp_path / "other")
    assert pulling.pull(address, other, Access(), name=NAME).notes == ()
    assert whole_fetches(registry, model["model.safetensors"]) == 1
    assert read(other, "back") == model


def test_a_draft_for_another_model_is_kept(store: Store, registry: FakeRegistry, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "draft", dflash.CONFIG, dflash.block_shapes(dflash.CONFIG))
    address = offered(store, registry, tree(tmp_path / "draft"))
    pulled = pulling.pull(address, Store(tmp_path / "other"), Access(), name=NAME)
    assert [note.partition(". ")[2] for note in pulled.notes] == ["Name it by DRAFT, and its target by FROM."]


def test_a_package_goes_out_from_a_full_disk(
    store: Store, registry: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever needs room may want to keep it elsewhere first."""
    put(store, "story", format="safetensors")

    def full(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        for call in ("mkdir", "write"):
            patched.setattr(os, call, full)
        push("story", at(registry), store, Access(), limits=QUICK)
    other = Store(tmp_path / "other")
    pull(at(registry), NAME, other, Access(), limits=QUICK)
    assert read(other, "back") == TREE
