"""The prefix store's second floor: pages in a folder, which outlive the process.

A page's file is found by a digest of all keys before its stop, so a lookup reads one folder listing; what is
read then are the pages that lead to the deepest stop it knows. Files are written on a thread of their own,
from arrays that are evaluated already, and read on another; the prefix store never waits for either. Whatever
cannot be read, or does not fit the layout, is removed and computed again. Several processes may share the
folder: files appear whole, and one that another process has removed counts as not there. Where the folder
cannot be looked into, or the process has no file left to open, nothing is known and nothing kept at that
moment: no row fails for it.

Invariant: `namespace` names all that a page's meaning depends on beside its keys: model, layout, dtypes, and
what computed it.
"""

import errno
import os
import queue
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.cache.page_files import BadPage, Tensor, file_bytes, read_page, write_page
from runtime.cache.page_folder import (
    PageName,
    PrefixFolder,
    key_digests,
    list_names,
    model_mark,
    page_name,
    trim_pages,
)
from runtime.cache.page_tensors import NAMES, PageTensors, typed
from runtime.cache.pages import Page
from runtime.cache.prefix import PageNode, PrefixStore
from runtime.records import dataclass

# A slow disk must not make pages pile up in memory: beyond this, they are not written.
QUEUED_BYTES = 1 << 29
REST_S = 60.0
"""After the disk has failed nothing is written for so long."""
_LOOK_S = 0.002
OURS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}  # what keeps us from opening any file, whatever is in it


@dataclass(frozen=True, slots=True)
class Stored:
    """A page as the disk gave it, or is to keep it."""

    start: int
    stop: int
    """The position after its last token."""
    page: Page


@dataclass(frozen=True, slots=True)
class _Job:
    """A page to write; before and kept as in PageFacts."""

    path: Path
    tensors: dict[str, Tensor]
    before: str
    kept: str

    @property
    def nbytes(self) -> int:
        return file_bytes(self.path, self.tensors, self.before, self.kept)


@dataclass(slots=True, eq=False)
class Reading:
    """Pages of a sequence that are found on the disk, and come as they are read."""

    keys: Sequence[Hashable]
    files: list[PageName]
    when_over: Callable[[], object]
    """Called on the thread that reads, when no more will come."""
    pages: list[Stored] = field(default_factory=list[Stored])
    """As many of them as are sound, from the first on."""
    wanted: bool = True
    """Does anybody wait for them? If not, no more of them are read."""
    over: bool = False
    """Will no more come?"""

    def arriving(self) -> Iterator[Stored]:
        """Each of them once it has come, which is waited for."""
        for place in range(len(self.files)):
            while len(self.pages) <= place:
                if self.over and len(self.pages) <= place:  # in this order: the last came before it was over
                    return
                time.sleep(_LOOK_S)
            yield self.pages[place]


class DiskPages:
    """Pages of layers laid out as `layout`, whose activations are `dtype`; `kept_format` as in KVRows.

    elsewhere: layers of other machines, of which a page has the shapes alone (`runtime.cache.remote`).
    """

    def __init__(
        self,
        folder: PrefixFolder,
        layout: Sequence[LayerSpec],
        dtype: mx.Dtype,
        kept_format: str | None = None,
        elsewhere: Collection[int] = (),
    ) -> None:
        self._folder = folder
        self._mark = model_mark(folder.model)
        apart = (folder.part, sorted(elsewhere)) if folder.part else ()
        # What a run without kernels has left would be other bits than those that a prompt has here.
        self._namespace = repr((folder.model, tuple(layout), str(dtype), kept_format, folder.numbers, *apart))
        self._kept = kept_format or NAMES[dtype].lower()
        self._tensors = PageTensors(layout, dtype, kept_format, elsewhere)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._queued: dict[Path, int] = {}
        self._lock = threading.Lock()
        self._blind = self._failing = False
        self._rests_until_s = 0.0
        folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._writer = threading.Thread(target=self._write, name="modelkit-pages", daemon=True)
        self._writer.start()
        self._wanted: queue.SimpleQueue[Reading | None] = queue.SimpleQueue()
        self._reader: threading.Thread | None = None
        self._closing = False

    def find(
        self, keys: Sequence[Hashable], *, above: int, limit_bytes: int, when_over: Callable[[], object]
    ) -> Reading | None:
        """The pages that lead from `above` to the deepest stop in (above, len(keys)), in order, to be read;
        None where there are none.

        limit_bytes: of all of them together. when_over: as in Reading.
        """
        files = self._leading(keys, above, limit_bytes)
        return Reading(keys, files, when_over) if files else None

    def begin(self, reading: Reading) -> None:
        """Read these pages, once those that were asked for before have been."""
        if self._reader is None:
            self._reader = threading.Thread(target=self._fetch, name="modelkit-pages-read", daemon=True)
            self._reader.start()
        self._wanted.put(reading)

    def _leading(self, keys: Sequence[Hashable], above: int, limit_bytes: int) -> list[PageName]:
        """The files of what `find` is asked for."""
        files = {(file.stop, file.key): file for file in self._files() or () if file.stop < len(keys)}
        if all(stop <= above for stop, _ in files):
            return []
        digests = key_digests(self._namespace, keys, sorted({stop for stop, _ in files}))
        ours = {stop: files[stop, key] for stop, key in digests if (stop, key) in files}
        for stop in sorted((stop for stop in ours if stop > above), reverse=True):
            chain = _chain(ours, stop, above)
            sizes = [file.nbytes() for file in chain]
            if chain and min(sizes) >= 0 and sum(sizes) <= limit_bytes:
                return chain
        return []

    def look_up(self, keys: Sequence[Hashable], ranges: Sequence[tuple[int, int]]) -> Reading:
        """As many of the pages of these [start, stop), one behind the other, as are here, from the first, to
        be read.
        """
        files = {(file.start, file.stop, file.key): file for file in self._files() or ()}
        digests = dict(key_digests(self._namespace, keys, [stop for _, stop in ranges]))
        chain = [files.get((start, stop, digests[stop])) for start, stop in ranges]
        return Reading(keys, [*_there(chain)], lambda: None)

    def save(self, keys: Sequence[Hashable], pages: Iterable[Stored]) -> None:
        """Have pages of this sequence written, soon, but for those that are. Their arrays are evaluated."""
        wanted = {stored.stop: stored for stored in pages}
        files = self._files()
        if files is None:
            return
        there = {(file.stop, file.key): file for file in files}
        starts = {stored.start for stored in wanted.values() if stored.start}
        digests = dict(key_digests(self._namespace, keys, sorted(starts | {*wanted})))
        for stop, stored in sorted(wanted.items()):
            path = self._folder.path / page_name(self._mark, stored.start, stop, digests[stop])
            tensors = self._tensors.write(stored.page, keys[stored.start : stop])
            job = _Job(path, tensors, digests.get(stored.start, ""), self._kept)
            # One that is smaller was cut from a longer page, and lacks folds.
            before = there.get((stop, digests[stop]))
            if before is None or before.nbytes() < job.nbytes:
                self._submit(job)

    def close(self) -> None:
        """Finish writing. What is being read is not waited for beyond the present page."""
        self._jobs.put(None)
        self._writer.join()
        self._closing = True
        if self._reader is not None:
            self._wanted.put(None)
            self._reader.join()

    def _files(self) -> list[PageName] | None:
        """Those that are ours; None where the folder cannot be looked into."""
        try:
            names = list_names(self._folder.path, self._mark)
        except OSError as error:
            if not self._blind:
                reason = error.strerror or str(error)
                _warn("prefixes in %s cannot be found: %s", self._folder.path, reason)
            self._blind = True
            return None
        self._blind = False
        return names

    def _submit(self, job: "_Job") -> None:
        """A page that is alone in the queue may be of any size, or long prompts would never be kept."""
        size, limit = job.nbytes, self._folder.limit_bytes
        if size > limit:  # it would drive out all others, and then itself
            _warn("a prefix of %s bytes is not written: the limit on disk is %s", f"{size:,}", f"{limit:,}")
            return
        with self._lock:
            full = self._queued and sum(self._queued.values()) + size > QUEUED_BYTES
            if self._queued.get(job.path, -1) >= size or full:
                return
            self._queued[job.path] = size
        self._jobs.put(job)

    def _fetch(self) -> None:
        """The reader's thread."""
        while (reading := self._wanted.get()) is not None:
            try:
                pages = self._read(reading.files, reading.keys)
                for page in pages:
                    reading.pages.append(page)
                    if self._closing or not reading.wanted:
                        break
            except Exception as error:  # noqa: BLE001 -- a row waits for it, and can do without
                _warn("prefixes in %s cannot be read: %s", self._folder.path, error, exc_info=error)
            reading.over = True
            reading.when_over()
            del reading  # its pages, while the next is waited for

    def _write(self) -> None:
        """The writer's thread."""
        with suppress(OSError):
            trim_pages(self._folder.path, self._folder.limit_bytes)
        while (job := self._jobs.get()) is not None:
            if time.monotonic() >= self._rests_until_s:
                self._try(job)
            with self._lock:
                self._queued.pop(job.path, None)
            del job  # its page, which the store may have dropped, while the next is waited for

    def _try(self, job: "_Job") -> None:
        """A disk that fails is tried again later: it may be full for a moment, or away. What comes in between
        is not written, or pages would pile up in memory.
        """
        try:
            self._put(job)
            self._failing = False
        except IsADirectoryError:
            _warn("%s is not written: a folder has its name", job.path)
        except Exception as error:  # noqa: BLE001 -- the next page may be written
            if isinstance(error, OSError) and error.errno in OURS:
                return
            if not self._failing:
                reason = getattr(error, "strerror", None) or str(error)
                unforeseen = None if isinstance(error, OSError) else error
                message = "prefixes are not written to %s for now: %s"
                _warn(message, self._folder.path, reason, exc_info=unforeseen)
            self._failing, self._rests_until_s = True, time.monotonic() + REST_S

    def _put(self, job: "_Job") -> None:
        try:
            write_page(job.path, job.tensors, job.before, job.kept)
        except FileNotFoundError:  # somebody cleared the folder, with what was being written, or removed it
            self._folder.path.mkdir(mode=0o700, exist_ok=True)
        trim_pages(self._folder.path, self._folder.limit_bytes)

    def _read(self, chain: list[PageName], keys: Sequence[Hashable]) -> Iterator[Stored]:
        """As many of these pages as are sound, from the first on."""
        read: list[PageName] = []
        try:
            for file in chain:
                page = self._page(file, keys[file.start : file.stop])
                read.append(file)
                yield Stored(file.start, file.stop, page)
        except FileNotFoundError:  # another process has just removed it
            pass
        except (OSError, BadPage) as error:
            if isinstance(error, OSError) and error.errno in OURS:
                return
            file = chain[len(read)]
            _warn("%s is removed: %s", file.path, error)
            with suppress(OSError):
                file.path.unlink(missing_ok=True)
        finally:
            self._touch(read)

    def _touch(self, chain: list[PageName]) -> None:
        """These were used now."""
        now_ns = time.time_ns()
        for place, file in enumerate(reversed(chain)):
            # What leads to a leaf is younger, and is not dropped before it. The file system's own clock has
            # ticks of milliseconds, in which all of them would be equally old.
            used_ns = now_ns + place * 1000
            with suppress(OSError):
                os.utime(file.path, ns=(used_ns, used_ns))

    def _page(self, file: PageName, keys: Sequence[Hashable]) -> Page:
        return self._tensors.read(read_page(file.path), file.start, file.stop, keys)


def path_to(node: PageNode, length: int) -> list[Stored]:
    """The pages that lead to this node, as far as they end at `length` or before."""
    return [Stored(part.start, part.stop, part.page) for part in node.path if part.stop <= length]


def insert_pages(store: PrefixStore, keys: Sequence[Hashable], pages: Iterable[Stored]) -> None:
    """Give the store pages of this sequence as they were read, evaluated before the next step
    (`runtime.cache.sharing`).
    """
    for stored in pages:
        store.insert(keys[: stored.stop], stored.start, typed(stored.page))
    mx.eval(store.changed())


def _there(files: Iterable[PageName | None]) -> Iterator[PageName]:
    """Those before the first that is not there."""
    for file in files:
        if file is None or file.nbytes() < 0:
            return
        yield file


def _chain(files: dict[int, PageName], stop: int, above: int) -> list[PageName]:
    """Files that follow each other from `above` or before up to `stop`; [] when one is missing."""
    chain = [files[stop]]
    while chain[-1].start > above:
        before = files.get(chain[-1].start)
        if before is None or before.start >= before.stop:
            return []
        chain.append(before)
    return chain[::-1]


def _warn(message: str, *values: object, exc_info: Exception | None = None) -> None:
    import logging  # late: most processes have nothing to warn of, and it takes 2 ms of their start

    logging.getLogger(__name__).warning(message, *values, exc_info=exc_info)
