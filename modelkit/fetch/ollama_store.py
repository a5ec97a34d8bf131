"""Ollama's store on this machine: what it has of a model, read where it lies.

manifests/<host>/<namespace>/<model>/<tag>    see `fetch.ollama`
blobs/sha256-<hex>                            layers, named by their digests and never written to again
"""

from collections.abc import Iterable
from pathlib import Path

from modelkit.address import OllamaAddress
from modelkit.errors import FetchError, StoreError
from modelkit.fetch.local import Local
from modelkit.fetch.ollama import OllamaManifest, belongings
from modelkit.fetch.upstream import Upstream
from modelkit.python_faults import os_reason
from modelkit.store.digest import Blob, Digest
from modelkit.store.disk import read_small
from modelkit.store.manifest import MANIFEST_LIMIT_BYTES

REGISTRY = "registry.ollama.ai"


def open_stored(address: OllamaAddress, folders: Iterable[Path]) -> Local:
    """The model that Ollama has under that name. Raises FetchError, StoreError."""
    folder, manifest, digest = _find(address, tuple(folders))
    weights = manifest.gguf(str(address))
    path = _blob_path(folder, weights)
    said = belongings(manifest, lambda blob: _read(folder, blob))
    upstream = Upstream(
        kind="ollama",
        endpoint=f"https://{REGISTRY}",
        repository=address.repository,
        requested=address.tag,
        commit=str(digest),
        files={"model.gguf": weights},
    )
    return Local(
        label=str(address),
        files={"model.gguf": path},
        gguf=path,
        upstream=upstream,
        promised={path: weights.digest},
        notes=said.notes,
        directives=said.directives,
        adapters=tuple(_adapter(name, folder, blob) for name, blob in manifest.adapters().items()),
    )


def _adapter(name: str, folder: Path, blob: Blob) -> Local:
    path = _blob_path(folder, blob)
    return Local(name, {f"{name}.gguf": path}, promised={path: blob.digest})


def _find(address: OllamaAddress, folders: tuple[Path, ...]) -> tuple[Path, OllamaManifest, Digest]:
    """The folder that has it, its manifest, and that one's digest."""
    parts = address.repository.split("/")
    place = parts if len(parts) == 3 else [REGISTRY, *parts]
    looked: list[str] = []
    for folder in folders:
        path = folder.joinpath("manifests", *place, address.tag)
        try:
            raw = read_small(path, MANIFEST_LIMIT_BYTES)
        except PermissionError:
            looked.append(f"{folder}, which this user may not read")
        except OSError:
            looked.append(str(folder))
        else:
            return folder, OllamaManifest.parse(raw), Digest.of(raw)
    library = address.repository.removeprefix("library/")
    raise FetchError(
        f"Ollama has no {library}:{address.tag} on this machine ({'; '.join(looked)})",
        hint=f"modelkit pull ollama.com/{library}:{address.tag} fetches it. OLLAMA_MODELS says where Ollama's"
        " models are.",
    )


def _blob_path(folder: Path, blob: Blob) -> Path:
    path = folder / "blobs" / f"sha256-{blob.digest.hex}"
    try:
        found = path.stat().st_size if path.is_file() else None
    except OSError as error:
        raise StoreError(
            f"{path}: {os_reason(error)}", hint="Ask its owner for permission to read it."
        ) from error
    if found != blob.size_bytes:
        said = "is missing" if found is None else f"has {found:,} of {blob.size_bytes:,} bytes"
        raise StoreError(f"{path} {said}", hint="Let Ollama get the model again: ollama pull")
    return path


def _read(folder: Path, blob: Blob) -> bytes:
    path = _blob_path(folder, blob)
    try:
        raw = read_small(path, blob.size_bytes)
    except OSError as error:
        raise StoreError(f"{path}: {os_reason(error)}") from error
    if Digest.of(raw) != blob.digest:
        raise StoreError(f"{path} is damaged: its digest is not its name")
    return raw
