"""Files that other programs have on this machine, looked for before one is fetched.

    Ollama        blobs/sha256-<hex>                     called by its digest
    LM Studio     <folder>/<owner>/<repository>/<file>   under the hub's own names
    llama.cpp     <owner>_<repository>_<file>            as `-hf` of its older versions kept them

A name and a size say nothing about bytes: what is not called by its digest is hashed before it is taken.
"""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from modelkit.errors import SourceError
from modelkit.fetch.access import Listener
from modelkit.fetch.hub.listing import Listed
from modelkit.progress import bar
from modelkit.settings.places import llama_cpp_folders, lm_studio_folders, ollama_folders
from modelkit.source.tree import open_regular
from runtime.records import dataclass

LEAST_BYTES = 1 << 20
_CHUNK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Folders:
    """Where to look."""

    ollama: tuple[Path, ...]
    lm_studio: tuple[Path, ...]
    llama_cpp: tuple[Path, ...]

    @classmethod
    def from_environment(cls) -> "Folders":
        return cls(ollama_folders(), lm_studio_folders(), llama_cpp_folders())


def find_beside(
    repository: str, files: Iterable[Listed], folders: Folders, listener: Listener
) -> dict[str, Path]:
    """Those of the files that are here, by name."""
    found: dict[str, Path] = {}
    for file in files:
        if file.sha256 is None or file.size_bytes < LEAST_BYTES:
            continue
        for path, check in _candidates(repository, file, folders):
            if _has(path, file.size_bytes) and (not check or _is(path, file, listener)):
                found[file.name] = path
                break
    return found


def _candidates(repository: str, file: Listed, folders: Folders) -> Iterator[tuple[Path, bool]]:
    """Where a file may be, and whether it has to be hashed."""
    for folder in folders.ollama:
        yield folder / "blobs" / f"sha256-{file.sha256}", False
    for folder in folders.lm_studio:
        yield folder / repository / file.name, True
    for folder in folders.llama_cpp:
        yield folder / f"{repository}/{file.name}".replace("/", "_"), True


def _has(path: Path, size_bytes: int) -> bool:
    try:
        return path.is_file() and path.stat().st_size == size_bytes
    except OSError:
        return False


def _is(path: Path, file: Listed, listener: Listener) -> bool:
    """Are the bytes those that are wanted?"""
    state = hashlib.sha256()
    try:
        with bar(listener, f"check {path.name}", file.size_bytes), open_regular(path, str(path)) as opened:
            while piece := opened.read(_CHUNK_BYTES):
                state.update(piece)
                listener.advance(len(piece))
    except SourceError:
        return False
    return state.hexdigest() == file.sha256
