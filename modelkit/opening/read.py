"""What a name or a path stands for: files and settings of a model to run, nothing loaded yet.

A stored package and a plain model directory look the same from here on. Headers of all weight files are
checked before MLX sees them, and a package's blobs are held so that no `prune` takes them away while they are
read.
"""

import os
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from modelkit.address import looks_like_path
from modelkit.errors import InvalidName, LoadError, ModelkitError, ModelNotFound, PlanError
from modelkit.opening.opened import Opened, opened, recipe_of, target_files
from modelkit.pack.adapters.package_adapters import inherited_adapters
from modelkit.pack.adapters.stored import read_stored
from modelkit.pack.checks import check_settled
from modelkit.pack.file_errors import worded
from modelkit.pack.metadata import DRAFT_FOLDER
from modelkit.prefixes import model_digest
from modelkit.settings import Settings
from modelkit.source.inventory import read_inventory
from modelkit.source.tree import Files, subtree
from modelkit.store.name import as_name
from modelkit.store.outline import outlined, refuse_outline
from modelkit.store.package import Package
from modelkit.store.store import Store

if TYPE_CHECKING:
    from modelkit.ranks.outline import Outline


@contextmanager
def open_model(
    name: str | os.PathLike[str],
    settings: Settings,
    adapters: Sequence[Path] = (),
    *,
    outlines: bool = False,
) -> Generator[Opened]:
    """Open a stored model by name or a model directory by path. adapters: more than the package has.
    outlines: may its weights be zeros, since no number of them will be read?

    Raises ModelNotFound, SourceError, LoadError.
    """
    text = os.fspath(name)
    if not isinstance(name, str) or looks_like_path(text):
        from modelkit.opening.unpackaged import open_path  # with all that plans a package

        with _refusing():
            found = open_path(Path(text), text, adapters)
        yield found
        return
    with ExitStack() as stack:
        try:
            package = stack.enter_context(Store(settings.home).hold(text))
            found = stack.enter_context(_opened_package(package, settings, adapters, outlines=outlines))
            found = replace(found, package=str(package.digest))
        except (ModelNotFound, InvalidName) as error:
            found = _elsewhere(text, adapters, error)
        yield found  # what fails while it is open is none of its opening


def _elsewhere(text: str, adapters: Sequence[Path], error: ModelkitError) -> Opened:
    """What another program has under a name that no package has. error: what the store says. Raises
    ModelNotFound, or that error, where nobody has it.
    """
    from modelkit.fetch.find import find_local, what_to_do

    if Path(text, "config.json").is_file():
        raise ModelNotFound(error.message, hint=f"For the directory of that name, write ./{text}") from error
    here = find_local(text)
    if here is not None:
        from modelkit.opening.unpackaged import open_local

        with _refusing():
            return open_local(here, text, adapters)
    hint = what_to_do(text, error)
    if hint == error.hint:
        raise error
    raise ModelNotFound(error.message, hint=hint) from error


@contextmanager
def _opened_package(
    package: Package, settings: Settings, adapters: Sequence[Path], *, outlines: bool
) -> Generator[Opened]:
    if not outlines:
        refuse_outline(package, "run on one machine")
    said = outlined(package)
    if said is None:
        with _refusing():
            found = _open(package.files, str(package.name), adapters, model_digest(package.manifest))
        yield found
        return
    from modelkit.ranks.outline import laid_out

    with laid_out(package, said, Store(settings.home)) as outline:
        yield replace(open_outline(outline, str(package.name), adapters), outline=outline)


def open_outline(outline: "Outline", name: str, adapters: Sequence[Path] = ()) -> Opened:
    """Open a package that `create` has made, of whose weights the headers alone are here. Raises as
    `open_model` does.
    """
    label = str(as_name(name))
    with _refusing():
        found = _open(outline.files, label, adapters, model_digest(outline.manifest))
    if found.metadata.provenance is None:
        raise LoadError(f"{label} was not made by `modelkit create`, and cannot be run in slices")
    return replace(found, package=str(outline.package))


@contextmanager
def _refusing() -> Generator[None]:
    """What `create` would refuse, refused as what cannot be loaded, in the same words."""
    try:
        with worded():
            yield
    except PlanError as error:
        raise LoadError(error.message, hint=error.hint) from error


def _open(files: Files, label: str, more: Sequence[Path], digest: str) -> Opened:
    """A package. `create` has decided what its own are made of, so nothing of that is asked again. digest: of
    what it is loaded from.
    """
    metadata = recipe_of(files, label)
    if metadata.provenance is None:  # made by another program
        from modelkit.opening.unpackaged import open_files

        return open_files(files, label, more, digest)
    target = read_inventory(target_files(files), label)
    inside = subtree(files, DRAFT_FOLDER)
    draft = read_inventory(inside, f"{label}/{DRAFT_FOLDER}") if inside else None
    tokenizer = check_settled(target, draft)
    if more:
        from modelkit.opening.unpackaged import adapters_with

        adapters = adapters_with(files, label, more, metadata)
    else:
        adapters = inherited_adapters(read_stored(files, label), metadata)
    found = opened(label, target, draft, metadata, tokenizer, adapters)
    return replace(found, digest=digest, added=tuple(more))
