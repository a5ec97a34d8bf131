"""Packages that hold a GGUF file: fetched into the store, then made into one of ours, as FROM does it.

The fetched blobs are kept while that is done, and freed afterwards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from modelkit.errors import FetchError
from modelkit.fetch.access import Access, Untold
from modelkit.fetch.local import Local
from modelkit.fetch.ollama import Belongings, OllamaManifest, belongings
from modelkit.fetch.pull import Make, Pulled
from modelkit.fetch.registry.source import Source, fetch
from modelkit.fetch.upstream import Upstream
from modelkit.modelfile import Recipe, Reference
from modelkit.source.gguf.folder import is_gguf, is_later_shard
from modelkit.store.digest import Blob
from modelkit.store.name import Name
from modelkit.store.store import Store
from modelkit.temporary import TemporaryFolder


def pull_ollama(
    source: Source,
    manifest: OllamaManifest,
    name: Name,
    store: Store,
    access: Access,
    make: Make,
    *,
    quantize: str | None = None,
) -> Pulled:
    """A package of Ollama's: its GGUF file, adapters, and what a Modelfile says beside them."""
    files = {"model.gguf": manifest.gguf(str(source.address))}
    adapters = manifest.adapters()
    with store.begin() as new:
        # What is small comes first: where it is refused, nothing large has been fetched for nothing.
        fetch(source, manifest.texts(), store, new, replace(access, told=Untold()))
        said = belongings(manifest, lambda blob: store.blob_path(blob.digest).read_bytes())
        fetch(source, [*files.values(), *adapters.values()], store, new, access)
        return make_package(
            source, files, name, store, access, make, quantize=quantize, said=said, adapters=adapters
        )


def make_package(
    source: Source,
    files: Mapping[str, Blob],
    name: Name,
    store: Store,
    access: Access,
    make: Make,
    *,
    quantize: str | None = None,
    said: Belongings | None = None,
    adapters: Mapping[str, Blob] | None = None,
    notes: Sequence[str] = (),
) -> Pulled:
    """Import stored files, one of which is a model in GGUF. The caller keeps them meanwhile. adapters: by
    name, those that belong to it.

    Raises FetchError where there are several, and what `create` raises.
    """
    weights = [path for path in sorted(files) if is_gguf(path)]
    images = [path for path in weights if "mmproj" in path.lower()]
    models = [path for path in weights if path not in images]
    first = [path for path in models if not is_later_shard(path)]
    if len(first) != 1:
        raise FetchError(f"{source.address} holds {len(first)} models in GGUF; exactly one is read")
    with TemporaryFolder("pull", "links to what was fetched") as folder:
        paths = {path: _linked(folder, path, store, blob) for path, blob in files.items()}
        local = Local(
            label=str(source.address),
            files=paths,
            gguf=paths[first[0]],
            upstream=_upstream(source, files),
            promised={paths[path]: files[path].digest for path in files},
            directives=said.directives if said else (),
            adapters=tuple(_adapter(one, folder, store, blob) for one, blob in (adapters or {}).items()),
            notes=(
                *notes,
                *(said.notes if said else ()),
                *(f"{path} is left out: images are not read here" for path in images),
            ),
        )
        recipe = Recipe(from_=Reference(str(source.address), None, source.address))
        here = replace(access, here={source.address: local})
        made = make(recipe, name, store, quantize=quantize, progress=access.told, access=here)
    return Pulled(name, made.digest, made.size_bytes, made.notes)


def _adapter(name: str, folder: TemporaryFolder, store: Store, blob: Blob) -> Local:
    path = _linked(folder, f"adapters/{name}.gguf", store, blob)
    return Local(name, {path.name: path}, promised={path: blob.digest})


def _linked(folder: TemporaryFolder, name: str, store: Store, blob: Blob) -> Path:
    """A name for a blob, by which others see what is in it."""
    path = folder.path / name
    with folder.writing():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(store.blob_path(blob.digest))
    return path


def _upstream(source: Source, files: Mapping[str, Blob]) -> Upstream:
    address = source.address
    return Upstream(
        kind=address.dialect if address.dialect == "ollama" else "registry",
        endpoint=str(source.registry.url).rstrip("/"),
        repository=address.repository,
        requested=address.tag,
        commit=str(source.document.blob.digest),
        files=files,
    )
