"""The functions of the Python API for stored packages: list, copy, remove, export. None loads a model.

They are `modelkit.list`, `modelkit.copy` and so on. home: the folder of the store, instead of MODELKIT_HOME.
Raises ModelkitError.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from modelkit.arguments import flag, path, refused, text
from modelkit.faults import translated
from modelkit.pack.adapters.forms import FORMS, AdapterForm
from modelkit.settings import settings_at
from modelkit.store.store import Store

if TYPE_CHECKING:
    from modelkit.pack.gguf.export import ExportedGguf
    from modelkit.pack.mlx_folder.plan import FolderForm
    from modelkit.store import BrokenPackage, Exported, Freed, Package

Home = str | os.PathLike[str] | None


def list_packages(prefix: str = "", *, home: Home = None) -> "list[Package | BrokenPackage]":
    """The packages whose names begin with `prefix`, newest first. A damaged one is a BrokenPackage, whose
    `problem` says why.
    """
    begins = text(prefix, "prefix").lower()
    with translated():
        found = [one for one in _store(home).packages() if one.name.short.startswith(begins)]
    return sorted(found, key=lambda package: (-package.modified_s, package.name))


def copy(source: str, target: str, *, home: Home = None) -> "Package":
    """Give a package a second name. The two share all their files; if `target` named another package before,
    files that nothing else needs are deleted.
    """
    with translated():
        store = _store(home)
        store.copy(text(source, "source"), text(target, "target"))
        return store.resolve(target)


def remove(name: str, *, home: Home = None) -> "Freed":
    """Remove the package, and delete files that no other package needs."""
    with translated():
        return _store(home).remove(text(name, "name"))


def export(
    name: str,
    folder: str | os.PathLike[str],
    *,
    form: "FolderForm | None" = None,
    copy: bool = False,
    home: Home = None,
) -> "Exported":
    """Write the package to `folder`, new or empty, as ordinary files that `mlx_lm.load` and others take.

    form: "mlx-lm" for the names, shapes and fields that mlx-lm's classes expect; by default the package's.
    copy: make copies; by default files are hard links to the store's read-only ones where the disk allows it.
    Weights in GGUF's blocks are rewritten in MLX's formats.
    """
    from modelkit.pack.mlx_folder.plan import plan_folder
    from modelkit.store.export import export_package

    link, target = not flag(copy, "copy"), Path(path(folder, "folder"))
    if form is not None and text(form, "form") != "mlx-lm":
        raise refused("form", form, "mlx-lm or None")
    with translated(), _store(home).hold(text(name, "name")) as package:
        made = plan_folder(package, form).made
        return export_package(package, target, link=link, progress=None, made=made)


def export_adapter(
    name: str,
    adapter: str,
    folder: str | os.PathLike[str],
    *,
    form: AdapterForm = "peft",
    home: Home = None,
) -> tuple[str, ...]:
    """Write an adapter of the package to `folder`, new or empty, in PEFT's form or in that which mlx-lm takes
    (`adapter_path=`). Returns the names of the files.
    """
    from modelkit.pack.adapters.export import adapter_files
    from modelkit.store.export import write_folder

    wanted, target = text(adapter, "adapter"), Path(path(folder, "folder"))
    if text(form, "form") not in FORMS:
        raise refused("form", form, f"one of {', '.join(FORMS)}")
    with translated(), _store(home).hold(text(name, "name")) as package:
        files = adapter_files(package, wanted, form)
        write_folder(files, target)
        return tuple(files)


def export_gguf(
    name: str, file: str | os.PathLike[str], *, draft: bool = False, home: Home = None
) -> "ExportedGguf":
    """Write the package, or with `draft` its draft, as a new GGUF file for llama.cpp and its kin.

    Weights stay exact where GGUF has a type for them; `tensors` of the result shows which had to be rounded.
    """
    from modelkit.pack.gguf.export import ExportedGguf, plan_gguf
    from modelkit.pack.gguf.writing import write_gguf

    target, part = Path(path(file, "file")), flag(draft, "draft")
    with translated(), _store(home).hold(text(name, "name")) as package:
        planned = plan_gguf(package, draft=part)
        return ExportedGguf(write_gguf(planned, target), tuple(planned.kinds), planned.notes)


def _store(home: Home) -> Store:
    return Store(settings_at(home).home)
