"""Blobs of a package on their way into the store of a rank that lacks them: on a thread of its own, so that
the rank goes on talking to the others meanwhile.

What is in the store and sound stays. The rest comes from the registry that rank 0 knows, as a pull would
fetch it, and where that has it not, from rank 0, which is asked for one blob after the other, from the first
byte that is missing. A blob counts after its SHA-256, and the name stands for the package when all of it is
here: a kill at any time leaves what the next attempt goes on with, and what `prune` removes.
"""

import queue
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING

from modelkit.address import RegistryAddress
from modelkit.errors import FetchError, ModelkitError, StoreError
from modelkit.ranks.facts import Facts
from modelkit.store.artifact import Artifact
from modelkit.store.digest import Blob, Digest
from modelkit.store.manifest import MANIFEST_LIMIT_BYTES, Manifest
from modelkit.store.store import Store
from modelkit.store.transaction import Transaction

if TYPE_CHECKING:
    from modelkit.fetch.registry.client import Registry

_SETTLING_S = 0.2
"""How long what is about to be known is waited for, before the others are told that it is not known yet."""
_ENDING_S = 5.0
_OTHERS_S = 3600.0
"""How long another process of this machine may take to fetch a blob that is missing here."""
_AHEAD = 2
"""Pieces that may wait for the disk."""


class Fetching:
    """Of one package. A context manager, of the rank's own thread; `state`, `take` and `store_as` are its."""

    def __init__(
        self,
        store: Store,
        raw: bytes,
        origin: RegistryAddress | None,
        limit_s: float,
        but: Collection[Digest] = (),
    ) -> None:
        """raw: the manifest, which is the right one. limit_s: how long a registry may send nothing. but: what
        is not fetched.
        """
        self._store, self._raw, self._origin, self._limit_s = store, raw, origin, limit_s
        self.blobs = blobs_in(raw)
        self._but = frozenset(but)
        self.new: Transaction = store.begin()
        self._pieces: queue.Queue[bytes] = queue.Queue(_AHEAD)
        self._changed = threading.Condition()
        self._state: Facts = {"busy": True}
        self._over = threading.Event()
        self._registry: Registry | None = None
        self._heard_s = time.monotonic()
        self.fetched_bytes = self._worked_bytes = 0
        self._thread = threading.Thread(target=self._run, name="modelkit-fetching", daemon=True)

    def __enter__(self) -> "Fetching":
        self.new.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._end_registry()
        self._thread.join(_ENDING_S)
        self.new.__exit__(None, None, None)

    def state(self) -> Facts:
        """What the others are told: `worked`, the bytes that went through so far, `fetched`, those that
        came from elsewhere, and one of `busy`, `waits`
        for another process, `at`, the blob and the byte of it that rank 0 is asked for, `problem`, or none.
        """
        with self._changed:
            self._changed.wait_for(lambda: "busy" not in self._state, _SETTLING_S)
            if "waits" in self._state and time.monotonic() > self._heard_s + _OTHERS_S:
                return {"problem": "another process here has been fetching the same blob for an hour"}
            if self._registry is not None and time.monotonic() > self._heard_s + self._limit_s:
                self._end_registry()
            return {**self._state, "worked": self._worked_bytes, "fetched": self.fetched_bytes}

    def take(self, number: int, start: int, piece: bytes) -> None:
        """What rank 0 sends of this blob, from byte `start` on."""
        at = self._state.get("at")
        if at is None or at[0] != number or not start <= at[1] < start + len(piece):
            return  # it is for others
        stop = start + len(piece)
        self._tell({"at": [number, stop]} if stop < self.blobs[number].size_bytes else {"busy": True})
        while self._thread.is_alive():
            with suppress(queue.Full):
                self._pieces.put(piece[at[1] - start :], timeout=_SETTLING_S)
                return

    def store_as(self, name: str) -> None:
        """Let `name` stand for the package, all of which is here. Raises StoreError."""
        config = self._store.blob_path(Manifest.parse(self._raw).config.digest).read_bytes()
        self.new.commit(name, Artifact(self._raw, config))

    def _run(self) -> None:
        try:
            missing = self._missing()
            self._store.require_space(sum(self.new.left_bytes(self.blobs[number]) for number in missing))
            if missing and self._origin is not None:
                self._pull(self._origin, [self.blobs[number] for number in missing])
            for number in missing:
                self._ask(number)
            self._tell({})
        except ModelkitError as error:
            self._tell({"problem": error.message})
        except Exception as error:  # noqa: BLE001 -- all ranks are told, and give up
            self._tell({"problem": f"{type(error).__name__}: {error}"})

    def _missing(self) -> list[int]:
        blobs = [(number, blob) for number, blob in enumerate(self.blobs) if blob.digest not in self._but]
        return [number for number, blob in blobs if self.new.sound(blob.digest, self._worked) != blob]

    def _pull(self, origin: RegistryAddress, blobs: list[Blob]) -> None:
        """What the registry has not, or does not give in time, is asked of rank 0."""
        from modelkit.fetch.registry.download import Downloads
        from modelkit.fetch.registry.source import open_registry

        with suppress(FetchError), open_registry(origin, insecure=False) as registry:
            self._heard_s, self._registry = time.monotonic(), registry
            try:
                registry.ping()
                Downloads(registry, origin.repository, self.new, self._heard).fetch_all(blobs)
            finally:
                self._registry = None

    def _ask(self, number: int) -> None:
        """Bring one blob from rank 0, unless it has come by now."""
        blob = self.blobs[number]
        self._heard_s = time.monotonic()
        self._tell({"waits": True})  # while another process fetches it, of this machine's ranks perhaps
        with self.new.fetch_blob(blob) as partial:
            if self.new.sound(blob.digest) == blob:
                partial.remove()
                return
            if len(partial.stretches()) > 1:
                partial.restart(1)
            (whole,) = partial.stretches()
            done_bytes = whole.done_bytes
            if done_bytes < blob.size_bytes:
                self._tell({"at": [number, done_bytes]})
            while done_bytes < blob.size_bytes:
                done_bytes = partial.write(whole, done_bytes, self._next())
            self._tell({"busy": True})
            if not partial.commit(self._worked):
                raise StoreError(f"other bytes than those of {blob.digest} have come")

    def _next(self) -> bytes:
        """A piece that rank 0 has sent. Raises StoreError where nobody wants it any more."""
        while not self._over.is_set():
            with suppress(queue.Empty):
                piece = self._pieces.get(timeout=_SETTLING_S)
                self.fetched_bytes += len(piece)
                self._worked(len(piece))
                return piece
        raise StoreError("the transfer was cancelled")

    def _tell(self, state: Facts) -> None:
        with self._changed:
            self._state = state
            self._changed.notify_all()

    def _heard(self, count: int) -> None:
        self._heard_s = time.monotonic()
        self.fetched_bytes += count
        self._worked(count)

    def _worked(self, count: int) -> None:
        self._worked_bytes += abs(count)

    def _end_registry(self) -> None:
        registry = self._registry
        if registry is not None:
            registry.abort()


def blobs_in(raw: bytes) -> list[Blob]:
    """The blobs of a manifest, in the order in which ranks number them. StoreError for no manifest."""
    if len(raw) > MANIFEST_LIMIT_BYTES:
        raise StoreError(f"a manifest of {len(raw):,} bytes; {MANIFEST_LIMIT_BYTES:,} is the most")
    return sorted(Manifest.parse(raw).blobs)
