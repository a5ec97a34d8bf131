"""A stored package into a registry: blobs first, several at a time, the manifest last, so that nobody ever
finds a part of one there. What was sent before a failure need not be sent again.
"""

from functools import partial

from modelkit.address import RegistryAddress, read_pullable
from modelkit.errors import FetchError, InvalidName, StoreError
from modelkit.fetch.access import Access
from modelkit.fetch.registry.client import Registry
from modelkit.fetch.registry.manifests import has_manifest, put_manifest
from modelkit.fetch.registry.origin import keep_origin
from modelkit.fetch.registry.parallel import side_by_side
from modelkit.fetch.registry.push_cache import PushCache
from modelkit.fetch.registry.source import open_registry
from modelkit.fetch.registry.upload import CHUNK_BYTES, Uploads
from modelkit.fetch.registry.wire import Limits
from modelkit.progress import bar
from modelkit.store.digest import Blob, Digest
from modelkit.store.manifest import MANIFEST_TYPE
from modelkit.store.name import Name
from modelkit.store.outline import refuse_outline
from modelkit.store.package import Package
from modelkit.store.store import Store
from runtime.quoting import quoted
from runtime.records import dataclass

_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Pushed:
    """A package that a registry has now."""

    address: RegistryAddress
    """With the tag that stands for it there."""
    digest: Digest
    """Its manifest's, here and there."""
    size_bytes: int
    """Of all its files."""
    sent_bytes: int
    """What went over the network for it; the rest was there."""
    mounted: int
    """How many blobs the registry took over from another of its repositories."""


def read_target(text: str) -> RegistryAddress:
    """The place in a registry that somebody wants to push to. Raises InvalidName."""
    address = read_pullable(text)
    if isinstance(address, RegistryAddress):
        return address
    raise InvalidName(
        f"{quoted(text)} is not a place in a registry",
        hint="Examples: oci://registry.example.org/amy/story:q4, docker.io/amy/story:q4",
    )


def push(
    name: Name | str,
    address: RegistryAddress,
    store: Store,
    access: Access,
    *,
    limits: Limits | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> Pushed:
    """Send the package `name`. Raises FetchError, StoreError, ModelNotFound."""
    if address.digest is not None:
        raise FetchError("a package is pushed to a tag; its digest follows from what is in it")
    if address.dialect == "ollama":
        raise FetchError(
            "ollama.com takes packages of Ollama's only", hint="Push to a registry: oci://HOST/NAME:TAG"
        )
    access.require(str(address))
    tag = address.tag or "latest"
    with (
        store.hold(name) as package,
        open_registry(address, insecure=access.insecure, limits=limits) as registry,
    ):
        refuse_outline(package, "pushed")
        registry.ping()
        push_cache = PushCache(store.root.parent, address.host)
        sent = _Sent(0, 0)
        if not has_manifest(registry, address.repository, package.digest):
            sent = _send(registry, address.repository, package, store, access, push_cache, chunk_bytes)
        raw = store.blob_path(package.digest).read_bytes()
        put_manifest(registry, address.repository, tag, raw, MANIFEST_TYPE)
        push_cache.keep_places(address.repository, sorted(one.digest for one in package.manifest.blobs))
        keep_origin(store, package.digest, address)
    tagged = RegistryAddress(address.host, address.repository, tag)
    return Pushed(tagged, package.digest, package.size_bytes, sent.sent_bytes, sent.mounted)


@dataclass(frozen=True, slots=True)
class _Sent:
    sent_bytes: int
    mounted: int


def _send(
    registry: Registry,
    repository: str,
    package: Package,
    store: Store,
    access: Access,
    push_cache: PushCache,
    chunk_bytes: int,
) -> _Sent:
    blobs = sorted(package.manifest.blobs, key=lambda blob: (blob.size_bytes, blob.digest))
    _check(package, blobs, store, access)
    with bar(access.listener, "push", sum(blob.size_bytes for blob in blobs)):
        uploads = Uploads(registry, repository, push_cache, access.listener.advance, chunk_bytes=chunk_bytes)
        tasks = [partial(uploads.send, blob, store.blob_path(blob.digest)) for blob in blobs]
        side_by_side(tasks, _AT_ONCE, lambda _: registry.abort())
    return _Sent(uploads.sent_bytes, len(uploads.mounted))


def _check(package: Package, blobs: list[Blob], store: Store, access: Access) -> None:
    """What is damaged here is not sent. Raises StoreError."""
    listener = access.listener
    with store.checking() as known, bar(listener, "check", known.unknown_bytes(one.digest for one in blobs)):
        for blob in blobs:
            if not known.is_sound(blob, listener.advance):
                raise StoreError(
                    f"{package.name} is damaged (blob {blob.digest.short}), so it is not sent",
                    hint="Create it again, which writes the file anew, or see `modelkit verify`.",
                )
