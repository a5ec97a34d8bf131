"""The folder of pages: names, who wrote what, bounded bytes. No MLX here, so listing them is cheap.

A file is named by the model, the range of positions and a digest of all keys before its stop; what is in one
is in `runtime.cache.page_files`. Other people's files in the folder are left alone, symbolic links are not
followed, and several processes may share it.
"""

import fcntl
import hashlib
import os
import re
import time
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

from runtime.records import dataclass

NAME = re.compile(
    r"([0-9a-f]{16})-([0-9]{1,9})-([0-9]{1,9})-([0-9a-f]{64})\.safetensors(\.[0-9a-f]{8}\.part)?"
)
# Where files cannot be locked, one that was still being written so long ago never will be.
STALE_S = 3600.0


@dataclass(frozen=True, slots=True)
class PrefixFolder:
    """Where pages are kept on disk."""

    path: Path
    model: str
    """Digest of everything that is loaded; pages of another digest are not read."""
    limit_bytes: int
    """For the pages of all models in the folder together."""
    part: str = ""
    """Which part of the model's layers pages are of, where several machines have one each; "": all."""
    numbers: str = ""
    """By what numbers are made, here and on all machines that have a part: other ways leave other bits."""


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file that holds the page of [start, stop) of some sequence."""

    path: Path
    model: str
    """`model_mark` of the model that computed it."""
    start: int
    """The position of its first token."""
    stop: int
    """The position after its last."""
    key: str
    """sha256 over the namespace and all keys before stop."""
    nbytes: int
    """Of the file."""
    used_at_s: float
    """When it was last read or written, in seconds since 1970."""
    partial: bool
    """It is still being written, or whoever wrote it died."""


@dataclass(frozen=True, slots=True)
class PageName:
    """What a page's name says. Nothing was asked of its file."""

    folder: Path
    name: str
    start: int
    """As in PageFile, and so are the next two."""
    stop: int
    key: str

    @property
    def path(self) -> Path:
        return self.folder / self.name

    def nbytes(self) -> int:
        """Of the file now; -1 where it is gone, or none."""
        try:
            found = self.path.lstat()
        except OSError:
            return -1
        return found.st_size if S_ISREG(found.st_mode) else -1


def model_mark(model: str) -> str:
    """What stands for a model's digest in file names."""
    return hashlib.sha256(model.encode()).hexdigest()[:16]


def key_digests(namespace: str, keys: Sequence[Hashable], stops: Iterable[int]) -> Iterator[tuple[int, str]]:
    """For each stop, ascending: the digest of everything before it."""
    running, at = hashlib.sha256(namespace.encode()), 0
    for stop in stops:
        assert at <= stop <= len(keys)
        running.update("".join(f"\n{key!r}" for key in keys[at:stop]).encode())
        at = stop
        yield stop, running.hexdigest()


def page_name(model: str, start: int, stop: int, key: str) -> str:
    return f"{model}-{start}-{stop}-{key}.safetensors"


def list_pages(folder: Path) -> list[PageFile]:
    """All page files in the folder, least recently used first; [] when there is no folder."""
    pages: list[PageFile] = []
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            match = NAME.fullmatch(entry.name)
            if match is None or not entry.is_file(follow_symlinks=False):
                continue
            with suppress(FileNotFoundError):  # another process may have removed it meanwhile
                stat = entry.stat(follow_symlinks=False)
                model, start, stop, key, part = match.groups()
                pages.append(
                    PageFile(
                        Path(entry.path),
                        model,
                        int(start),
                        int(stop),
                        key,
                        stat.st_size,
                        stat.st_mtime,
                        part is not None,
                    )
                )
    return sorted(pages, key=lambda page: page.used_at_s)


def list_names(folder: Path, mark: str) -> list[PageName]:
    """Those of one model's pages, in no order; [] when there is no folder. It takes a quarter of what
    `list_pages` does: of each row that begins, is paged or ends all are looked through, while others wait for
    their tokens.
    """
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    found = (NAME.fullmatch(name) for name in names if name.startswith(mark))
    return [
        PageName(folder, one[0], int(one[2]), int(one[3]), one[4])
        for one in found
        if one is not None and one[5] is None
    ]


def abandoned_pages(folder: Path) -> list[PageFile]:
    """What killed writers left: parts of pages that no process writes to any more."""
    return _abandoned(list_pages(folder))


def _abandoned(pages: Iterable[PageFile]) -> list[PageFile]:
    return [page for page in pages if page.partial and _is_abandoned(page)]


def _is_abandoned(page: PageFile) -> bool:
    """A writer holds a lock on its part, which dies with it."""
    try:
        descriptor = os.open(page.path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return False  # whole by now, or gone
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return page.used_at_s < time.time() - STALE_S
    finally:
        os.close(descriptor)
    return True


def trim_pages(folder: Path, limit_bytes: int) -> int:
    """Remove what killed writers left, then the least recently used pages until the rest fits. What is
    being written now is left alone. Returns the bytes removed.
    """
    pages, freed = list_pages(folder), 0
    held = sum(page.nbytes for page in pages)
    for page in [*_abandoned(pages), *(page for page in pages if not page.partial)]:
        if held - freed <= limit_bytes and not page.partial:
            break
        page.path.unlink(missing_ok=True)
        freed += page.nbytes
    return freed


def clear_pages(folder: Path, model: str | None = None) -> int:
    """Remove all pages, or those of one model (its digest). Returns the bytes removed."""
    mark = None if model is None else model_mark(model)
    freed = 0
    for page in list_pages(folder):
        if mark in (None, page.model):
            page.path.unlink(missing_ok=True)
            freed += page.nbytes
    return freed
