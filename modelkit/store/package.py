"""A stored package, opened: its manifest and config read and checked, its files found."""

from collections.abc import Mapping
from pathlib import Path

from modelkit.errors import StoreError
from modelkit.store.artifact import parse_config
from modelkit.store.canonical import JsonObject
from modelkit.store.digest import Blob, Digest
from modelkit.store.disk import read_small, storing
from modelkit.store.index import Entry
from modelkit.store.layout import Layout
from modelkit.store.manifest import MANIFEST_LIMIT_BYTES, WEIGHT_TYPE, Manifest
from modelkit.store.name import Name
from runtime.records import dataclass

_CHECKED_BYTES = 64 << 20  # no file that is read whole is larger


@dataclass(frozen=True, slots=True, repr=False)
class Package:
    """A name and all that stands behind it."""

    name: Name
    manifest_blob: Blob
    size_bytes: int
    """Every blob counts once."""
    modified_s: float
    """Seconds since 1970: when the name was last given."""
    files: Mapping[str, Path]
    """From paths in the package to the read-only blobs that hold them."""
    manifest: Manifest
    config: JsonObject
    """What the manifest's config says, as JSON."""

    @property
    def digest(self) -> Digest:
        """The manifest's, and so that of the whole content."""
        return self.manifest_blob.digest

    @property
    def id(self) -> str:
        """The short form of the digest that tables show."""
        return self.digest.short

    def __repr__(self) -> str:
        return f"<Package {self.name} {self.id}, {self.size_bytes:,} bytes>"


@dataclass(frozen=True, slots=True)
class BrokenPackage:
    """A name whose package cannot be used, and why in one sentence. It can be removed, or created again."""

    name: Name
    digest: Digest | None
    modified_s: float
    problem: str


def open_package(layout: Layout, name: Name, entry: Entry) -> Package:
    """Read what an index entry stands for. Raises StoreError if it is damaged or no model."""
    if entry.blob is None:
        raise StoreError("its entry in index.json names no manifest")
    raw = layout.read_blob(entry.blob.digest, MANIFEST_LIMIT_BYTES)
    manifest = Manifest.parse(raw)
    config = parse_config(layout.read_blob(manifest.config.digest, MANIFEST_LIMIT_BYTES), manifest)
    for layer in manifest.layers:
        _check_present(layout, layer.path, layer.blob)
    return Package(
        name=name,
        manifest_blob=Blob(entry.blob.digest, len(raw)),
        size_bytes=len(raw) + sum(blob.size_bytes for blob in manifest.blobs),
        modified_s=_modified_s(layout, entry),
        files={layer.path: layout.blob_path(layer.blob.digest) for layer in manifest.layers},
        manifest=manifest,
        config=config,
    )


def check_small_files(layout: Layout, package: Package) -> None:
    """Raise StoreError for a damaged file that is read as soon as the package is used: all but the weights.

    One digit that a disk lost in config.json is another model, and hashing all of them takes milliseconds.
    """
    for layer in package.manifest.layers:
        if layer.media_type != WEIGHT_TYPE and layer.blob.size_bytes <= _CHECKED_BYTES:
            with storing(package.files[layer.path]):
                raw = read_small(package.files[layer.path], _CHECKED_BYTES)
            if Digest.of(raw) != layer.blob.digest:
                raise StoreError(f"{layer.path} is damaged (blob {layer.blob.digest.short})")


def open_or_explain(layout: Layout, name: Name, entry: Entry) -> Package | BrokenPackage:
    """`open_package`, with the failure as a value, so that one bad package never hides the others."""
    try:
        return open_package(layout, name, entry)
    except StoreError as error:
        digest = entry.blob.digest if entry.blob else None
        return BrokenPackage(name, digest, _modified_s(layout, entry), error.message)


def _check_present(layout: Layout, path: str, blob: Blob) -> None:
    size_bytes = layout.blob_size(blob.digest)
    if size_bytes == blob.size_bytes:
        return
    found = "is missing" if size_bytes is None else f"has {size_bytes:,} of {blob.size_bytes:,} bytes"
    raise StoreError(f"{path} {found} (blob {blob.digest.short})")


def _modified_s(layout: Layout, entry: Entry) -> float:
    """Other tools write no time; the manifest's file has one, until it is gone."""
    if entry.modified_s is not None or entry.blob is None:
        return entry.modified_s or 0.0
    try:
        return layout.blob_path(entry.blob.digest).lstat().st_mtime
    except OSError:
        return 0.0
