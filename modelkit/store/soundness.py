"""Are the bytes of a stored blob those that its name promises?

Whoever gives a blob a new user without writing it asks here first. A small blob is hashed, always. A large
one counts as sound while the file system says that it is the file which was last written or hashed here
(inode, size, times), and no longer than for TRUSTED_S: a disk may lose bits without telling anybody.
Otherwise it is hashed, at about a gigabyte a second.

What was found is kept in checked.json. It is a cache: anything wrong with it reads as nothing known.
"""

import os
import stat
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from modelkit.errors import StoreError
from modelkit.progress import Advance
from modelkit.store.canonical import canonical, parse_object
from modelkit.store.digest import Blob, Digest
from modelkit.store.disk import chunks, open_plain, read_small, replace, storing
from modelkit.store.layout import Layout

SMALL_BYTES = 1 << 20
TRUSTED_S = 7 * 24 * 3600.0

_LIMIT_BYTES = 16 << 20
_SECOND_NS = 1_000_000_000


def fingerprint(status: os.stat_result) -> str:
    """What changes when a file is written to, as far as the file system knows."""
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"


class Soundness:
    """What one store knows of its blobs. `learn` and `forget` are remembered by `save`. For any thread."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._path = layout.root / "checked.json"
        self._read: dict[str, list[Any]] | None = None
        self._news: dict[str, list[Any] | None] = {}
        self._mutex = threading.Lock()

    def is_known(self, digest: Digest) -> bool:
        """Can `is_sound` be answered at once?"""
        status = self._status(digest)
        return status is None or status.st_size <= SMALL_BYTES or self._trusts(digest, status)

    def unknown_bytes(self, digests: Iterable[Digest]) -> int:
        """What asking about these blobs would read, small ones not counted."""
        known = set(digests)
        return sum(self._layout.blob_size(one) or 0 for one in known if not self.is_known(one))

    def is_sound(self, blob: Blob, progress: Advance | None = None) -> bool:
        """Is this blob stored, of that size and with the right bytes?"""
        status = self._status(blob.digest)
        if status is None or status.st_size != blob.size_bytes:
            return False
        if status.st_size > SMALL_BYTES and self._trusts(blob.digest, status):
            return True
        return self.read(blob.digest, progress)[1]

    def read(self, digest: Digest, progress: Advance | None = None) -> tuple[int, bool]:
        """Hash a stored blob, and learn from it. Returns its bytes, and whether they are the right ones.

        Raises StoreError where it cannot be read.
        """
        path = self._layout.blob_path(digest)
        with storing(path), open(open_plain(path), "rb", buffering=0) as file:
            before = os.fstat(file.fileno())
            found = Blob.of(chunks(file.fileno()), progress)
            unchanged = fingerprint(before) == fingerprint(os.fstat(file.fileno()))
        sound = found.digest == digest
        if sound and unchanged:
            self.learn(digest, before)
        elif not sound:
            self.forget(digest)
        return found.size_bytes, sound

    def learn(self, digest: Digest, status: os.stat_result | None = None) -> None:
        """The blob has just been written or hashed, and was whole then."""
        status = status or self._status(digest)
        if status is None or status.st_size <= SMALL_BYTES or not _tells_time(status):
            return
        with self._mutex:
            self._news[digest.hex] = [fingerprint(status), time.time()]

    def forget(self, digest: Digest) -> None:
        with self._mutex:
            self._news[digest.hex] = None

    def save(self) -> None:
        """Remember what was learned. Where that cannot be written, blobs are hashed again another time."""
        with self._mutex:
            news, self._news, self._read = self._news, {}, None
        if not news:
            return
        rows = {**self._rows(), **news}
        kept = {name: row for name, row in rows.items() if row and self._status(Digest(name))}
        with suppress(StoreError), self._layout.adding(), storing(self._path):
            replace(self._path, canonical({"blobs": kept}), self._layout.temp_path(), durable=False)

    def _trusts(self, digest: Digest, status: os.stat_result) -> bool:
        with self._mutex:
            if self._read is None:
                self._read = self._rows()
            row = self._news.get(digest.hex, self._read.get(digest.hex))
        return row is not None and row[0] == fingerprint(status) and 0 <= time.time() - row[1] < TRUSTED_S

    def _status(self, digest: Digest) -> os.stat_result | None:
        try:
            status = self._layout.blob_path(digest).lstat()
        except OSError:
            return None
        return status if stat.S_ISREG(status.st_mode) else None

    def _rows(self) -> dict[str, list[Any]]:
        """Digest -> [fingerprint, seconds since 1970 at which it was found sound]."""
        try:
            rows = parse_object(read_small(self._path, _LIMIT_BYTES), "checked.json", _LIMIT_BYTES)
            return {Digest(name).hex: row for name, row in rows.get("blobs", {}).items() if _is_row(row)}
        except (OSError, StoreError, AttributeError):
            return {}


def _is_row(row: object) -> bool:
    return (
        isinstance(row, list)
        and len(row) == 2
        and isinstance(row[0], str)
        and isinstance(row[1], int | float)
    )


def _tells_time(status: os.stat_result) -> bool:
    """False for a file system that counts in whole seconds: a change within the same one would not show."""
    return bool(status.st_mtime_ns % _SECOND_NS or status.st_ctime_ns % _SECOND_NS)
