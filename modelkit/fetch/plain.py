"""Models that other programs keep as plain files under the hub's names.

    LM Studio    <folder>/<owner>/<repository>/<file>
    llama.cpp    <folder>/<owner>_<repository>_<file>, as `-hf` of its older versions did; newer ones share
                 huggingface_hub's cache

Anybody may change such files, so they are taken as any folder is: read, and shared only block by block.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from modelkit.address import HubAddress
from modelkit.fetch.hub.choose import choose_model
from modelkit.fetch.hub.listing import Listed, Listing
from modelkit.fetch.local import Local
from modelkit.source.shards import INDEX, read_index, weight_names
from modelkit.source.tree import Files, read_directory


def find_in_lm_studio(owner: str, repository: str, folders: Iterable[Path]) -> Local | None:
    """The model of that name, from the first folder that has it; its name may differ in capitals."""
    for folder in folders:
        found = _child(_child(folder, owner), repository)
        if found is not None:
            label = f"{found.parent.name}/{found.name}"
            return _open(read_directory(found), label, f"{label} is taken from LM Studio's folder {found}")
    return None


def find_in_llama_cpp(owner: str, repository: str, folders: Iterable[Path]) -> Local | None:
    """The GGUF files of that name, from the first folder that has any."""
    label, start = f"{owner}/{repository}", f"{owner}_{repository}_".casefold()
    for folder in folders:
        files = {
            name[len(start) :]: path
            for name, path in (read_directory(folder) if folder.is_dir() else {}).items()
            if name.casefold().startswith(start) and name.endswith(".gguf")
        }
        if files:
            return _open(files, label, f"{label} is taken from llama.cpp's folder {folder}")
    return None


def _child(folder: Path | None, name: str) -> Path | None:
    if folder is None or not folder.is_dir():
        return None
    alike = sorted(one for one in folder.iterdir() if one.name.casefold() == name.casefold() and one.is_dir())
    return next((one for one in alike if one.name == name), alike[0] if alike else None)


def _open(files: Files, label: str, note: str) -> Local:
    def weights() -> Sequence[str]:
        placed = read_index(files, label) if INDEX in files else None
        return sorted(set(placed.values())) if placed else weight_names(files, None, label)

    listed = {name: Listed(name, path.stat().st_size, None, None) for name, path in files.items()}
    chosen = choose_model(Listing(label, "", listed), HubAddress(label), weights)
    return Local(
        label=label,
        files={one.name: files[one.name] for one in chosen.files},
        gguf=files[chosen.weights[0]] if chosen.is_gguf else None,
        notes=(note,),
    )
