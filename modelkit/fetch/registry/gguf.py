"""Packages that hold a GGUF file: fetched into the store, then made into one of ours, as FROM does it.

The fetched blobs are kept while that is done and freed afterwards; where the import fails, or is killed, the
next attempt finds them, as long as nobody prunes.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from modelkit.errors import FetchError
from modelkit.fetch.access import Access
from modelkit.fetch.ollama import OllamaManifest, belongings
from modelkit.fetch.pull import Pulled
from modelkit.fetch.registry.pull import Source, fetch
from modelkit.modelfile import Modelfile
from modelkit.modelfile.syntax import Directive
from modelkit.pack.build import build
from modelkit.store.digest import Blob
from modelkit.store.name import Name
from modelkit.store.store import Store

_TEXT_KINDS = ("template", "system", "license", "params", "messages")
_ADAPTER = "adapter-"


def pull_ollama(source: Source, manifest: OllamaManifest, name: Name, store: Store, access: Access) -> Pulled:
    """A package of Ollama's: its GGUF file, adapters, and what a Modelfile says beside them."""
    files = {"model.gguf": manifest.gguf()}
    files.update({f"{_ADAPTER}{n}.gguf": blob for n, blob in enumerate(manifest.all("adapter"), 1)})
    texts = [blob for kind in _TEXT_KINDS for blob in manifest.all(kind)]
    with store.begin() as new:
        fetch(source, [*texts, *files.values()], store, new, access)
        said = belongings(manifest, lambda blob: store.blob_path(blob.digest).read_bytes())
        adapters = [Directive("ADAPTER", f"./{path}") for path in files if path.startswith(_ADAPTER)]
        directives = (*adapters, *said.directives)
        return make_package(source, files, name, store, access, directives=directives, notes=said.notes)


def make_package(
    source: Source,
    files: Mapping[str, Blob],
    name: Name,
    store: Store,
    access: Access,
    *,
    directives: Sequence[Directive] = (),
    notes: Sequence[str] = (),
) -> Pulled:
    """Import stored files, one of which is in GGUF. The caller keeps them meanwhile.

    Raises FetchError for two models in GGUF, and what `create` raises.
    """
    weights = [path for path in sorted(files) if path.lower().endswith(".gguf")]
    images = [path for path in weights if "mmproj" in path.lower()]
    models = [path for path in weights if path not in images and not path.startswith(_ADAPTER)]
    first = [path for path in models if "-of-" not in path or "-00001-of-" in path]
    if len(first) != 1:
        raise FetchError(f"{source.address} holds {len(first)} models in GGUF; exactly one is read")
    notes = [*notes, *(f"{path} is left out: images are not read here" for path in images)]
    with tempfile.TemporaryDirectory(prefix="modelkit-") as folder:
        for path, blob in files.items():
            place = Path(folder, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(store.blob_path(blob.digest))
        text = Modelfile((Directive("FROM", f"./{first[0]}"), *directives), file=str(source.address))
        made = build(text.recipe(folder), name, store, progress=access.told)
    return Pulled(name, made.digest, made.size_bytes, (*notes, *made.notes))
