"""What earlier pushes can save later ones: where an upload can be taken up again, and which repository of a
registry has a blob that another one can take over.

One small file beside the store, for its owner only, since the address of an upload can be signed. It is a
cache: anything wrong with it reads as nothing known, and two processes that write it at once cost one of
them what it learned.
"""

import time
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

from modelkit.errors import StoreError
from modelkit.store.canonical import canonical, parse_object
from modelkit.store.digest import Digest
from modelkit.store.disk import read_small, replace

_LIMIT_BYTES = 8 << 20
_UPLOADS = 256
_PLACES = 20_000
_GOOD_FOR_S = 24 * 3600.0  # registries forget unfinished uploads after hours or days


class PushCache:
    """One registry's part of the file in `home`."""

    def __init__(self, home: Path, host: str) -> None:
        self._path = home / "registries.json"
        self._host = host

    def upload(self, repository: str, digest: Digest) -> str | None:
        """The address where an upload can perhaps go on."""
        row: Any = self._read("uploads").get(self._key(repository, digest))
        if not isinstance(row, list) or len(row) != 2:
            return None
        url, moment_s = row
        fresh = isinstance(moment_s, int | float) and 0 <= time.time() - moment_s < _GOOD_FOR_S
        return url if isinstance(url, str) and fresh else None

    def keep_upload(self, repository: str, digest: Digest, url: str | None) -> None:
        """Note where an upload can go on; None: nowhere."""
        rows = self._read("uploads")
        rows.pop(self._key(repository, digest), None)
        if url is not None:
            rows[self._key(repository, digest)] = [url, time.time()]
        self._write("uploads", dict(list(rows.items())[-_UPLOADS:]))

    def places(self, digest: Digest) -> list[str]:
        """Repositories of this registry that have had the blob, the last one first."""
        row = self._read("places").get(f"{self._host} {digest.hex}")
        return [one for one in row if isinstance(one, str)] if isinstance(row, list) else []

    def keep_places(self, repository: str, digests: list[Digest]) -> None:
        """Note that the repository has these blobs."""
        rows = self._read("places")
        for digest in digests:
            key = f"{self._host} {digest.hex}"
            row = rows.pop(key, None)
            others = [one for one in row if one != repository] if isinstance(row, list) else []
            rows[key] = [repository, *others][:4]
        self._write("places", dict(list(rows.items())[-_PLACES:]))

    def _key(self, repository: str, digest: Digest) -> str:
        return f"{self._host} {repository} {digest.hex}"

    def _read(self, part: str) -> dict[str, Any]:
        value = self._all().get(part)
        return dict(value) if isinstance(value, dict) else {}

    def _all(self) -> dict[str, Any]:
        try:
            return parse_object(read_small(self._path, _LIMIT_BYTES), "registries.json", _LIMIT_BYTES)
        except (OSError, StoreError):
            return {}

    def _write(self, part: str, rows: dict[str, Any]) -> None:
        with suppress(OSError, StoreError):
            # Not sorted by time any more once written: the newest are those of this run, and they suffice.
            data = canonical({**self._all(), part: rows})
            replace(self._path, data, self._path.with_name(f".registries.{token_hex(8)}"), durable=False)
