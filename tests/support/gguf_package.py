"""GGUF files on disk, and the packages that are made of them."""

from pathlib import Path
from typing import Any

from modelkit.modelfile import Modelfile
from modelkit.pack.build import build
from modelkit.store.name import Name
from modelkit.store.package import Package
from modelkit.store.store import Store


def create(store: Store, source: Path, name: str = "m", **options: Any) -> Package:
    recipe = Modelfile.parse(f"FROM {source}\n").recipe(source.parent)
    build(recipe, Name.parse(name), store, **options)
    return store.resolve(name)


def write(folder: Path, content: bytes, name: str = "m.gguf") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    return folder / name
