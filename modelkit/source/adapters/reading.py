"""A path -> the adapter that is there. What else an adapter may be is refused with what to do."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from modelkit.arguments import absolute
from modelkit.errors import SourceError, UnsupportedSource
from modelkit.source.adapters import mlx, peft
from modelkit.source.adapters.value import AdapterSource, other_types, refuse
from modelkit.source.gguf.folder import is_gguf, is_gguf_file
from modelkit.source.sniff import weights_kind
from modelkit.source.tree import Files, read_directory
from runtime.quoting import shown

_PICKLES = "Save it again as safetensors: `model.save_pretrained(folder)` of a current peft does so."
_WRITTEN = ("adapter_model.bin", "adapters.npz", "adapter_model.pt", "adapters.npy", "adapter_model.pth")
_PACKAGED = "adapter.safetensors"
_NOT_NAMED = re.compile(r"[^A-Za-z0-9._-]+")
MAX_NAME = 64
_SHOWN = 5


def read_adapter(path: Path, config: Mapping[str, Any] | None = None) -> AdapterSource:
    """The adapter at `path`: a folder of PEFT's or mlx-lm's, or the weights file in one; a GGUF file, for a
    base with that config.

    Raises SourceError where there is none, UnsupportedSource for another form, MalformedFile.
    """
    if not path.is_dir():
        return _of_file(path, config)
    files, inside = read_directory(path), sorted(one.parent.name for one in path.glob(f"*/{peft.CONFIG}"))
    names = ", ".join(shown(name) for name in inside[:_SHOWN])
    if inside and peft.CONFIG not in files:  # PEFT's folder of several adapters, by their names
        raise SourceError(
            f"{path} holds no adapter itself, but folders of adapters: {names}",
            hint=f"Name one of them: {path / inside[0]}",
        )
    found = read_folder(files, str(path), config)
    return replace(found, notes=(*found.notes, *_others(inside)))


def _others(inside: Sequence[str]) -> tuple[str, ...]:
    """A note on more adapters in folders of their own, where PEFT saves all but its `default`. Trainers leave
    earlier states of the same one there, too.
    """
    more = [shown(name) for name in inside if not name.startswith("checkpoint-")]
    if not more:
        return ()
    listed = ", ".join(more[:_SHOWN]) + (", ..." if len(more) > _SHOWN else "")
    return (
        f"there are more adapters in its folder, each of which takes an ADAPTER line of its own: {listed}",
    )


def read_folder(files: Files, label: str, config: Mapping[str, Any] | None = None) -> AdapterSource:
    """The same for files that lie together."""
    models = list(filter(is_gguf, files))
    found = [reader for name, reader in _READERS.items() if name in files]
    if peft.CONFIG not in files and found:
        raise SourceError(f"{label} has no {peft.CONFIG}", hint="Copy it from where the adapter came from.")
    if len(found) == 1:
        read = found[0](files, label)
        refuse(label, other_types(read.replacing))
        return replace(read, beside=files)
    if len(models) == 1 and not found:
        return replace(_of_gguf(files[models[0]], config, f"{label}/{models[0]}"), beside=files)
    if found:
        raise SourceError(
            f"{label} holds two adapters, {' and '.join(_READERS)}", hint="Put each into a folder of its own."
        )
    raise _refused(files, label)


_READERS = {peft.WEIGHTS: peft.read_peft, mlx.WEIGHTS: mlx.read_mlx}


def adapter_name(path: Path) -> str:
    """What an adapter at this path is called: its folder's or file's name, of letters, digits and `._-`."""
    place = Path(os.path.normpath(absolute(path)))  # `..` has a name as well
    name = place.name if path.is_dir() else place.stem
    if not path.is_dir() and path.name in _READERS:
        name = place.parent.name
    return safe_name(name, str(path))


def safe_name(text: str, label: str) -> str:
    """A name made of a text. Raises SourceError where nothing is left of it."""
    safe = _NOT_NAMED.sub("-", text).strip(".-")[:MAX_NAME]
    if not safe:
        raise SourceError(
            f"{shown(label)} has no name that an adapter could have",
            hint="Give the folder a name of letters and digits.",
        )
    return safe


def _of_gguf(path: Path, config: Mapping[str, Any] | None, label: str) -> AdapterSource:
    from modelkit.source.adapters.gguf import read_gguf_adapter  # and the table of llama.cpp's architectures

    return read_gguf_adapter(path, config, label)


def _of_file(path: Path, config: Mapping[str, Any] | None) -> AdapterSource:
    if not path.exists():
        raise SourceError(f"{path} is not there", hint="ADAPTER takes the folder that training saved.")
    if is_gguf_file(path):
        return _of_gguf(path, config, str(path))
    if path.name in _READERS:
        return read_folder(read_directory(path.parent), str(path.parent))
    raise _refused({path.name: path}, str(path))


def _refused(files: Files, label: str) -> SourceError:
    """What to say of a path where no adapter is."""
    pickled = next((name for name in _WRITTEN if name in files), None)
    if _PACKAGED in files:
        return UnsupportedSource(
            f"{label} is an adapter as packages of modelkit hold it, which ADAPTER does not take",
            hint="FROM the package brings it along. For ADAPTER, write it in PEFT's form:\n"
            "modelkit export NAME DIR --adapter ADAPTER",
        )
    kind = next((known for name in (pickled, *files) if name and (known := weights_kind(name))), None)
    if pickled is not None:
        return UnsupportedSource(f"{label} holds its adapter as `{pickled}` only", hint=_PICKLES)
    if "model.safetensors" in files or "config.json" in files:
        return SourceError(f"{label} is a model, not an adapter", hint="FROM and DRAFT take models.")
    if kind is not None:
        return UnsupportedSource(f"{label} holds {kind[0]}, which is not read as an adapter", hint=_PICKLES)
    return SourceError(
        f"{label} holds no adapter: no {peft.WEIGHTS} (PEFT), no {mlx.WEIGHTS} (mlx-lm), no single GGUF file",
        hint="ADAPTER takes the folder that training saved.",
    )
