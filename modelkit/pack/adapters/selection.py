"""From the names of adapters, in FROM and in ADAPTER lines, to what a package carries of them."""

from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path

from modelkit.address import HubAddress
from modelkit.fetch.access import Access
from modelkit.fetch.find import obtain_adapter
from modelkit.fetch.local import Local
from modelkit.modelfile import Recipe, Reference
from modelkit.pack.adapters.package_adapters import Carried, carried
from modelkit.pack.part import Part
from modelkit.pack.sources import Origin
from modelkit.store.ingest import broken_promise
from modelkit.store.store import Store


def carried_adapters(
    recipe: Recipe, origin: Origin, target: Part, access: Access, store: Store, *, fuse: bool
) -> tuple[Carried, ...]:
    """Those that come with what FROM names, then those of ADAPTER lines, in order.

    Raises PlanError for what does not fit the target, SourceError and FetchError, at the line that names it.
    """
    at = partial(_at, recipe, len(origin.beside))
    places: list[Path | Local] = []
    for number, one in enumerate((*origin.beside, *recipe.adapters)):
        with at(number):
            places.append(_place(one, access, store))
    return carried(places, origin.adapters, origin.metadata, target, fuse=fuse, at=at)


def _at(recipe: Recipe, brought: int, number: int) -> AbstractContextManager[None]:
    """Where the adapter of that number is named: the first `brought` come with what FROM names."""
    return recipe.at("FROM") if number < brought else recipe.at("ADAPTER", number - brought)


def _place(one: Reference | Local, access: Access, store: Store) -> Path | Local:
    """Where an adapter's files are. Those of an address are fetched; what others keep under a digest has to
    have it. Raises SourceError.
    """
    if isinstance(one, Reference):
        if one.path is not None:
            return one.path
        assert isinstance(one.address, HubAddress)  # no other text is taken for ADAPTER
        one = obtain_adapter(one.address, replace(access, hollow=None))
    for path, digest in one.promised.items():
        if store.source_digest(path) != digest:
            raise broken_promise(path, digest)
    return one
