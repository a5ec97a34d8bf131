"""Small packages for the store's tests."""

from collections.abc import Mapping
from pathlib import Path

from modelkit.store import Digest, Store, build_artifact

TREE: dict[str, bytes] = {
    "LICENSE": b"MIT",
    "config.json": b'{"model_type":"llama"}',
    "draft/config.json": b'{"model_type":"llama"}',
    "draft/model.safetensors": b"d" * 700,
    "model.safetensors": b"t" * 5000,
}


def blob(store: Store, data: bytes) -> Path:
    """Where these bytes are kept."""
    return store.root / "blobs" / "sha256" / Digest.of(data).hex


def put(store: Store, name: str, tree: Mapping[str, bytes] = TREE, **config: str) -> Digest:
    """Store `tree` under `name`; keywords become the artifact's technical config."""
    with store.begin() as new:
        files = {path: new.add_bytes(data) for path, data in tree.items()}
        return new.commit(name, build_artifact(files, config=config))


def read(store: Store, name: str) -> dict[str, bytes]:
    """The tree that a name stands for."""
    return {path: blob.read_bytes() for path, blob in store.resolve(name).files.items()}


def blobs_on_disk(store: Store) -> set[str]:
    folder = store.root / "blobs" / "sha256"
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def blobs_named(store: Store) -> set[str]:
    """What the store's names reach, all of them sound."""
    found: set[str] = set()
    for package in store.packages():
        package = store.resolve(package.name)
        found |= {package.digest.hex} | {blob.digest.hex for blob in package.manifest.blobs}
    return found


def damage(path: Path, data: bytes) -> None:
    path.chmod(0o600)
    path.write_bytes(data)


def names(store: Store) -> list[str]:
    return [str(package.name) for package in store.packages()]
