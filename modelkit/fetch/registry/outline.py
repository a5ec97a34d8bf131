"""The outline of a package in a registry (`modelkit.store.outline`): all that is not weights comes whole and
is checked by its digest, as in a pull. Of weights comes the header, which no digest covers: whoever fetches
numbers reads the blobs from their first byte, and compares it then.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from modelkit.address import RegistryAddress
from modelkit.errors import FetchError, StoreError
from modelkit.fetch.access import Access
from modelkit.fetch.pull import Pulled
from modelkit.fetch.registry.manifests import get_manifest, model_of
from modelkit.fetch.registry.ranges import read_range
from modelkit.fetch.registry.source import Source, fetch, open_registry
from modelkit.fetch.registry.wire import Limits
from modelkit.store.artifact import build_artifact, parse_config
from modelkit.store.digest import Blob, Digest
from modelkit.store.manifest import Manifest
from modelkit.store.name import Name
from modelkit.store.outline import FRONT_LIMIT_BYTES, apart, outline_files, outline_json
from modelkit.store.store import Store

_LENGTH = 8


def pull_outline(
    address: RegistryAddress,
    name: Name,
    store: Store,
    access: Access,
    check: Callable[[Mapping[str, Path]], None],
    *,
    limits: Limits | None = None,
) -> Pulled:
    """Let `name` stand for the outline of a package. check: raises for files, by their paths in the package,
    of one that cannot be run without its weights being here. Raises FetchError, StoreError, and what `check`
    does.
    """
    access.require(str(address))
    with open_registry(address, insecure=access.insecure, limits=limits) as registry:
        registry.ping()
        named = get_manifest(registry, address.repository, address.reference)
        document = model_of(registry, address.repository, named)
        source, raw = Source(address, registry, document), document.raw
        try:
            manifest = Manifest.parse(raw)
        except StoreError as error:
            raise FetchError(
                f"{address} is none of modelkit's packages, and has no outline: {error.message}",
                hint=error.hint,
            ) from error
        lacking = apart(manifest)
        if not lacking:
            raise FetchError(f"{address} has no safetensors files, and so no outline", hint="Pull all of it.")
        exact = RegistryAddress(address.host, address.repository, digest=str(Digest.of(raw)))
        with store.begin() as new:
            numbers = {layer.path for layer in lacking}
            others = [layer for layer in manifest.layers if layer.path not in numbers]
            fetch(source, [manifest.config, *(layer.blob for layer in others)], store, new, access)
            parse_config(store.blob_path(manifest.config.digest).read_bytes(), manifest)
            check({layer.path: store.blob_path(layer.blob.digest) for layer in others})
            fronts = {layer.path: new.add_bytes(_front(source, layer.blob)) for layer in lacking}
            said = new.add_bytes(outline_json(raw, str(exact), insecure=access.insecure))
            files = outline_files(raw, str(address), fronts, new.add_bytes(raw), said)
            artifact = build_artifact(files)
            digest = new.commit(name, artifact)
    whole_bytes = sum(layer.blob.size_bytes for layer in lacking)
    return Pulled(name, digest, artifact.size_bytes, (f"without {whole_bytes:,} bytes of weights",))


def _front(source: Source, blob: Blob) -> bytes:
    """A safetensors file up to its first number."""

    def read(start: int, stop: int) -> bytes:
        if stop > blob.size_bytes:
            raise FetchError(f"the blob {blob.digest.short} at {source.registry.host} is not safetensors")
        return b"".join(read_range(source.registry, source.address.repository, blob, start, stop))

    first = read(0, _LENGTH)
    length = int.from_bytes(first, "little")
    if length > FRONT_LIMIT_BYTES:
        raise FetchError(
            f"the blob {blob.digest.short} at {source.registry.host} has a header of {length:,} bytes, and"
            f" {FRONT_LIMIT_BYTES:,} is the most"
        )
    return first + read(_LENGTH, _LENGTH + length)
