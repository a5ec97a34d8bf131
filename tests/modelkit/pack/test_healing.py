"""Creating a package again mends whatever of it was damaged, and no package is made of damaged bytes."""

import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from modelkit.errors import ModelNotFound, StoreError
from modelkit.pack.build import Created
from modelkit.store import memo, soundness
from modelkit.store.digest import Digest
from modelkit.store.store import Store
from modelkit.store.transaction import Transaction

Make = Callable[..., Created]
TEXT = "FROM ./target\nDRAFT ./draft\nSYSTEM Be brief.\nLICENSE MIT\nTEMPLATE chatml"
OPTIONS = {"quantize": "q4"}  # so that the target is converted and the draft copied


@pytest.fixture
def pair(llama: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources that are remembered at once, so that conversions are not made again."""
    monkeypatch.setattr(memo, "_SETTLED_NS", 0)
    llama("target")
    llama("draft", seed=1, num_hidden_layers=1)


@pytest.fixture(params=["small", "large"])
def _sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same blobs as small ones, and as large ones that are not hashed each time."""
    if request.param == "large":
        monkeypatch.setattr(soundness, "SMALL_BYTES", 0)


def flip(path: Path) -> None:
    """One byte in the middle, as a user could: the size stays, and the modification time is put back."""
    times = path.stat()
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(times.st_size // 2)
        byte = file.read(1)[0]
        file.seek(times.st_size // 2)
        file.write(bytes([byte ^ 1]))
    path.chmod(0o444)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def blobs(store: Store, created: Created) -> dict[str, Path]:
    """Every blob of a package, by what it is."""
    manifest = store.root / "blobs" / "sha256" / created.digest.hex
    config = Digest.parse(json.loads(manifest.read_bytes())["config"]["digest"])
    files = store.resolve(created.name).files
    return {**files, "(manifest)": manifest, "(config)": manifest.parent / config.hex}


@pytest.mark.usefixtures("pair", "_sizes")
def test_any_flipped_byte_is_mended_by_creating_again(make: Make, store: Store) -> None:
    created = make(TEXT, **OPTIONS)
    parts = blobs(store, created)
    assert len(parts) > 10
    for what, path in parts.items():
        whole = path.read_bytes()
        flip(path)
        assert store.verify().problems, what
        assert make(TEXT, **OPTIONS).digest == created.digest, what
        assert path.read_bytes() == whole, what
        assert store.verify().problems == (), what


@pytest.mark.usefixtures("pair", "_sizes")
@pytest.mark.parametrize("part", ["model.safetensors", "draft/model.safetensors", "(manifest)"])
def test_no_verify_is_needed_and_no_other_name_stays_damaged(make: Make, store: Store, part: str) -> None:
    created = make(TEXT, **OPTIONS)
    make(TEXT, "twin", **OPTIONS)
    flip(blobs(store, created)[part])
    make(TEXT, **OPTIONS)
    assert store.verify().problems == ()
    assert store.resolve("twin").digest == created.digest


@pytest.mark.usefixtures("pair")
def test_a_blob_cut_short_is_mended_too(make: Make, store: Store) -> None:
    created = make(TEXT, **OPTIONS)
    for path in blobs(store, created).values():
        path.chmod(0o644)
        os.truncate(path, path.stat().st_size // 2)
        assert make(TEXT, **OPTIONS).digest == created.digest
        assert store.verify().problems == ()


@pytest.mark.usefixtures("pair")
def test_a_damaged_small_file_is_found_when_the_package_is_opened(make: Make, store: Store) -> None:
    for what, path in blobs(store, make(TEXT, **OPTIONS)).items():
        if what.endswith(".safetensors"):
            continue
        flip(path)
        with pytest.raises(StoreError, match=r"story cannot be used: .*damaged") as caught:
            store.resolve("story")
        assert "modelkit create story" in (caught.value.hint or "")
        make(TEXT, **OPTIONS)


@pytest.mark.usefixtures("pair")
def test_a_failed_create_after_rm_leaves_no_name(make: Make, store: Store) -> None:
    created = make(TEXT, **OPTIONS)
    flip(blobs(store, created)["(manifest)"])
    store.remove("story")
    assert make(TEXT, **OPTIONS).digest == created.digest
    assert store.verify().problems == ()


@pytest.mark.usefixtures("pair", "_sizes")
def test_nothing_is_made_of_a_damaged_package(make: Make, store: Store) -> None:
    parts = blobs(store, make(TEXT, **OPTIONS))
    flip(parts["model.safetensors"])
    for text in ("FROM story", "FROM ./target\nDRAFT story"):
        with pytest.raises(StoreError, match=r"model\.safetensors of story is damaged"):
            make(text, "other")
    with pytest.raises(ModelNotFound):
        store.resolve("other")


class Watched:
    """Progress that remembers its labels."""

    def __init__(self) -> None:
        self.labels: list[str] = []

    def begin(self, label: str, total_bytes: int) -> None:
        self.labels.append(label)

    def advance(self, done_bytes: int) -> None: ...
    def finish(self) -> None: ...


@pytest.fixture
def rotting(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Blobs are large, the file system notices nothing, and time can pass."""
    monkeypatch.setattr(soundness, "SMALL_BYTES", 0)
    monkeypatch.setattr(soundness, "fingerprint", lambda _: "the same file")
    now = time.time

    def wait(seconds: float) -> None:
        monkeypatch.setattr(soundness.time, "time", lambda: now() + seconds)

    return wait


@pytest.mark.usefixtures("pair")
def test_what_was_written_lately_is_not_read_again(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soundness, "SMALL_BYTES", 0)
    make(TEXT, **OPTIONS)
    watched = Watched()
    created = make(TEXT.replace("brief", "long"), **OPTIONS, progress=watched)
    assert not created.converted
    assert watched.labels == []


@pytest.mark.usefixtures("pair")
def test_what_a_disk_lost_unseen_is_found_after_a_week(
    make: Make, store: Store, rotting: Callable[[float], None]
) -> None:
    flip(blobs(store, make(TEXT, **OPTIONS))["model.safetensors"])
    rotting(soundness.TRUSTED_S + 60)
    watched = Watched()
    assert make(TEXT, **OPTIONS, progress=watched).converted
    assert watched.labels[0] == "target: checking"
    assert store.verify().problems == ()


@pytest.mark.usefixtures("pair", "rotting")
def test_what_a_disk_lost_unseen_is_mended_once_verify_found_it(make: Make, store: Store) -> None:
    flip(blobs(store, make(TEXT, **OPTIONS))["model.safetensors"])
    assert len(store.verify().problems) == 1
    assert make(TEXT, **OPTIONS).converted
    assert store.verify().problems == ()


@pytest.mark.usefixtures("pair")
def test_what_is_committed_counts_whatever_becomes_of_the_name(
    make: Make, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = make(TEXT, **OPTIONS)
    commit = Transaction.commit

    def commit_and_lose(self: Transaction, *arguments: object) -> Digest:
        digest = commit(self, *arguments)  # pyright: ignore[reportArgumentType]
        store.remove("story")
        return digest

    monkeypatch.setattr(Transaction, "commit", commit_and_lose)
    created = make(TEXT, **OPTIONS)
    assert (created.digest, created.size_bytes) == (whole.digest, whole.size_bytes)


@pytest.mark.usefixtures("pair")
def test_the_size_is_what_the_package_takes(make: Make, store: Store) -> None:
    assert make(TEXT, **OPTIONS).size_bytes == store.resolve("story").size_bytes


@pytest.mark.usefixtures("pair")
def test_create_remove_and_copy_side_by_side(make: Make, store: Store) -> None:
    digest = make(TEXT, **OPTIONS).digest

    def create() -> None:
        for _ in range(8):
            assert make(TEXT, **OPTIONS).digest == digest

    def others(work: Callable[[], object]) -> None:
        for _ in range(40):
            with suppress(ModelNotFound):  # it was removed just now
                work()

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(create), pool.submit(create)]
        running.append(pool.submit(others, lambda: store.remove("story")))
        running.append(pool.submit(others, lambda: store.copy("story", "other")))
        for one in running:
            one.result()
    make(TEXT, **OPTIONS)
    assert store.resolve("story").digest == digest
    assert store.verify().problems == ()
