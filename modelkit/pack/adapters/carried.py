"""The adapters of a package to be: those that FROM brings, and those that ADAPTER lines name, in their order.

An adapter goes by the name of its folder or file. All is decided and checked here, and nothing is written; no
number is read.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modelkit.errors import PlanError
from modelkit.modelfile import Recipe
from modelkit.pack.adapters.filled import fill
from modelkit.pack.adapters.place import Placement, place
from modelkit.pack.adapters.stored import CONFIG, FOLDER, WEIGHTS, StoredAdapter, config_bytes, weights_bytes
from modelkit.pack.conversion import Part
from modelkit.pack.metadata import AdapterFacts, Metadata
from modelkit.source.adapters.opened import adapter_name, read_adapter
from modelkit.store.digest import Blob
from modelkit.store.store import Store
from modelkit.store.transaction import Transaction
from runtime.models import describe


@dataclass(frozen=True, slots=True)
class Carried:
    """One adapter of the package."""

    name: str
    placement: Placement | None = None
    """Of one that an ADAPTER line names."""
    stored: StoredAdapter | None = None
    """One that FROM brings, as it is."""
    facts: AdapterFacts | None = None
    """What that package says of it."""

    @property
    def nbytes(self) -> int:
        """Of its tensors; about as many will be written."""
        if self.stored is not None:
            return self.stored.nbytes
        assert self.placement is not None
        return self.placement.source.file.nbytes

    @property
    def rank(self) -> int:
        one = self.stored or self.placement
        return one.rank if one else 0

    @property
    def modules(self) -> int:
        if self.stored is not None:
            return self.stored.modules
        return len(self.placement.placed) if self.placement else 0

    @property
    def kind(self) -> str:
        if self.stored is not None:
            return self.stored.kind
        return self.placement.source.kind if self.placement else ""

    @property
    def base(self) -> str | None:
        if self.stored is not None:
            return self.stored.base
        return self.placement.source.base if self.placement else None

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "base": self.base,
            "rank": self.rank,
            "modules": self.modules,
            "size_bytes": self.nbytes,
        }


def carried(
    recipe: Recipe, inherited: Mapping[str, StoredAdapter], said: Metadata, target: Part
) -> tuple[Carried, ...]:
    """inherited, said: what FROM brings. target: the base as it will be stored.

    Raises SourceError, PlanError, WeightMismatch.
    """
    facts = {one.name: one for one in said.adapters}
    found = {name: Carried(name, stored=one, facts=facts.get(name)) for name, one in inherited.items()}
    described = describe(target.plan.config)
    shapes = {name: tensor.shape for name, tensor in target.source.inventory.tensors.items()}
    for reference in recipe.adapters:
        assert reference.path is not None, "ADAPTER takes paths alone"
        adapter, name = read_adapter(reference.path), adapter_name(reference.path)
        if name in found:
            raise PlanError(
                f"ADAPTER {reference.text}: there is an adapter called {name} already",
                hint="An adapter is called like its folder. Rename one of the two folders.",
            )
        found[name] = Carried(name, place(adapter, described, shapes))
    return tuple(found.values())


def carried_notes(adapters: tuple[Carried, ...], base: str) -> Iterator[str]:
    """base: what FROM names."""
    for one in adapters:
        if one.placement is not None:
            yield from (f"adapter {one.name}: {note}" for note in one.placement.source.notes)
            if one.base and _last(one.base) != _last(base):
                yield f"adapter {one.name} says that it was trained on {one.base:.200}"


def _last(name: str) -> str:
    return Path(name.rstrip("/")).name.partition(":")[0].lower()


def write_carried(
    one: Carried, target: Part, new: Transaction, store: Store
) -> tuple[dict[str, Blob], AdapterFacts]:
    """Its files by their paths in the package, and what modelkit.json says of it."""
    folder = f"{FOLDER}/{one.name}"
    if one.stored is not None:
        files = {f"{folder}/{WEIGHTS}": one.stored.path, f"{folder}/{CONFIG}": one.stored.config}
        return {path: new.add_file(real) for path, real in files.items()}, one.facts or AdapterFacts(
            one.name, one.kind, one.base, {}
        )
    assert one.placement is not None
    source = one.placement.source
    tensors, scales = fill(one.placement, describe(target.plan.config))
    with new.write_blob() as sink:
        for piece in weights_bytes(tensors):
            sink.write(piece)
        weights = sink.commit()
    digest = store.source_digest(source.file.path)
    facts = AdapterFacts(one.name, one.kind, one.base, {source.file.name: digest})
    config = new.add_bytes(config_bytes(source, scales))
    return {f"{folder}/{WEIGHTS}": weights, f"{folder}/{CONFIG}": config}, facts
