"""Outlines: packages of all that another package has but the numbers of its weights.

    outline.json              what it is an outline of, and where that can be had
    outline/manifest.json     the manifest of that package, as it is: its digest says that it is the one
    outline/config.json       the config that the manifest names
    outline/front-N           what the Nth of its files of weights begins with: a safetensors header
    ...                       all other files, under their own paths

It stands in the store like any package, under a name, and takes no more room than these. Whoever has no
weights can plan with it, and several ranks can run it: each fetches its own part of them.
"""

from collections.abc import Mapping

from modelkit.errors import StoreError
from modelkit.store.canonical import canonical, parse_object
from modelkit.store.digest import Blob, Digest
from modelkit.store.disk import read_small, storing
from modelkit.store.manifest import MANIFEST_LIMIT_BYTES, Layer, Manifest
from modelkit.store.package import Package
from runtime.records import dataclass

FILE = "outline.json"
_MANIFEST, _CONFIG, _FRONT = "outline/manifest.json", "outline/config.json", "outline/front-"
_LIMIT_BYTES = 64 << 10
_LENGTH = 8
FRONT_LIMIT_BYTES = 64 << 20
"""The longest header of a file of weights."""


@dataclass(frozen=True, slots=True)
class Outlined:
    """What a stored outline says."""

    package: Digest
    """That it is an outline of."""
    address: str
    """Of that package in a registry."""
    insecure: bool
    """May that be asked over plain http, which whoever fetched the outline has allowed?"""
    manifest: Manifest
    fronts: Mapping[str, bytes]
    """What files of weights begin with, by their paths in the package."""


def apart(manifest: Manifest) -> list[Layer]:
    """The files that an outline lacks: the weights of the target. A draft's are read whole, by rank 0."""
    return [one for one in manifest.layers if "/" not in one.path and one.path.endswith(".safetensors")]


def refuse_outline(package: Package, what: str) -> None:
    """Raise StoreError for an outline. what: cannot be done with one."""
    said = outlined(package)
    if said is not None:
        raise StoreError(
            f"{package.name.short} is an outline, whose weights are not here: it cannot be {what}",
            hint=f"`modelkit pull {said.address}` has all of it here.",
        )


def outline_files(
    raw: bytes, address: str, fronts: Mapping[str, Blob], manifest_blob: Blob, said: Blob
) -> dict[str, Blob]:
    """The files of an outline, all of which are stored. raw: the manifest, stored as `manifest_blob`. fronts:
    by path. said: what `outline_json` gave.
    """
    manifest = Manifest.parse(raw)
    lacking = apart(manifest)
    missing = {layer.path for layer in lacking}
    files = {layer.path: layer.blob for layer in manifest.layers if layer.path not in missing}
    if any(path == FILE or path.startswith("outline/") for path in files):
        raise StoreError(f"{address} is an outline itself, or has files that are called like those of one")
    files |= {FILE: said, _MANIFEST: manifest_blob, _CONFIG: manifest.config}
    return files | {f"{_FRONT}{number}": fronts[layer.path] for number, layer in enumerate(lacking)}


def outline_json(raw: bytes, address: str, *, insecure: bool) -> bytes:
    """raw: the manifest."""
    return canonical({"package": str(Digest.of(raw)), "address": address, "insecure": insecure})


def outlined(package: Package) -> Outlined | None:
    """What this package is an outline of; None for any other. Raises StoreError for a damaged one."""
    if FILE not in package.files:
        return None
    said, raw = _small(package, FILE, _LIMIT_BYTES), _small(package, _MANIFEST, MANIFEST_LIMIT_BYTES)
    told = parse_object(said, f"{FILE} of {package.name}", _LIMIT_BYTES)
    try:
        digest, address, insecure = Digest.parse(told["package"]), str(told["address"]), told["insecure"]
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{FILE} of {package.name} cannot be read") from error
    if Digest.of(raw) != digest:
        raise StoreError(f"{package.name} is the outline of another package than {FILE} says")
    manifest = Manifest.parse(raw)
    fronts = {
        layer.path: _small(package, f"{_FRONT}{number}", _LENGTH + FRONT_LIMIT_BYTES)
        for number, layer in enumerate(apart(manifest))
    }
    return Outlined(digest, address, insecure is True, manifest, fronts)


def _small(package: Package, path: str, limit_bytes: int) -> bytes:
    found = package.files.get(path)
    if found is None:
        raise StoreError(f"the outline {package.name} lacks {path}")
    with storing(found):
        return read_small(found, limit_bytes)
