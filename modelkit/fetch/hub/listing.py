"""What a repository has at one commit, as its server says it. Nothing of that is believed unchecked."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from modelkit.errors import FetchError
from modelkit.source.tree import is_safe_relative
from modelkit.store.digest import Digest
from modelkit.store.manifest import BLOB_LIMIT_BYTES
from runtime.quoting import quoted, shown
from runtime.records import dataclass

MAX_FILES = 100_000
MAX_BYTES = 32 << 20
"""Of an answer: 100,000 files take some 25 MB."""
_MOST_PARTS = 10 * MAX_FILES  # of a file six; parsed, each may take twenty times its text

_HEX = re.compile(r"[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Listed:
    """One file."""

    name: str
    """Relative to the repository, with `/`; plain (`is_safe_relative`)."""
    size_bytes: int
    sha256: str | None
    """64 hexadecimal digits; None for a file that git itself holds."""
    git_sha1: str | None
    """Git's own digest; of a file with `sha256` it is that of the pointer."""

    @property
    def blob_name(self) -> str:
        """What huggingface_hub calls it in its cache."""
        return self.sha256 or self.git_sha1 or ""

    @property
    def digest(self) -> Digest | None:
        return Digest(self.sha256) if self.sha256 else None


@dataclass(frozen=True, slots=True)
class Listing:
    """A repository at one commit."""

    repository: str
    """As the server spells it."""
    commit: str
    """40 hexadecimal digits."""
    files: Mapping[str, Listed]


def parse(answer: bytes) -> Listing:
    """What a server answered, at most MAX_BYTES. Raises FetchError."""
    if answer.count(b",") > _MOST_PARTS:
        raise _wrong(f"lists more than {MAX_FILES:,} files")
    try:
        said = json.loads(answer)
        return checked(said["id"], said["sha"], map(_listed, said.get("siblings") or ()))
    except (AttributeError, TypeError, ValueError, LookupError, RecursionError) as error:
        raise _wrong("has a form that is not known") from error


def too_long() -> FetchError:
    """For an answer of more than MAX_BYTES."""
    return _wrong(f"is longer than {MAX_BYTES >> 20} MiB")


def _listed(sibling: Any) -> Listed:
    stored = sibling.get("lfs")
    sha256 = stored["sha256"] if stored else None
    size_bytes = stored["size"] if stored else sibling.get("size")
    return Listed(sibling["rfilename"], size_bytes, sha256, sibling.get("blobId"))


def checked(repository: object, commit: object, files: Iterable[Listed]) -> Listing:
    """A listing, where all in it is of its kind. Raises FetchError.

    Files whose names are odd without leading elsewhere (a screenshot of macOS has U+202F in its name, and
    Windows has left backslashes) are not in it: nothing that a model needs is called so.
    """
    if not isinstance(repository, str) or not re.fullmatch(
        r"[\w.-]{1,96}/[\w.-]{1,96}", repository, re.ASCII
    ):
        raise _wrong(f"calls the model {quoted(repository)}")
    if not is_hex(commit, 40):
        raise _wrong(f"gives {quoted(commit)} as the commit")
    found: dict[str, Listed] = {}
    for file in files:
        _check(file)
        if not is_safe_relative(file.name):
            continue
        if file.name in found:
            raise _wrong(f"lists {quoted(file.name)} twice")
        found[file.name] = file
        if len(found) > MAX_FILES:
            raise _wrong(f"lists more than {MAX_FILES:,} files")
    return Listing(repository, str(commit), found)


def is_hex(value: object, digits: int) -> bool:
    return isinstance(value, str) and len(value) == digits and _HEX.fullmatch(value) is not None


def _check(file: Listed) -> None:
    if not isinstance(file.name, str) or {"", ".", ".."} & {*file.name.split("/")}:
        raise _wrong(f"lists {quoted(file.name)}, which is not a name of a file")
    if type(file.size_bytes) is not int or not 0 <= file.size_bytes <= BLOB_LIMIT_BYTES:
        raise _wrong(f"gives {quoted(file.size_bytes)} as the size of {shown(file.name)}")
    if not is_hex(file.sha256, 64) and (file.sha256 is not None or not is_hex(file.git_sha1, 40)):
        raise _wrong(f"gives no sound digest of {shown(file.name)}")


def _wrong(what: str) -> FetchError:
    return FetchError(
        f"the server's list of files cannot be used: it {what}",
        hint="Nothing was fetched. Is HF_ENDPOINT the address of a hub?",
    )
