"""Where a stored package can be had again: the registry that it was pulled from or pushed to, as it is."""

from contextlib import suppress

from modelkit.address import RegistryAddress, read_address
from modelkit.errors import ModelkitError, StoreError
from modelkit.store.digest import Digest
from modelkit.store.store import Store


def keep_origin(store: Store, package: Digest, address: RegistryAddress) -> None:
    """That registry has the package under this digest. Forgotten with the package."""
    exact = RegistryAddress(address.host, address.repository, digest=str(package))
    with suppress(StoreError):
        store.memo_put(_key(package), {"package": str(package), "address": str(exact)})


def origin_of(store: Store, package: Digest) -> RegistryAddress | None:
    """The last place that `keep_origin` was told; None where there is none."""
    try:
        said = store.memo_get(_key(package)) or {}
        address = read_address(str(said.get("address") or "./"))
    except ModelkitError:
        return None
    return address if isinstance(address, RegistryAddress) else None


def _key(package: Digest) -> str:
    return f"where {package} came from"
