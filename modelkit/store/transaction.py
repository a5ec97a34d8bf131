"""Adding a package: write blobs, then give them a name. Until `commit` nothing anybody can see has changed.

    with store.begin() as new:
        files = {"config.json": new.add_bytes(text), "model.safetensors": new.add_file(path)}
        new.commit(name, build_artifact(files))

Leaving without commit, by an error or not, changes no name and frees what was written, if nobody needs it.
"""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from modelkit.errors import StoreError
from modelkit.progress import Advance
from modelkit.store.artifact import Artifact, parse_config
from modelkit.store.digest import Blob, Digest
from modelkit.store.disk import require_space, storing, sync_folder
from modelkit.store.index import Entry
from modelkit.store.ingest import BlobWriter, Ingest, Look, changed, open_source
from modelkit.store.layout import Layout
from modelkit.store.manifest import Manifest
from modelkit.store.memo import SourceDigests
from modelkit.store.name import Name, as_name
from modelkit.store.partial import PartialBlob, here_bytes
from modelkit.store.slices import Sliced, SliceWriter
from modelkit.store.sweep import free, reached_by


class Transaction:
    """Made by `Store.begin`; a context manager. Its blobs may be written from several threads."""

    def __init__(self, layout: Layout, sources: SourceDigests) -> None:
        self._layout = layout
        self._sources = sources
        self._ingest = Ingest(layout)

    def write_blob(self, expect: Blob | None = None) -> BlobWriter:
        """A writer for one blob: `with new.write_blob() as w: w.write(...); blob = w.commit()`."""
        return self._ingest.write_blob(expect)

    def add_bytes(self, data: bytes) -> Blob:
        """Store a small file."""
        with self.write_blob() as writer:
            writer.write(data)
            return writer.commit()

    def add_file(
        self,
        path: Path,
        *,
        expect: Digest | None = None,
        progress: Advance | None = None,
        look: Look | None = None,
        same: Callable[[os.stat_result], bool] | None = None,
    ) -> Blob:
        """Store the bytes of a file outside the store.

        A file of the digest `expect`, or of one remembered from an earlier time, is not read again if the
        store has those bytes. `progress` is called with the bytes read since its last call; `look` sees all
        pieces, and what it raises ends this. same: is it, by what the system says of it, the file that was
        looked at before? Raises SourceError for what is no regular file, has changed or changes meanwhile, or
        is not of the digest `expect`.
        """
        known = expect or self._sources.recalled(path)
        source = open_source(path)
        try:
            before = os.fstat(source)
            if same is not None and not same(before):
                raise changed(path)
            blob = self._ingest.copy(source, path, known=known, expect=expect, progress=progress, look=look)
            self._sources.learn(before, os.fstat(source), blob.digest)
            return blob
        finally:
            os.close(source)

    def fetch_blob(self, expect: Blob) -> PartialBlob:
        """Where a blob that comes from the network grows; a context manager. What a killed operation had of
        it is still there.
        """
        return PartialBlob(self._layout, expect, self._ingest.adopt)

    def left_bytes(self, blob: Blob) -> int:
        """What would have to come of a blob: none of one that is stored, which is kept as by `has`, and of
        one that a killed operation was fetching the rest.
        """
        return 0 if self.has(blob.digest) == blob else blob.size_bytes - here_bytes(self._layout, blob)

    def write_slice(self, wanted: Sliced) -> SliceWriter:
        """A writer for a slice of a blob, which is kept from now until the transaction ends."""
        self._ingest.pin(wanted.blob)
        return SliceWriter(self._layout, self._ingest.temp_path(), wanted)

    def own_path(self, ending: str) -> Path:
        """Where to put a file that is gone when this ends, or is found and removed where it was killed."""
        return self._ingest.temp_path(ending)

    def require_space(self, needed_bytes: int) -> None:
        """Raise StoreError now if that much cannot be written."""
        require_space(self._layout.root, needed_bytes)

    def find_slice(self, wanted: Sliced) -> Path | None:
        """Where it is, kept from now until the transaction ends; None if it is not here."""
        self._ingest.pin(wanted.blob)
        return wanted.path(self._layout) if wanted.is_here(self._layout) else None

    def has(self, digest: Digest) -> Blob | None:
        """The stored blob of that digest, kept from now until the transaction ends; None if there is none."""
        return self._ingest.pin(digest)

    def sound(self, digest: Digest, progress: Advance | None = None) -> Blob | None:
        """`has`, where the bytes are the right ones too; `progress` hears of those that have to be read."""
        return self._ingest.sound(digest, progress)

    def unknown_bytes(self, digests: Iterable[Digest]) -> int:
        """What `sound` would have to read to answer for these."""
        return self._ingest.soundness.unknown_bytes(digests)

    def commit(self, name: Name | str, artifact: Artifact) -> Digest:
        """Store the two documents and let `name` stand for them. What it stood for before is freed.

        Everything the manifest names must be stored. When this returns, the package survives a power cut.
        Returns the manifest's digest. Raises StoreError, and changes no name, if anything is missing or does
        not fit.
        """
        name = as_name(name)
        manifest = Manifest.parse(artifact.manifest)
        parse_config(artifact.config, manifest)
        self.add_bytes(artifact.config)
        for blob in sorted(manifest.blobs):
            if self.has(blob.digest) != blob:
                raise StoreError(
                    f"{blob.digest} ({blob.size_bytes:,} bytes) is not in the store, but {name} needs it"
                )
        stored = self.add_bytes(artifact.manifest)
        with storing(self._layout.blobs):
            sync_folder(self._layout.blobs)
        rename(self._layout, name, stored)
        return stored.digest

    def __enter__(self) -> Self:
        self._ingest.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        release(self._ingest)


def rename(layout: Layout, name: Name, manifest: Blob) -> None:
    """Let `name` stand for a stored manifest, and free what it stood for."""
    name.allowed()
    with layout.changing():
        index = layout.read_index()
        replaced = reached_by(layout, index.named.get(name))
        index = index.with_entry(Entry.make(name, manifest))
        layout.write_index(index)
        free(layout, index, replaced)


def release(ingest: Ingest) -> None:
    """End an operation and free those of its pins that nothing needs.

    A failure here must not hide the error that ended the operation, nor undo its success: the next prune
    frees the rest.
    """
    with suppress(StoreError):
        pins: Iterable[Digest] = ingest.close()
        with ingest.layout.changing():
            free(ingest.layout, ingest.layout.read_index(), pins)
