"""What earlier operations can save later ones. Both tables are caches: anything wrong with them reads as
absence.

`Conversions` remembers which blobs came out of a conversion, under a key that says everything that went in.
`SourceDigests` remembers the SHA-256 of source files, by what the file system says of them (device, inode,
size, times), so that a model of a hundred gigabytes is not read again only to learn that it is the same.
"""

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from modelkit.errors import StoreError
from modelkit.progress import Advance
from modelkit.store.canonical import JsonObject, canonical, parse_object
from modelkit.store.digest import Blob, Digest
from modelkit.store.disk import read_small, replace, storing
from modelkit.store.ingest import changed, open_source, source_chunks
from modelkit.store.layout import Layout
from modelkit.store.soundness import fingerprint

_LIMIT_BYTES = 16 << 20
_SOURCES = 4096
_SETTLED_NS = 2_000_000_000  # a file changed within the clock's grain of being read could change again unseen


class Conversions:
    """Key -> JSON object. Every string in an object that spells a digest names a blob the entry cannot do
    without.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def get(self, key: str) -> JsonObject | None:
        entry = _read(self._path(key))
        value = entry.get("value")
        if entry.get("key") != key or not isinstance(value, dict) or not self._complete(value, frozenset()):
            return None
        return value

    def put(self, key: str, value: JsonObject) -> None:
        raw = canonical({"key": key, "value": value})
        if len(raw) <= _LIMIT_BYTES:
            _write(self._layout, self._path(key), raw)

    def stale(self, gone: frozenset[Digest]) -> list[Path]:
        """The entries that need a blob which is missing, or is among `gone`."""
        if not self._layout.conversions.exists():
            return []
        paths = sorted(self._layout.conversions.iterdir())
        return [path for path in paths if not self._complete(_read(path).get("value"), gone)]

    def _path(self, key: str) -> Path:
        return self._layout.conversions / f"{hashlib.sha256(key.encode()).hexdigest()}.json"

    def _complete(self, value: object, gone: frozenset[Digest]) -> bool:
        if not isinstance(value, dict):
            return False
        return all(
            digest not in gone and self._layout.blob_size(digest) is not None for digest in _digests(value)
        )


class SourceDigests:
    """File -> digest, for the files last asked about."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._path = layout.root / "sources.json"

    def of(self, path: Path, progress: Advance | None) -> Digest:
        """The SHA-256 of a file, read only if it is not known. Raises SourceError."""
        known = self.recalled(path)
        if known:
            return known
        fd = open_source(path)
        with open(fd, "rb", buffering=0):
            before = os.fstat(fd)
            digest = Blob.of(source_chunks(fd, before.st_size, path), progress).digest
            after = os.fstat(fd)
        if fingerprint(before) != fingerprint(after):
            raise changed(path)
        self.learn(before, after, digest)
        return digest

    def recalled(self, path: Path) -> Digest | None:
        """What `of` would answer without reading the file, if it could."""
        try:
            text = dict(self._rows()).get(fingerprint(path.stat()))
            return Digest.parse(text) if text else None
        except (OSError, StoreError):
            return None

    def learn(self, before: os.stat_result, after: os.stat_result, digest: Digest) -> None:
        """Remember a digest made between two looks at the file, if nothing can have happened in between."""
        mark = fingerprint(before)
        changed_ns = max(after.st_mtime_ns, after.st_ctime_ns)
        if mark != fingerprint(after) or changed_ns > time.time_ns() - _SETTLED_NS:
            return
        rows = [row for row in self._rows() if row[0] != mark] + [(mark, str(digest))]
        with suppress(StoreError):
            _write(self._layout, self._path, canonical({"files": rows[-_SOURCES:]}))

    def _rows(self) -> list[tuple[str, str]]:
        rows: Any = _read(self._path).get("files")
        pairs = rows if isinstance(rows, list) else []
        return [
            (row[0], row[1]) for row in pairs if isinstance(row, list) and len(row) == 2 and _all_text(row)
        ]


def _read(path: Path) -> JsonObject:
    try:
        return parse_object(read_small(path, _LIMIT_BYTES), str(path), _LIMIT_BYTES)
    except (OSError, StoreError):
        return {}


def _write(layout: Layout, path: Path, raw: bytes) -> None:
    layout.prepare()
    with layout.adding(), storing(path):
        replace(path, raw, layout.temp_path(), durable=False)


def _all_text(row: list[Any]) -> bool:
    return all(isinstance(text, str) for text in row)


def _digests(value: Any) -> Iterator[Digest]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _digests(key)
            yield from _digests(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _digests(inner)
    elif isinstance(value, str):
        with suppress(StoreError):
            yield Digest.parse(value)
