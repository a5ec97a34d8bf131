"""Checking that a store is what it claims: packages complete, every blob the bytes its name promises."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from modelkit.errors import StoreError
from modelkit.progress import Advance
from modelkit.store.digest import Digest
from modelkit.store.layout import Layout
from modelkit.store.package import BrokenPackage, Package
from modelkit.store.slices import damaged_slices
from modelkit.store.soundness import Soundness
from runtime.records import dataclass

DAMAGED_SLICE = "the numbers are not those that came: `modelkit prune`, and the next start brings it again"
DAMAGED = "the bytes are not those its name promises: create the package again, which writes them anew"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong."""

    subject: str
    """A package's name or a file's path."""
    what: str
    """A sentence."""
    names: tuple[str, ...] = ()
    """The packages that suffer from it."""


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was looked at, and what was wrong."""

    problems: tuple[Problem, ...]
    packages: int
    """How many."""
    blobs: int
    """How many."""
    read_bytes: int
    """0 where no data was asked for."""


def verify_packages(
    layout: Layout,
    packages: Iterable[Package | BrokenPackage],
    digests: list[Digest],
    progress: Advance | None,
) -> VerifyReport:
    """Check the packages, and re-hash `digests`. What is found is remembered: what is
    damaged is written anew by the next create.
    """
    packages = list(packages)
    users = _users(packages)
    problems = [
        Problem(str(p.name), p.problem, (str(p.name),)) for p in packages if isinstance(p, BrokenPackage)
    ]
    read_bytes, soundness = 0, Soundness(layout)
    for digest in digests:
        size_bytes, what = _check(layout, soundness, digest, progress)
        read_bytes += size_bytes
        if what:
            problems.append(Problem(str(layout.blob_path(digest)), what, tuple(users.get(digest, ()))))
    soundness.save()
    return VerifyReport(tuple(problems), len(packages), len(users.keys() | set(digests)), read_bytes)


def verify_slices(layout: Layout, report: VerifyReport, progress: Advance | None) -> VerifyReport:
    """The report, with what is wrong with slices of weights."""
    read_bytes = report.read_bytes

    def count(done: int) -> None:
        nonlocal read_bytes
        read_bytes += done
        if progress:
            progress(done)

    problems = [Problem(str(path), DAMAGED_SLICE) for path in damaged_slices(layout, count)]
    return replace(report, problems=(*report.problems, *problems), read_bytes=read_bytes)


def strangers(layout: Layout) -> Iterator[Problem]:
    """Files among the blobs that are not blobs."""
    for digest, path in layout.stored():
        if digest is None:
            yield Problem(str(path), "this is not named like a blob, so modelkit did not put it there")
        elif path.is_symlink() or not path.is_file():
            yield Problem(str(path), "a blob must be a plain file; this is none, and it is not used")


def blobs_of(package: Package | BrokenPackage) -> set[Digest]:
    if isinstance(package, BrokenPackage):
        return {package.digest} if package.digest else set()
    return {package.digest, *(blob.digest for blob in package.manifest.blobs)}


def _users(packages: list[Package | BrokenPackage]) -> dict[Digest, list[str]]:
    users: dict[Digest, list[str]] = {}
    for package in packages:
        for digest in sorted(blobs_of(package)):
            users.setdefault(digest, []).append(str(package.name))
    return users


def _check(
    layout: Layout, soundness: Soundness, digest: Digest, progress: Advance | None
) -> tuple[int, str | None]:
    """Hash one blob. Returns the bytes read, and what is wrong, if anything."""
    if layout.blob_size(digest) is None:
        return 0, None  # a package that needs it is reported as broken already
    try:
        size_bytes, sound = soundness.read(digest, progress)
    except StoreError as error:
        return 0, error.message
    return size_bytes, None if sound else DAMAGED
