"""Which blobs are needed, and freeing those that are not.

Needed is what the index reaches and what running operations have pinned. As long as one manifest cannot be
read, what it needs is unknown, and so nothing at all is freed. Everything here runs under the store's
exclusive lock (`changing`).
"""

from collections.abc import Iterable
from typing import Any

from modelkit.errors import StoreError
from modelkit.store.canonical import parse_object
from modelkit.store.digest import Blob, Digest
from modelkit.store.disk import storing
from modelkit.store.index import Entry, Index
from modelkit.store.ingest import live_pins
from modelkit.store.layout import Layout
from modelkit.store.manifest import MANIFEST_LIMIT_BYTES, parse_descriptor
from runtime.records import dataclass

_DEEPEST_INDEX = 4


@dataclass(frozen=True, slots=True)
class Freed:
    """What removing a name freed."""

    blobs: tuple[Blob, ...]
    held: str | None = None
    """Why its blobs had to stay for now; None if they did not."""

    @property
    def size_bytes(self) -> int:
        return sum(blob.size_bytes for blob in self.blobs)


def references(layout: Layout, digest: Digest, depth: int = 0) -> set[Digest]:
    """A manifest's digest and all those under it, whatever kind of artifact it describes.

    More tolerant than `Manifest.parse`: other tools may keep images here, and their blobs are theirs. Raises
    StoreError for a manifest that is missing, damaged, or of a kind whose references are not known.
    """
    value = parse_object(
        layout.read_blob(digest, MANIFEST_LIMIT_BYTES), f"the manifest {digest.short}", MANIFEST_LIMIT_BYTES
    )
    found = {digest}
    if isinstance(value.get("manifests"), list) and depth < _DEEPEST_INDEX:
        for inner in value["manifests"]:
            found |= references(layout, parse_descriptor(inner).digest, depth + 1)
    elif isinstance(value.get("layers"), list) and "config" in value:
        found |= {_any_digest(each) for each in (value["config"], *value["layers"])}
    else:
        raise StoreError(f"the manifest {digest.short} is of a kind that modelkit does not know")
    return found


def unneeded(layout: Layout, index: Index, candidates: Iterable[Digest]) -> list[Blob]:
    """Those of `candidates` that are stored and that nothing needs. Raises StoreError while any manifest is
    unreadable.
    """
    needed = live_pins(layout)
    for entry in index.entries:
        needed |= _references_of(layout, entry)
    sizes = ((digest, layout.blob_size(digest)) for digest in sorted(set(candidates) - needed))
    return [Blob(digest, size_bytes) for digest, size_bytes in sizes if size_bytes is not None]


def free(layout: Layout, index: Index, candidates: Iterable[Digest]) -> Freed:
    """Delete the unneeded among `candidates`, or say what kept it from that; an error here undoes nothing."""
    try:
        blobs = unneeded(layout, index, candidates)
        delete(layout, blobs)
    except StoreError as error:
        return Freed((), error.message)
    return Freed(tuple(blobs))


def delete(layout: Layout, blobs: Iterable[Blob]) -> None:
    for blob in blobs:
        path = layout.blob_path(blob.digest)
        with storing(path):
            path.unlink(missing_ok=True)


def reached_by(layout: Layout, entry: Entry | None) -> set[Digest]:
    """The blobs an entry may leave behind when it goes. If it cannot be read, a later prune finds them."""
    try:
        return references(layout, entry.blob.digest) if entry and entry.blob else set()
    except StoreError:
        return set()


def _references_of(layout: Layout, entry: Entry) -> set[Digest]:
    name = f"the package {entry.name}" if entry.name else "an entry without a name in index.json"
    try:
        if entry.blob is None:
            raise StoreError("it names no manifest")
        return references(layout, entry.blob.digest)
    except StoreError as error:
        raise StoreError(
            f"nothing was freed, because {name} cannot be read, so what it needs is unknown: {error.message}",
            hint=f"Create it again, or remove it with `modelkit rm {entry.name}`." if entry.name else None,
        ) from error


def _any_digest(descriptor: Any) -> Digest:
    return Digest.parse(descriptor.get("digest") if isinstance(descriptor, dict) else None)
