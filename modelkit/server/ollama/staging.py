"""Files that clients send before they ask for a package of them: `POST /api/blobs/sha256:...`.

They lie in a folder of the store's home, under the hex of what they hold, until DAYS have passed; a file is
there once its bytes are right. How many there may be is bounded, and some space on the disk stays free.
"""

import hashlib
import os
import secrets
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from modelkit.errors import StoreError
from modelkit.server.faults import refused
from modelkit.store.digest import Digest
from modelkit.store.disk import require_space, storing, sync

DAYS = 2
MOST_FILES = 4096
_FREE_BYTES = 1 << 30
_PART = "part-"


class Staging:
    """Of one store."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "staging"

    def find(self, digest: str) -> Path | None:
        """The file of that content; None where it has not been sent. Raises Refused for what is no digest."""
        path = self._folder / _parsed(digest).hex
        return path if path.is_file() else None

    def begin(self, digest: str, size_bytes: int | None) -> "Incoming":
        """A file is to come. Raises Refused, StoreError."""
        with storing(self._folder):
            self._clear()
            if sum(1 for _ in self._folder.iterdir()) >= MOST_FILES:
                raise refused("too_large", f"{MOST_FILES:,} files wait to be packaged already")
            require_space(self._folder, (size_bytes or 0) + _FREE_BYTES)
            return Incoming(self._folder, _parsed(digest))

    def folder(self) -> "tempfile.TemporaryDirectory[str]":
        """For the files of one package, to be entered. Raises StoreError."""
        with storing(self._folder):
            self._clear()
            return tempfile.TemporaryDirectory(dir=self._folder, prefix="use-")

    def _clear(self) -> None:
        """Without what nobody has come back for, and what killed servers have left."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        oldest_s = time.time() - DAYS * 86400
        for one in self._folder.iterdir():
            with suppress(OSError):  # another's may end in this moment
                its = one.lstat()
                if its.st_mtime < oldest_s:
                    shutil.rmtree(one) if stat.S_ISDIR(its.st_mode) else one.unlink()


class Incoming:
    """One file on its way. Its methods take time: to be called on a worker thread, one after the other."""

    def __init__(self, folder: Path, digest: Digest) -> None:
        self._folder, self._digest = folder, digest
        self._part = folder / f"{_PART}{secrets.token_hex(8)}"
        self._file = self._part.open("xb")
        self._hash = hashlib.sha256()
        self._since = 0

    def write(self, data: bytes) -> None:
        self._since += len(data)
        if self._since > _FREE_BYTES // 4:
            require_space(self._folder, _FREE_BYTES)
            self._since = 0
        with storing(self._part):
            self._file.write(data)
        self._hash.update(data)

    def finish(self) -> None:
        """Raises Refused for other bytes than were promised, and StoreError."""
        with storing(self._part):
            self._file.flush()
            sync(self._file.fileno())  # its name vouches for its bytes, and nobody hashes them again
            self._file.close()
        found = self._hash.hexdigest()
        if found != self._digest.hex:
            raise refused("invalid_request", f"digest mismatch, expected {self._digest}, got sha256:{found}")
        with storing(self._part):
            os.replace(self._part, self._folder / self._digest.hex)

    def close(self) -> None:
        """What has not come whole goes. Safe to call twice."""
        with suppress(OSError):  # its last bytes have no room either; why it failed is known by then
            self._file.close()
        with suppress(OSError):
            self._part.unlink(missing_ok=True)


def _parsed(digest: str) -> Digest:
    try:
        return Digest.parse(digest.replace("sha256-", "sha256:", 1))
    except StoreError as error:
        raise refused("invalid_request", f"invalid digest format: {error.message}") from error
