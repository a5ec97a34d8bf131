"""A model source as names and files: relative POSIX names, each standing for one real file.

A folder on disk, a single weights file and the blobs of a stored package all become the same mapping, so the
rest of this room has one way to look at them. Names that a file mentions (an index, a manifest) are only ever
looked up in the mapping; none is joined to a path and opened. Links are followed, because a hub cache is a
farm of links and the folder is the user's own; what is at their end must be a regular file, checked on the
opened descriptor.
"""

import io
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

from modelkit.errors import SourceError, UnsupportedSource
from modelkit.python_faults import unread
from modelkit.source.hub_cache import newest_snapshot
from modelkit.source.sniff import HEAD_BYTES, is_cut, refuse_other_weights, weights_kind
from runtime.quoting import shown

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

Files: TypeAlias = Mapping[str, Path]

MAX_FILES = 10_000
MAX_PART_BYTES = 255
_MODULE_FILE = "config.json"
MODULE_WEIGHTS = "model.safetensors"
"""Of a Dense module."""
TOOLS_TEMPLATE = "additional_chat_templates/tool_use.jinja"
"""For conversations with tools, where chat_template.jinja is for those without."""

_MODULE = re.compile(r"\d{1,2}_(Pooling|Normalize|Dense)", re.ASCII)
_SHARD = re.compile(r"-(\d{1,9})-of-(\d{1,9})\.safetensors", re.ASCII)


def is_safe_relative(name: str) -> bool:
    """Is `name` a plain relative POSIX path: printable, no `..` or empty part, no backslash, no drive?

    A part may have at most 255 bytes.
    """
    parts = name.split("/")
    drive = parts[0][1:2] == ":"
    return name.isprintable() and "\\" not in name and not drive and not any(map(_unsafe_part, parts))


def _unsafe_part(part: str) -> bool:
    return part in ("", ".", "..") or len(part.encode()) > MAX_PART_BYTES


def is_own(name: str) -> bool:
    """Is a file of this name the model's own? Those at its top are, those of a module that
    sentence-transformers puts behind it (`1_Pooling/config.json`, `2_Dense/model.safetensors`), and the chat
    template for tools that transformers puts beside the default one; what lies deeper belongs to other trees.
    """
    folder, slash, file = name.rpartition("/")
    return not slash or file in _own_files(folder)


def _own_files(folder: str) -> tuple[str, ...]:
    """What a folder of this name may have of a model's own; () for any other folder."""
    own, _, template = TOOLS_TEMPLATE.partition("/")
    if folder == own:
        return (template,)
    module = _MODULE.fullmatch(folder)
    if module is None:
        return ()
    return (_MODULE_FILE, MODULE_WEIGHTS) if module[1] == "Dense" else (_MODULE_FILE,)


def subtree(files: Files, folder: str) -> Files:
    """The files below `folder` (such as `draft`), under the names they have inside it."""
    prefix = f"{folder}/"
    return {name.removeprefix(prefix): path for name, path in files.items() if name.startswith(prefix)}


def open_regular(path: Path, label: str) -> BinaryIO:
    """Open `path` for reading; it must be, or lead to, a regular file. Never blocks on a FIFO or a device.

    Reading, too, raises SourceError naming `label` where the system fails half way.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise SourceError(f"cannot read {label}: {unread(error)}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise SourceError(f"{label} is not a regular file")
    return io.BufferedReader(_Checked(descriptor, label))


class _Checked(io.FileIO):
    """A file whose failures are SourceErrors. Some that call themselves regular (in /proc) fail, or have
    nothing to give, when they are read.
    """

    def __init__(self, descriptor: int, label: str) -> None:
        super().__init__(descriptor)
        self._label = label

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        try:
            count: int | None = super().readinto(buffer)
        except OSError as error:
            raise SourceError(f"cannot read {self._label}: {unread(error)}") from error
        if count is None:
            raise SourceError(f"cannot read {self._label}: nothing can be read from it now")
        return count

    def readall(self) -> bytes:
        found, buffer = bytearray(), memoryview(bytearray(1 << 16))
        while count := self.readinto(buffer):
            found += buffer[:count]
        return bytes(found)


def read_directory(folder: Path, unusable: dict[str, SourceError] | None = None) -> Files:
    """The files at the top of `folder`, in name order, and those below that belong to them (`is_own`). Other
    folders inside it are not looked at.

    Raises SourceError when `folder` is not a readable folder, holds more than 10,000 entries, a link whose
    target is gone, or something that is neither file nor folder. Where `unusable` is given, errors of the
    last two kinds are put there by the name of the entry: for folders of which a part is wanted.
    """
    snapshot = newest_snapshot(folder)
    if snapshot is not None:
        raise SourceError(
            f"{folder} holds every version of a model that huggingface_hub downloaded; one of them is needed",
            hint=f"Name the newest: {snapshot}",
        )
    try:
        with os.scandir(folder) as entries:
            found = _bounded(entries, folder)
        files = {entry.name: folder / entry.name for entry in found if _is_wanted(entry, folder, unusable)}
        return files | {
            f"{entry.name}/{name}": folder / entry.name / name
            for entry in found
            for name in _own_files(entry.name)
            if (folder / entry.name / name).is_file()
        }
    except (OSError, ValueError) as error:
        raise SourceError(f"cannot read the folder {folder}: {unread(error)}") from error


def _bounded(entries: Iterable[os.DirEntry[str]], folder: Path) -> list[os.DirEntry[str]]:
    found: list[os.DirEntry[str]] = []
    for entry in entries:
        if len(found) == MAX_FILES:
            raise SourceError(f"{folder} holds more than {MAX_FILES:,} entries; that is not a model folder")
        found.append(entry)
    return sorted(found, key=lambda entry: entry.name)


def _is_wanted(entry: os.DirEntry[str], folder: Path, unusable: dict[str, SourceError] | None) -> bool:
    try:
        return _is_file(entry, folder)
    except SourceError as error:
        if unusable is None:
            raise
        unusable[entry.name] = error
        return False


def _is_file(entry: os.DirEntry[str], folder: Path) -> bool:
    """True for a regular file (or a link to one), False for a folder; anything else is refused."""
    try:
        if entry.is_file() or entry.is_dir():
            return entry.is_file()
    except OSError as error:  # a link to itself
        raise SourceError(f"cannot read {folder}/{shown(entry.name)}: {unread(error)}") from error
    if entry.is_symlink() and not os.path.exists(entry.path):
        raise SourceError(
            f"{folder}/{shown(entry.name)} links to {shown(os.readlink(entry.path))}, which does not exist",
            hint="If this is a hub cache, download the model again.",
        )
    raise SourceError(f"{folder}/{shown(entry.name)} is neither a file nor a folder")


def read_single_file(path: Path) -> Files:
    """The source that one file of weights makes: it as `model.safetensors`, and what lies beside it.

    Other weights in the same folder stay out. Raises UnsupportedSource when `path` is no `.safetensors` file
    or is one shard of several, SourceError when there is no config.json beside it.
    """
    if path.suffix != ".safetensors":
        if not is_cut(path.name):
            with open_regular(path, str(path)) as file:
                refuse_other_weights(file.read(HEAD_BYTES), str(path))
        kind, hint = weights_kind(path.name) or (
            "something else",
            "FROM takes a folder, or one .safetensors or .gguf file.",
        )
        raise UnsupportedSource(f"{path} is {kind}, no .safetensors file", hint=hint)
    shard = _SHARD.search(path.name)
    if shard and int(shard[2]) > 1:
        raise UnsupportedSource(
            f"{path.name} is one shard of {int(shard[2])}",
            hint=f"Name the folder instead: FROM {path.parent}",
        )
    with open_regular(path, str(path)):
        beside = read_directory(path.parent)
    if "config.json" not in beside:
        raise SourceError(
            f"{path.name} holds only weights, and there is no config.json beside it",
            hint="Put config.json and tokenizer.json of the same model into its folder.",
        )
    kept = {name: file for name, file in beside.items() if "/" in name or ".safetensors" not in name}
    return {**kept, "model.safetensors": path}
