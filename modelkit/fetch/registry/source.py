"""Where a package comes from, and its blobs brought into the store."""

from modelkit.address import RegistryAddress
from modelkit.fetch.access import Access
from modelkit.fetch.registry.client import Registry
from modelkit.fetch.registry.credentials import find
from modelkit.fetch.registry.download import Downloads
from modelkit.fetch.registry.manifests import Document
from modelkit.fetch.registry.wire import Limits
from modelkit.progress import bar
from modelkit.settings.places import credential_files
from modelkit.store.digest import Blob
from modelkit.store.store import Store
from modelkit.store.transaction import Transaction
from modelkit.units import size
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Source:
    """Where a package comes from."""

    address: RegistryAddress
    registry: Registry
    document: Document
    """The manifest."""


def open_registry(address: RegistryAddress, *, insecure: bool, limits: Limits | None = None) -> Registry:
    """The registry of an address, with what is kept to log in there."""
    files = credential_files()
    return Registry(
        address.host,
        insecure=insecure,
        credentials=lambda: find(files, address.host, address.repository),
        limits=limits,
    )


def fetch(source: Source, blobs: list[Blob], store: Store, new: Transaction, access: Access) -> None:
    """Bring blobs into the store, as one bar."""
    wanted = {blob.digest: blob for blob in blobs}
    total_bytes = sum(blob.size_bytes for blob in wanted.values())
    missing_bytes = sum(new.left_bytes(blob) for blob in wanted.values())
    store.require_space(missing_bytes)
    listener = access.listener
    if missing_bytes:
        listener.say(f"{source.address}: {size(missing_bytes)} of {size(total_bytes)} to fetch")
    with bar(listener, "pull", total_bytes):
        downloads = Downloads(source.registry, source.address.repository, new, listener.advance)
        downloads.fetch_all(wanted.values())
