"""Models that other programs keep as plain files under the hub's names.

    LM Studio    <folder>/<owner>/<repository>/<file>
    llama.cpp    <folder>/<owner>_<repository>_<file>, as `-hf` of its older versions did; newer ones share
                 huggingface_hub's cache

Anybody may change such files, so they are taken as any folder is: read, and shared only block by block.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from modelkit.address import HubAddress
from modelkit.errors import ModelkitError, SourceError
from modelkit.fetch.hub.choose import choose_model
from modelkit.fetch.hub.listing import Listed, Listing
from modelkit.fetch.local import Local
from modelkit.source.gguf.folder import is_gguf
from modelkit.source.shards import INDEX, read_index, weight_names
from modelkit.source.tree import Files, read_directory


def find_in_lm_studio(owner: str, repository: str, folders: Iterable[Path]) -> Local | None:
    """The model of that name, from the first folder that has it; its name may differ in capitals."""
    for folder in folders:
        found = _child(_child(folder, owner), repository)
        if found is not None:
            label, lost = f"{found.parent.name}/{found.name}", dict[str, SourceError]()
            files = read_directory(found, lost)
            return _open(files, lost, label, f"{label} is taken from LM Studio's folder {found}")
    return None


def find_in_llama_cpp(owner: str, repository: str, folders: Iterable[Path]) -> Local | None:
    """The GGUF files of that name, from the first folder that has any."""
    label, start = f"{owner}/{repository}", f"{owner}_{repository}_".casefold()

    def is_its(name: str) -> bool:
        return name.casefold().startswith(start) and is_gguf(name)

    for folder in folders:
        others = dict[str, SourceError]()
        listed = read_directory(folder, others) if folder.is_dir() else {}
        files = {name[len(start) :]: path for name, path in listed.items() if is_its(name)}
        lost = {name: error for name, error in others.items() if is_its(name)}
        if files or lost:
            return _open(files, lost, label, f"{label} is taken from llama.cpp's folder {folder}")
    return None


def _child(folder: Path | None, name: str) -> Path | None:
    """The folder of that name inside. None, too, where the outer one is not ours to read."""
    try:
        if folder is None or not folder.is_dir():
            return None
        named = (one for one in folder.iterdir() if one.name.casefold() == name.casefold())
        alike = sorted(one for one in named if one.is_dir())
    except OSError:
        return None
    return next((one for one in alike if one.name == name), alike[0] if alike else None)


def _open(files: Files, lost: Mapping[str, SourceError], label: str, note: str) -> Local:
    """lost: what lies there and cannot be read. It is left out where one GGUF file is the whole model."""

    def weights() -> Sequence[str]:
        placed = read_index(files, label) if INDEX in files else None
        return sorted(set(placed.values())) if placed else weight_names(files, None, label)

    listed = {name: Listed(name, path.stat().st_size, None, None) for name, path in files.items()}
    try:
        chosen = choose_model(Listing(label, "", listed), HubAddress(label), weights)
    except ModelkitError:
        for error in lost.values():
            raise error from None
        raise
    for error in () if chosen.is_gguf else lost.values():
        raise error
    return Local(
        label=label,
        files={one.name: files[one.name] for one in chosen.files},
        gguf=files[chosen.weights[0]] if chosen.is_gguf else None,
        notes=(note, *(f"{error.message}; it is left out" for error in lost.values())),
    )
