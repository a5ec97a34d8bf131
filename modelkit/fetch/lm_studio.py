"""LM Studio's models: `<folder>/<publisher>/<repository>/`, plain files under the names that they have on the
hub. Anybody may change them, so they are taken as any folder is: read, and shared only block by block.
"""

from collections.abc import Iterable
from pathlib import Path

from modelkit.address import HubAddress
from modelkit.fetch.hub.choose import choose
from modelkit.fetch.hub.listing import Listed, Listing
from modelkit.fetch.local import Local
from modelkit.source.shards import INDEX, read_index, weight_names
from modelkit.source.tree import read_directory


def find_model(publisher: str, repository: str, folders: Iterable[Path]) -> Local | None:
    """The model of that name, from the first folder that has it; its name may differ in capitals."""
    for folder in folders:
        found = _child(_child(folder, publisher), repository)
        if found is not None:
            return _open(found, f"{found.parent.name}/{found.name}")
    return None


def _child(folder: Path | None, name: str) -> Path | None:
    if folder is None or not folder.is_dir():
        return None
    alike = sorted(one for one in folder.iterdir() if one.name.casefold() == name.casefold() and one.is_dir())
    return next((one for one in alike if one.name == name), alike[0] if alike else None)


def _open(folder: Path, label: str) -> Local:
    files = read_directory(folder)
    placed = read_index(files, label) if INDEX in files else None
    weights = sorted(set(placed.values())) if placed else weight_names(files, None, label)
    listed = {name: Listed(name, path.stat().st_size, None, None) for name, path in files.items()}
    chosen = choose(Listing(label, "", listed), HubAddress(label), weights)
    return Local(
        label=label,
        files={one.name: files[one.name] for one in chosen.files},
        gguf=files[chosen.weights[0]] if chosen.is_gguf else None,
        notes=(f"{label} is taken from LM Studio's folder {folder}",),
    )
