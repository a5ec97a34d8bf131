"""Paths of files inside a package. They come from manifests anybody may have written and become real paths on
export.

A safe path is relative, uses `/`, has no empty, `.` or `..` part, nothing unprintable, nothing that another
system reads as a drive or a stream, and is spelled in Unicode's composed form. A tree of them has no two that
differ in case only and no file that is also a folder, so it can be laid out on any file system.
"""

from collections.abc import Iterable

from modelkit.errors import StoreError
from modelkit.file_names import path_fault
from runtime.quoting import quoted


def check_path(path: object) -> str:
    """`path` itself if it is safe; a StoreError that says why not otherwise."""
    if path is None:
        raise StoreError("a layer of the package has no file path")
    if not isinstance(path, str):
        raise StoreError(f"the file path {quoted(path)} is not text, as a package's has to be")
    why = path_fault(path)
    if why:
        raise StoreError(f"the file path {quoted(path)} is not one that a package can have: {why}")
    return path


def check_tree(paths: Iterable[str]) -> None:
    """Refuse a set of safe paths that cannot stand side by side in one folder."""
    files: dict[str, str] = {}
    for path in paths:
        folded = path.casefold()
        if folded in files:
            raise StoreError(
                f"two files of one package have the same path: {quoted(files[folded])} and {quoted(path)}"
            )
        files[folded] = path
    for folded, path in files.items():
        parts = folded.split("/")
        for depth in range(1, len(parts)):
            if "/".join(parts[:depth]) in files:
                raise StoreError(f"{quoted(path)} lies inside a path that is itself a file of the package")
