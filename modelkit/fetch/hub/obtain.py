"""An address of the hub -> its files on this machine.

What is decided first: which commit, which files, how large, is there room. Then what is missing is fetched,
several files at a time. Where the server cannot be asked, or must not be, what the cache has of that revision
is used, and a note says which commit and how old.
"""

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock

from modelkit.address import HubAddress
from modelkit.disk_faults import require_room
from modelkit.errors import FetchError, SourceError
from modelkit.fetch.access import MOMENT_BYTES, Access
from modelkit.fetch.hollow import write_hollow
from modelkit.fetch.hub.cache import RepositoryCache, Snapshot, promised
from modelkit.fetch.hub.choose import Choice, choose_model, local_name
from modelkit.fetch.hub.library import Unreachable, ask_listing, server
from modelkit.fetch.hub.listing import Listed, Listing
from modelkit.fetch.hub.parallel import side_by_side
from modelkit.fetch.hub.parts import git_hash, left_bytes
from modelkit.fetch.hub.transfer import ATTEMPTS, LONGEST_WAIT_S, Transfer
from modelkit.fetch.local import Local
from modelkit.fetch.other_programs import Folders, find_beside
from modelkit.fetch.upstream import Upstream, bare_endpoint
from modelkit.progress import bar
from modelkit.settings.places import HubSettings
from modelkit.source.shards import INDEX, read_index, weight_names
from modelkit.source.tree import open_regular
from modelkit.store.digest import Blob, Digest
from modelkit.units import size

_FRONT_BYTES = 64_000
_LICENCE = re.compile(r"^license: *[\"']?([A-Za-z0-9][A-Za-z0-9._-]{0,80})[\"']? *$", re.MULTILINE)


Choose = Callable[[Listing, HubAddress, Callable[[], tuple[str, ...]]], Choice]


def obtain(address: HubAddress, access: Access, hub: HubSettings, choose: Choose = choose_model) -> Local:
    """The files that `address` needs, in huggingface_hub's cache. choose: which of a repository's those are.

    Raises FetchError, StoreError where the cache cannot be written, SourceError and UnsupportedSource for
    repositories without such files.
    """
    here = RepositoryCache(hub.cache, address.repository).snapshot(address.revision)
    if access.offline or hub.offline:
        why = "--offline" if access.offline else "HF_HUB_OFFLINE"
        return _from_cache(here, address, hub, choose, f"{why} forbids asking {server(hub.endpoint)}")
    try:
        listing = ask_listing(address, hub.endpoint) if here else _awaited_listing(address, hub.endpoint)
    except Unreachable as error:
        if here is None:
            raise
        return _from_cache(here, address, hub, choose, error.message)
    return _Fetcher(listing, address, access, hub).fetch(choose)


def find_cached(address: HubAddress, hub: HubSettings, *, main: bool = True) -> Local | None:
    """What the cache has of a model that was named without a host or a revision; None where it has nothing. A
    note says what is used. main: that branch; else whatever came last.
    """
    cache = RepositoryCache(hub.cache, address.repository)
    here = cache.snapshot(None) if main else cache.newest()
    if here is None:
        return None
    which = "" if main else "the newest one there, of another revision than main, "
    note = (
        f"{address.repository} is taken from huggingface_hub's cache ({which}commit {here.commit[:12]}, "
        f"{here.age}); hf.co/{address.repository} asks for a newer one"
    )
    return _of_snapshot(here, address, hub, choose_model, note)


def _awaited_listing(address: HubAddress, endpoint: str) -> Listing:
    """The list of files, asked for again when a server that is busy says to."""
    for _ in range(ATTEMPTS - 1):
        try:
            return ask_listing(address, endpoint)
        except Unreachable as error:
            if not 0 < error.wait_s <= LONGEST_WAIT_S:
                raise
            time.sleep(error.wait_s)
    return ask_listing(address, endpoint)


class _Fetcher:
    """Fetches what is missing of one commit into the cache."""

    def __init__(self, listing: Listing, address: HubAddress, access: Access, hub: HubSettings) -> None:
        self._listing, self._address, self._access, self._hub = listing, address, access, hub
        self._cache = RepositoryCache(hub.cache, address.repository)

    def fetch(self, choose: Choose) -> Local:
        chosen = choose(self._listing, self._address, self._weights)
        missing = [file for file in chosen.files if not self._blob(file).exists()]
        beside = self._beside(chosen, missing)
        missing = [file for file in missing if file.name not in beside]
        self._access.listener.say(self._plan(chosen, missing))
        hollow = self._hollow(chosen, missing)
        missing = [file for file in missing if file.name not in hollow]
        _require_space(self._hub.cache, self._left_bytes(missing))
        large = sum(file.size_bytes for file in missing if file.name in chosen.weights) > MOMENT_BYTES
        if large and self._access.foresee is not None:
            self._access.foresee()
        self._get(missing)
        elsewhere = {**beside, **hollow}
        paths = {file.name: elsewhere.get(file.name) or self._place(file) for file in chosen.files}
        self._cache.note_revision(self._address.revision, self._listing.commit)
        local = _local(self._listing, self._address, chosen, paths, self._hub, ())
        return replace(local, hollow=bool(hollow))

    def _hollow(self, chosen: Choice, missing: list[Listed]) -> dict[str, Path]:
        """The weights that are missing, without their numbers, where that is enough. Shards in GGUF have to
        lie side by side, so either all of them are hollow or none. What git itself holds is small, and its
        digest has to be read.
        """
        folder = self._access.hollow
        wanted = [file for file in missing if file.name in chosen.weights]
        if folder is None or not wanted:
            return {}
        if chosen.is_gguf:
            wanted = [file for file in chosen.files if file.name in chosen.weights]
        told = [file for file in wanted if file.digest]
        wanted = [] if chosen.is_gguf and told != wanted else told
        inside = folder.new()
        places = {file.name: inside / local_name(file.name) for file in wanted}
        transfer = Transfer(self._address, self._hub.endpoint, lambda _bytes: None)
        with folder.writing():
            side_by_side(
                [
                    partial(
                        write_hollow,
                        partial(transfer.piece, self._listing.commit, file),
                        file.name,
                        file.size_bytes,
                        places[file.name],
                    )
                    for file in wanted
                ],
                transfer.stop,
            )
        return places

    def _beside(self, chosen: Choice, missing: list[Listed]) -> dict[str, Path]:
        """Those that other programs have. Shards in GGUF have to lie side by side, so they are fetched."""
        if chosen.is_gguf and len(chosen.weights) > 1:
            return {}
        folders = Folders.from_environment()
        return find_beside(self._address.repository, missing, folders, self._access.listener)

    def _weights(self) -> tuple[str, ...]:
        """The safetensors that are the weights: the index says which; it is small, and fetched for that."""
        index = self._listing.files.get(INDEX)
        if index is not None and not self._blob(index).exists():
            self._get([index])
        return _weights(self._listing, self._place(index) if index else None, str(self._address))

    def _get(self, files: list[Listed]) -> None:
        """Fetch these, the largest first; all stop where one fails."""
        if not files:
            return
        lock, listener = Lock(), self._access.listener

        def advance(done_bytes: int) -> None:
            with lock:
                listener.advance(done_bytes)

        transfer = Transfer(self._address, self._hub.endpoint, advance)

        unique = _unique(files)
        ordered = sorted(unique, key=lambda file: -file.size_bytes)
        with bar(listener, f"fetch {self._address.model}", sum(file.size_bytes for file in unique)):
            side_by_side(
                [partial(transfer.fetch, self._listing.commit, file, self._blob(file)) for file in ordered],
                transfer.stop,
            )

    def _blob(self, file: Listed) -> Path:
        return self._cache.blob(file.blob_name)

    def _place(self, file: Listed) -> Path:
        """Where a file is that was fetched."""
        return self._cache.link(self._listing.commit, file.name, self._blob(file))

    def _left_bytes(self, missing: list[Listed]) -> int:
        """What has to come of files of which an attempt that was cut off may have left a beginning."""
        return sum(left_bytes(file, self._blob(file)) for file in _unique(missing))

    def _plan(self, chosen: Choice, missing: list[Listed]) -> str:
        """What will be fetched, in a sentence."""
        what = f"{self._address} (commit {self._listing.commit[:12]}"
        what += f", {chosen.quant})" if chosen.quant else ")"
        if not missing:
            return f"{what}: all {size(chosen.size_bytes)} are on this machine already"
        needed = self._left_bytes(missing)
        here = sum(file.size_bytes for file in _unique(chosen.files)) - needed
        files = f"{len(missing)} file{'s' if len(missing) > 1 else ''}"
        more = f"; {size(here)} are here already" if here else ""
        if self._access.hollow is not None:
            more += "; for a plan, headers of weights are enough"
        return f"{what}: {files} to fetch, {size(needed)}{more}"


def _unique(files: Iterable[Listed]) -> list[Listed]:
    """Two names of one content are one transfer."""
    return list({file.blob_name: file for file in files}.values())


def _weights(listing: Listing, index: Path | None, label: str) -> tuple[str, ...]:
    """The safetensors that are the weights; only names are looked at, and the index."""
    names = {
        name: index if name == INDEX and index else Path(name) for name in listing.files if "/" not in name
    }
    placed = read_index(names, label)
    return tuple(sorted(set(placed.values()))) if placed is not None else weight_names(names, None, label)


def _from_cache(
    here: Snapshot | None, address: HubAddress, hub: HubSettings, choose: Choose, why: str
) -> Local:
    if here is None:
        raise FetchError(
            f"{address} is not in huggingface_hub's cache ({hub.cache}), and {why}",
            hint="Fetch it where there is a network: modelkit pull " + str(address),
        )
    note = f"{why}; what is cached is used: commit {here.commit[:12]}, {here.age}"
    return _of_snapshot(here, address, hub, choose, note)


def _of_snapshot(here: Snapshot, address: HubAddress, hub: HubSettings, choose: Choose, note: str) -> Local:
    """What the cache has at one commit. How much the repository has beside it, nobody here knows."""
    paths = here.files()
    listing = Listing(
        address.repository, here.commit, {name: _seen(name, path) for name, path in paths.items()}
    )
    try:
        chosen = choose(
            listing, address, lambda: _weights(listing, paths.get(INDEX), f"{address} in the cache")
        )
    except FetchError as error:
        raise FetchError(f"{error.message}, as far as it is cached ({note})", hint=error.hint) from error
    return _local(listing, address, chosen, {one.name: paths[one.name] for one in chosen.files}, hub, (note,))


def _seen(name: str, path: Path) -> Listed:
    digest = promised(path)
    large = digest is not None and len(digest) == 64
    return Listed(name, path.stat().st_size, digest if large else None, None if large else digest)


def _local(
    listing: Listing,
    address: HubAddress,
    chosen: Choice,
    paths: Mapping[str, Path],
    hub: HubSettings,
    notes: tuple[str, ...],
) -> Local:
    blobs = {
        file.name: Blob(file.digest or _read_digest(paths[file.name], file), file.size_bytes)
        for file in chosen.files
    }
    upstream = Upstream(
        kind="hub",
        endpoint=bare_endpoint(hub.endpoint),
        repository=listing.repository,
        commit=listing.commit,
        quant=chosen.quant,
        file=address.file,
        licence=_licence(paths),
        files=blobs,
    )
    return Local(
        label=str(address),
        files={local_name(name): path for name, path in paths.items()},
        gguf=paths[chosen.weights[0]] if chosen.is_gguf else None,
        upstream=upstream,
        promised={paths[name]: blob.digest for name, blob in blobs.items()},
        notes=notes,
    )


def _read_digest(path: Path, file: Listed) -> Digest:
    """The digest of a file that is not called by it: git holds it, and it must be what git calls it."""
    digest, named = hashlib.sha256(), git_hash(file.size_bytes)
    with open_regular(path, file.name) as opened:
        while piece := opened.read(1 << 20):
            digest.update(piece)
            named.update(piece)
    if file.git_sha1 and named.hexdigest() != file.git_sha1:
        raise SourceError(
            f"{file.name} in huggingface_hub's cache is damaged",
            hint=f"Remove it and try again: {path.resolve()}",
        )
    return Digest(digest.hexdigest())


def _licence(paths: Mapping[str, Path]) -> str | None:
    """The identifier at the top of the model's card."""
    if "README.md" not in paths:
        return None
    with open_regular(paths["README.md"], "README.md") as file:
        text = file.read(_FRONT_BYTES).decode("utf-8", "replace")
    front = text.split("---", 2)
    found = _LICENCE.search(front[1]) if len(front) == 3 and not front[0].strip() else None
    return found[1] if found else None


def _require_space(folder: Path, needed_bytes: int) -> None:
    """Refuse what would fill the disk."""
    hint = "Free some space, or set HF_HUB_CACHE to a folder on another disk."
    require_room(folder, needed_bytes, hint, verb="fetched")
