"""index.json as data: which names there are, and the manifest each stands for.

An entry is an OCI descriptor; its name is the annotation `org.opencontainers.image.ref.name`, the time of its
last change `org.opencontainers.image.created` (RFC 3339): here, in the one document that is local and never
hashed, a time does no harm. Entries that other tools wrote, without a name or of another kind, are kept as
they are: they hold their blobs too.
"""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Self

from modelkit.errors import StoreError
from modelkit.store.canonical import canonical, parse_object
from modelkit.store.digest import Blob
from modelkit.store.manifest import ARTIFACT_TYPE, MANIFEST_TYPE, parse_descriptor
from modelkit.store.name import Name
from runtime.records import dataclass

INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
REF_NAME = "org.opencontainers.image.ref.name"
CREATED = "org.opencontainers.image.created"
INDEX_LIMIT_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the index."""

    name: Name | None
    """None where the descriptor has none that can be read."""
    blob: Blob | None
    """None where the descriptor has none that can be read."""
    descriptor: Mapping[str, Any]
    """The line as it is in the file."""

    @classmethod
    def make(cls, name: Name, blob: Blob) -> Self:
        now = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="microseconds")
        annotations = {REF_NAME: name.full, CREATED: now.replace("+00:00", "Z")}
        descriptor = {"mediaType": MANIFEST_TYPE, "artifactType": ARTIFACT_TYPE, "annotations": annotations}
        return cls(name, blob, {**descriptor, "digest": str(blob.digest), "size": blob.size_bytes})

    @classmethod
    def parse(cls, descriptor: Mapping[str, Any]) -> Self:
        try:
            blob = parse_descriptor(descriptor)
        except StoreError:
            blob = None
        return cls(Name.from_ref(_annotations(descriptor).get(REF_NAME)), blob, descriptor)

    @property
    def modified_s(self) -> float | None:
        """When the name was last given, in seconds since 1970; None where the entry does not say."""
        text = _annotations(self.descriptor).get(CREATED)
        try:
            return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else None
        except (ValueError, OverflowError):
            return None


@dataclass(frozen=True, slots=True)
class Index:
    """All entries. Where two have one name, the later counts: tools that append must win."""

    entries: tuple[Entry, ...]

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        value = parse_object(raw, "the store's index.json", INDEX_LIMIT_BYTES)
        manifests = value.get("manifests")
        if not isinstance(manifests, list) or not all(isinstance(entry, dict) for entry in manifests):
            raise StoreError("the store's index.json has no list of manifests")
        return cls(tuple(Entry.parse(entry) for entry in manifests))

    def to_bytes(self) -> bytes:
        ordered = sorted(self.entries, key=lambda entry: entry.name.full if entry.name else "")
        manifests = [dict(entry.descriptor) for entry in ordered]
        return canonical({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": manifests})

    @property
    def named(self) -> dict[Name, Entry]:
        return {entry.name: entry for entry in self.entries if entry.name is not None}

    def with_entry(self, entry: Entry) -> "Index":
        """The index with `entry` in place of whatever had its name."""
        return Index((*(other for other in self.entries if other.name != entry.name), entry))

    def without(self, name: Name) -> "Index":
        return Index(tuple(entry for entry in self.entries if entry.name != name))


def _annotations(descriptor: Mapping[str, Any]) -> Mapping[str, Any]:
    value = descriptor.get("annotations")
    return value if isinstance(value, dict) else {}
