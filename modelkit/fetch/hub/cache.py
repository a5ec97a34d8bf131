"""huggingface_hub's folder: `models--owner--model/` for each model of the hub.

    blobs/<digest>              contents: sha256 of what Git LFS holds, else git's own sha1
    snapshots/<commit>/<name>   links to them
    refs/<branch or tag>        the commit that it stood for when somebody last asked

A blob is written under another name and renamed, and never written to again, neither by huggingface_hub nor
by us. So its name is a promise of what is in it, which is checked once, when the bytes are used.
"""

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex

from modelkit.disk_faults import disk_fault
from modelkit.errors import FetchError
from modelkit.fetch.hub.listing import is_hex
from modelkit.source.tree import MAX_FILES, is_safe_relative
from runtime.records import dataclass

MAIN = "main"
HINT = "Models of the hub are kept in huggingface_hub's cache; HF_HUB_CACHE says where that is."
_DAY_S = 86400


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A model at one commit, as far as it is in the cache."""

    commit: str
    folder: Path
    """Of the links."""
    fetched_s: float
    """Seconds since 1970 when the branch was last asked for, or the folder made."""

    def files(self) -> dict[str, Path]:
        """What is there, by name, folders below included; links whose end is gone are left out."""
        found: dict[str, Path] = {}
        for place, _, names in os.walk(self.folder):
            for name in names:
                path = Path(place, name)
                relative = path.relative_to(self.folder).as_posix()
                if is_safe_relative(relative) and path.is_file():
                    found[relative] = path
                if len(found) > MAX_FILES:
                    raise FetchError(f"{self.folder} holds more than {MAX_FILES:,} files")
        return dict(sorted(found.items()))

    @property
    def age(self) -> str:
        days = int(max(time.time() - self.fetched_s, 0) // _DAY_S)
        return "of today" if days == 0 else f"{days} day{'s' if days > 1 else ''} old"


class RepositoryCache:
    """One repository's folder in the cache."""

    def __init__(self, cache: Path, repository: str) -> None:
        self.root = cache / f"models--{repository.replace('/', '--')}"

    def snapshot(self, revision: str | None) -> Snapshot | None:
        """What `revision` stood for when it was last asked for, if any of it is here."""
        name = revision or MAIN
        ref = self.root / "refs" / name
        try:
            commit, fetched_s = ref.read_text("ascii").strip()[:64], ref.stat().st_mtime
        except (OSError, ValueError):
            commit, fetched_s = name, 0.0
        folder = self.root / "snapshots" / commit
        if not is_hex(commit, 40) or not folder.is_dir():
            return None
        return Snapshot(commit, folder, fetched_s or folder.stat().st_mtime)

    def newest(self) -> Snapshot | None:
        """What came last of all revisions that are here, for who has no branch in mind."""
        try:
            folders = [path for path in (self.root / "snapshots").iterdir() if is_hex(path.name, 40)]
            dated = sorted((path.stat().st_mtime, path.name, path) for path in folders if path.is_dir())
        except OSError:
            return None
        return Snapshot(dated[-1][1], dated[-1][2], dated[-1][0]) if dated else None

    def blob(self, name: str) -> Path:
        """Where the content of that digest is, or would be."""
        return self.root / "blobs" / name

    def link(self, commit: str, name: str, blob: Path) -> Path:
        """Let `name` at `commit` be that blob. Raises StoreError."""
        place = self.root / "snapshots" / commit / name
        target = os.path.relpath(blob, place.parent)
        if not (place.is_symlink() and os.readlink(place) == target):
            try:
                _put(place, lambda temp: temp.symlink_to(target))
            except OSError as error:
                raise disk_fault(error, place, HINT) from error
        return place

    def note_revision(self, revision: str | None, commit: str) -> None:
        """Remember what a branch or a tag stood for. A cache that only others write to is left as it is.

        Raises StoreError.
        """
        if revision == commit:
            return
        ref = self.root / "refs" / (revision or MAIN)
        try:
            _put(ref, lambda temp: temp.write_text(commit, "ascii"))
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise disk_fault(error, ref, HINT) from error


def _put(path: Path, write: Callable[[Path], object]) -> None:
    """Let `path` be what `write` makes, whole or not at all: it is made under a name that no other thread or
    process takes. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temp = path.with_name(f".{path.name[:200]}.{token_hex(8)}")
    try:
        write(temp)
        os.replace(temp, path)
    except OSError:
        temp.unlink(missing_ok=True)
        raise


def promised(path: Path) -> str | None:
    """The digest that a link's end in `blobs/` is called by; None for a file that is no such link, as where
    the disk has no links.
    """
    if not path.is_symlink():
        return None
    target = Path(os.readlink(path))
    named = is_hex(target.name, 64) or is_hex(target.name, 40)
    return target.name if target.parent.name == "blobs" and named else None
