"""What others put into registries: archives, Docker's models, indexes, Ollama's packages."""

import gzip
import io
import json
import tarfile
import zlib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from modelkit.errors import FetchError, ModelkitError
from modelkit.fetch.access import Access
from modelkit.fetch.pull import Pulled
from modelkit.fetch.registry import archive, early_check
from modelkit.pack.run_check import check_runs
from modelkit.store import Name, Store
from tests.modelkit.fetch.conftest import QUICK, at, pull
from tests.modelkit.store.packages import blobs_on_disk, read
from tests.support import tiny
from tests.support.fake_registry import MANIFEST_TYPE, FakeRegistry, whole_fetches

PACK = "application/vnd.cncf.model."
DOCKER = "application/vnd.docker.ai."
INDEX = "application/vnd.oci.image.index.v1+json"
NAME = Name.parse("back")
CONFIG = b'{"model_type":"llama"}'
Member = tuple[tarfile.TarInfo, bytes]


def file(name: str, data: bytes, **changes: Any) -> Member:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in changes.items():
        setattr(info, key, value)
    return info, data


def packed(*members: Member, form: int = tarfile.PAX_FORMAT) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=form) as out:
        for info, data in members:
            out.addfile(info, io.BytesIO(data) if info.isreg() else None)
    return raw.getvalue()


def offer(
    registry: FakeRegistry,
    *layers: tuple[str, bytes, str | None],
    config: bytes = b'{"descriptor":{"name":"x","createdAt":"2026-01-01"},"config":{"format":"safetensors"}}',
    config_type: str = PACK + "config.v1+json",
    tag: str = "q4",
) -> str:
    """A manifest of layers: kind, bytes, path."""
    described = [
        {
            "mediaType": kind,
            **registry.put_blob("amy/story", data),
            **({"annotations": {"org.cncf.model.filepath": path}} if path else {}),
        }
        for kind, data, path in layers
    ]
    value: dict[str, Any] = {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "layers": described}
    value["config"] = {"mediaType": config_type, **registry.put_blob("amy/story", config)}
    return registry.put_manifest("amy/story", tag, value)


def got(registry: FakeRegistry, store: Store) -> Pulled:
    pulled = pull(at(registry), NAME, store, Access(), limits=QUICK)
    assert store.verify().problems == ()
    return pulled


def refused(registry: FakeRegistry, store: Store) -> ModelkitError:
    with pytest.raises(ModelkitError) as caught:
        pull(at(registry), NAME, store, Access(), limits=QUICK)
    assert store.packages() == []
    return caught.value


def test_beside_a_large_archive_the_config_is_judged_first(
    registry: FakeRegistry, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early_check, "MOMENT_BYTES", 0)
    monkeypatch.setattr(early_check, "_LARGE_BYTES", 20_000)
    weights = packed(file("model.safetensors", bytes(30_000)))
    for kind, said in (("nonsense", "architecture 'nonsense'"), ("llama", "model.safetensors")):
        said_of_it = {**tiny.CONFIG, "architectures": None, "model_type": kind}
        config = packed(file("config.json", json.dumps(said_of_it).encode()))
        offer(
            registry,
            (PACK + "weight.config.v1.tar", config, None),
            (PACK + "weight.v1.tar", weights, None),
        )
        with pytest.raises(ModelkitError, match=said):
            pull(at(registry), NAME, store, Access(), limits=QUICK, judge=check_runs)
        assert whole_fetches(registry, weights) == (kind == "llama")
    assert (store.packages(), blobs_on_disk(store)) == ([], set())


# Archives

WEIGHTS = bytes(range(256)) * 50
TREE = {"config.json": CONFIG, "deep/er/tokenizer.json": b"{}" * 999, "model.safetensors": WEIGHTS}
LONG = "a" * 90 + "/" + "b" * 120 + ".json"


@pytest.mark.parametrize("packing", ["tar", "tar+gzip", "tar+zstd"])
@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_archives_become_files(packing: str, form: int, store: Store, registry: FakeRegistry) -> None:
    tree = {**TREE} if form == tarfile.USTAR_FORMAT else {**TREE, LONG: b"long"}
    members = [file(f"./{name}", data) for name, data in tree.items()]
    raw = packed(file("deep", b"", type=tarfile.DIRTYPE), *members, form=form)
    if packing == "tar+gzip":
        raw = gzip.compress(raw[:1000]) + gzip.compress(raw[1000:])
    if packing == "tar+zstd":
        if not find_spec("zstandard"):
            offer(registry, (f"{PACK}weight.v1.{packing}", raw, "all"))
            assert "zstd, for which no library is installed" in refused(registry, store).message
            return
        raw = __import__("zstandard").compress(raw)
    readme = (f"{PACK}doc.v1.raw", b"# Story", "README.md")
    offer(registry, (f"{PACK}weight.v1.{packing}", raw, "all"), readme)
    pulled = got(registry, store)
    assert read(store, "back") == {**tree, "README.md": b"# Story"}
    assert "in a manifest of modelkit's; there it is sha256:" in pulled.notes[0]
    again = pull(at(registry), Name.parse("again"), store, Access(), limits=QUICK)
    assert again.digest == pulled.digest


def test_an_archive_needs_no_name(store: Store, registry: FakeRegistry) -> None:
    raw = packed(*(file(name, data) for name, data in TREE.items()))
    offer(registry, (f"{PACK}weight.v1.tar", raw, None))
    got(registry, store)
    assert read(store, "back") == TREE


BAD: dict[str, Callable[[], bytes]] = {
    "upwards": lambda: packed(file("../../x", b"1")),
    "absolute": lambda: packed(file("/etc/passwd", b"1")),
    "a link": lambda: packed(file("x", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd")),
    "a hard link": lambda: packed(file("x", b"", type=tarfile.LNKTYPE, linkname="config.json")),
    "a device": lambda: packed(file("x", b"", type=tarfile.CHRTYPE)),
    "a pipe": lambda: packed(file("x", b"", type=tarfile.FIFOTYPE)),
    "twice": lambda: packed(file("x", b"1"), file("x", b"2")),
    "twice by case": lambda: packed(file("x", b"1"), file("X", b"2")),
    "twice beside a file": lambda: packed(file("config.json", b"1")),
    "through a file": lambda: packed(file("x", b"1"), file("x/y", b"2")),
    "control characters": lambda: packed(file("a\x1bb", b"1")),
    "many": lambda: packed(*(file(f"{n}", b"") for n in range(60))),
    "sparse": lambda: packed(file("x", b"1", pax_headers={"GNU.sparse.major": "1"})),
    "a long header": lambda: packed(file("x", b"1", pax_headers={"comment": "x" * 100_000})),
    "cut off": lambda: packed(file("x", b"1" * 5000))[:3000],
    "noise": lambda: bytes(range(256)) * 8,
    "a size": lambda: _with_size(packed(file("x", b"1")), b"77777777777\0"),
    "a size in thousands of digits": lambda: packed(file("x", b"1", pax_headers={"size": "9" * 5000})),
    "a size in words": lambda: packed(file("x", b"1", pax_headers={"size": "one"})),
    "petabytes": lambda: _with_size(packed(file("x", b"1")), b"\x80" + b"\xff" * 11),
    "a sum": lambda: packed(file("x", b"1")).replace(b"ustar", b"ustaR", 1),
}


def _with_size(raw: bytes, size: bytes) -> bytes:
    head = bytearray(raw[:512])
    head[124:136], head[148:156] = size, b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head) + raw[512:]


@pytest.mark.parametrize("make", BAD.values(), ids=BAD)
def test_archives_that_are_refused(
    make: Callable[[], bytes], store: Store, registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "LAYER_LIMIT", 50)
    config = (f"{PACK}weight.config.v1.raw", CONFIG, "config.json")
    offer(registry, config, (f"{PACK}weight.v1.tar", make(), "all"))
    refused(registry, store)
    assert blobs_on_disk(store) == set()


def test_a_bomb_is_stopped(store: Store, registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "_FREE_BYTES", 1 << 20)
    bomb = gzip.compress(packed(file("config.json", bytes(30 << 20))))
    offer(registry, (f"{PACK}weight.v1.tar+gzip", bomb, "all"))
    assert "grows beyond 200 times its size" in refused(registry, store).message


@pytest.mark.parametrize(
    "damage", [lambda raw: raw[:-9], lambda raw: raw[:40] + b"xxxx" + raw[44:], zlib.compress]
)
def test_a_damaged_gzip_is_refused(
    damage: Callable[[bytes], bytes], store: Store, registry: FakeRegistry
) -> None:
    raw = gzip.compress(packed(file("config.json", CONFIG), file("x", bytes(range(256)) * 99)))
    offer(registry, (f"{PACK}weight.v1.tar+gzip", damage(raw), "all"))
    assert isinstance(refused(registry, store), FetchError)


# Kinds


def test_docker_models_keep_their_files_in_order(store: Store, registry: FakeRegistry) -> None:
    offer(
        registry,
        (f"{DOCKER}safetensors", b"one", None),
        (f"{DOCKER}safetensors", b"two", None),
        (f"{DOCKER}model.file", CONFIG, "config.json"),
        (f"{DOCKER}chat.template.jinja", b"{% %}", None),
        (f"{DOCKER}license", b"MIT", None),
        (f"{DOCKER}mmproj", b"images", None),
        config_type=f"{DOCKER}model.config.v0.1+json",
    )
    pulled = got(registry, store)
    assert read(store, "back") == {
        "LICENSE": b"MIT",
        "chat_template.jinja": b"{% %}",
        "config.json": CONFIG,
        "model-00001-of-00002.safetensors": b"one",
        "model-00002-of-00002.safetensors": b"two",
    }
    assert any("mmproj" in note for note in pulled.notes)


def test_docker_models_have_their_config_in_an_archive(store: Store, registry: FakeRegistry) -> None:
    offer(
        registry,
        (f"{DOCKER}safetensors", b"one", None),
        (f"{DOCKER}vllm.config.tar", packed(file("config.json", CONFIG), file("merges.txt", b"a b")), None),
        (f"{DOCKER}dir.tar", packed(file("1_Pooling/config.json", b"{}")), None),
        (f"{DOCKER}license", b"MIT", None),
        (f"{DOCKER}license", b"Apache", None),
        config_type=f"{DOCKER}model.config.v0.1+json",
    )
    got(registry, store)
    assert read(store, "back") == {
        "1_Pooling/config.json": b"{}",
        "LICENSE-1": b"MIT",
        "LICENSE-2": b"Apache",
        "config.json": CONFIG,
        "merges.txt": b"a b",
        "model.safetensors": b"one",
    }


@pytest.mark.parametrize("archived", [False, True])
def test_weights_beside_a_small_archive_are_judged_by_their_headers(
    archived: bool, store: Store, registry: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early_check, "MOMENT_BYTES", 0)
    folder = tiny.write_model(tmp_path / "model")
    wide = json.dumps({**tiny.CONFIG, "intermediate_size": 256}).encode()
    said = {**{path.name: path.read_bytes() for path in folder.iterdir()}, "config.json": wide}
    weights = said.pop("model.safetensors")
    if archived:
        small = [(f"{DOCKER}vllm.config.tar", packed(*(file(*one) for one in said.items())), None)]
    else:
        small = [(f"{DOCKER}model.file", data, name) for name, data in said.items()]
    offer(
        registry,
        *((f"{DOCKER}safetensors", weights, None), *small),
        config_type=f"{DOCKER}model.config.v0.1+json",
    )
    with pytest.raises(ModelkitError, match=r"mlp\.down_proj"):
        pull(at(registry), NAME, store, Access(), limits=QUICK, judge=check_runs)
    assert whole_fetches(registry, weights) == 0


def test_an_adapter_of_dockers_is_not_left_out(store: Store, registry: FakeRegistry) -> None:
    layers = ((f"{DOCKER}gguf.v3", b"GGUF", None), (f"{DOCKER}gguf.v3.lora", b"GGUF", None))
    offer(registry, *layers, config_type=f"{DOCKER}model.config.v0.1+json")
    assert "LoRA adapter" in refused(registry, store).message


def test_code_and_data_are_left_out(store: Store, registry: FakeRegistry) -> None:
    offer(
        registry,
        (f"{PACK}weight.config.v1.raw", CONFIG, "config.json"),
        (f"{PACK}code.v1.raw", b"import os", "modeling.py"),
        (f"{PACK}dataset.v1.tar", b"data", "data"),
    )
    assert [note.split(":")[0] for note in got(registry, store).notes[:2]] == [
        "a layer with code is left out",
        "a layer with dataset is left out",
    ]
    assert list(read(store, "back")) == ["config.json"]


def entry(digest: str, registry: FakeRegistry, **more: Any) -> dict[str, Any]:
    raw, media_type = registry.manifests["amy/story", digest]
    return {"mediaType": media_type, "digest": digest, "size": len(raw), **more}


def test_an_index_with_one_model_is_that_model(store: Store, registry: FakeRegistry) -> None:
    first = offer(registry, (f"{PACK}weight.config.v1.raw", CONFIG, "config.json"), tag="first")
    second = offer(registry, (f"{PACK}weight.config.v1.raw", b"{}", "config.json"), tag="second")
    proof = entry(second, registry, annotations={"vnd.docker.reference.type": "attestation-manifest"})
    one = {"schemaVersion": 2, "manifests": [entry(first, registry), proof]}
    registry.put_manifest("amy/story", "q4", one, INDEX)
    got(registry, store)
    assert read(store, "back") == {"config.json": CONFIG}
    both: dict[str, Any] = {
        "schemaVersion": 2,
        "manifests": [entry(first, registry), entry(second, registry)],
    }
    registry.put_manifest("amy/story", "q4", both, INDEX)
    with pytest.raises(FetchError, match="stands for 2 packages") as caught:
        got(registry, store)
    assert f"@{second}" in (caught.value.hint or "")
    images = [{**one, "platform": {"os": "linux", "architecture": "arm64"}} for one in both["manifests"]]
    registry.put_manifest("amy/story", "q4", {"schemaVersion": 2, "manifests": images}, INDEX)
    with pytest.raises(FetchError, match="a container image, not a model"):
        got(registry, store)
    lies = {"schemaVersion": 2, "manifests": [{**entry(first, registry), "size": 5}]}
    registry.put_manifest("amy/story", "q4", lies, INDEX)
    with pytest.raises(FetchError, match="should have 5 bytes"):
        got(registry, store)
    inner = registry.put_manifest("amy/story", "q4", both, INDEX)
    lying = {**entry(inner, registry), "mediaType": MANIFEST_TYPE}
    registry.put_manifest("amy/story", "q4", {"schemaVersion": 2, "manifests": [lying]}, INDEX)
    with pytest.raises(FetchError):
        got(registry, store)


def test_what_is_stored_stays_as_it_is_where_a_pull_fails(store: Store, registry: FakeRegistry) -> None:
    offer(registry, (f"{PACK}weight.config.v1.raw", CONFIG, "config.json"))
    before = got(registry, store).digest
    offer(registry, (f"{PACK}weight.v1.tar", b"noise" * 300, "all"))
    with pytest.raises(FetchError):
        pull(at(registry), NAME, store, Access(), limits=QUICK)
    assert store.resolve("back").digest == before


def test_a_config_of_others_keeps_what_modelpack_knows(store: Store, registry: FakeRegistry) -> None:
    offer(registry, (f"{PACK}weight.config.v1.tar", packed(file("config.json", CONFIG)), "config.json"))
    got(registry, store)
    config = store.resolve("back").config
    assert (config["descriptor"], config["config"]) == ({"name": "x"}, {"format": "safetensors"})
    assert "2026" not in json.dumps(config)
