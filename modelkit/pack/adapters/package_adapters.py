"""The adapters of a package to be: those that FROM brings, and those that ADAPTER lines name, in their order.

An adapter goes by the name of its folder or file. All is decided and checked here, and nothing is written.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelkit.errors import PlanError
from modelkit.pack.adapters.stored import CONFIG, FOLDER, WEIGHTS, StoredAdapter, config_bytes, weights_bytes
from modelkit.pack.metadata import AdapterFacts, Metadata
from modelkit.store.digest import Blob
from runtime.models import Described, describe
from runtime.quoting import shown
from runtime.records import dataclass

if TYPE_CHECKING:
    from modelkit.fetch.local import Local
    from modelkit.pack.adapters.place import Placement
    from modelkit.pack.part import Part
    from modelkit.source.adapters.value import AdapterSource
    from modelkit.store.store import Store
    from modelkit.store.transaction import Transaction
    from runtime.nn.adapters.low_rank import LowRanks


_EMPTY = (
    "DeepSpeed's ZeRO 3 and FSDP leave files without numbers where weights were not gathered before saving."
)


@dataclass(frozen=True, slots=True)
class Carried:
    """One adapter of the package."""

    name: str
    placement: "Placement | None" = None
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
    def paths(self) -> tuple[str, str]:
        """In the package: of its tensors, and of its adapter_config.json."""
        folder = f"{FOLDER}/{self.name}"
        return f"{folder}/{WEIGHTS}", f"{folder}/{CONFIG}"

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

    @property
    def files(self) -> dict[str, Path]:
        """All that decide its numbers, by name."""
        if self.stored is not None:
            return {WEIGHTS: self.stored.path, CONFIG: self.stored.config}
        assert self.placement is not None
        source = self.placement.source
        beside = {CONFIG: source.config} if source.config else {}
        return {source.file.name: source.file.path, **beside}

    @property
    def parameters(self) -> set[str]:
        """Those of the network that it changes."""
        if self.stored is not None:
            return self.stored.parameters
        return self.placement.parameters if self.placement else set()

    @property
    def unties(self) -> bool:
        """Does it say one thing of the embedding and another of a head that is tied to it?"""
        one = self.stored or self.placement
        return one is not None and one.unties

    def load(self, described: Described) -> "LowRanks":
        """Its numbers, for the network that `described` builds. Raises SourceError, MalformedFile."""
        if self.stored is not None:
            return self.stored.load()
        from modelkit.pack.adapters.filled import as_arrays, fill
        from runtime.nn.adapters.low_rank import LowRanks

        assert self.placement is not None
        tensors, scales = fill(self.placement, described)
        return LowRanks.of(as_arrays(tensors), scales)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "base": self.base,
            "rank": self.rank,
            "modules": self.modules,
            "size_bytes": self.nbytes,
        }


def inherited_adapters(inherited: Mapping[str, StoredAdapter], said: Metadata) -> tuple[Carried, ...]:
    """Those that a package has, in the order in which it names them. said: what it says of them."""
    facts = {one.name: one for one in said.adapters if not one.fused}
    order = [
        *(name for name in facts if name in inherited),
        *(name for name in inherited if name not in facts),
    ]
    return tuple(Carried(name, stored=inherited[name], facts=facts.get(name)) for name in order)


def carried(
    places: "Iterable[Path | Local]",
    inherited: Mapping[str, StoredAdapter],
    said: Metadata,
    target: "Part",
    *,
    fuse: bool = False,
    at: Callable[[int], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> tuple[Carried, ...]:
    """places: of adapters to be added. inherited, said: what a package has. target: the base. fuse: will they
    become part of it? Otherwise run time is asked whether it takes them. at: says of which place an error is.

    Raises SourceError, PlanError, WeightMismatch.
    """
    found = {one.name: one for one in inherited_adapters(inherited, said)}
    described = describe(target.plan.config)
    for number, place in enumerate(places):
        with at(number):
            adapter, name, label = _opened(place, target.source.inventory.config)
            same = next((one for one in found if one.casefold() == name.casefold()), None)
            if same is not None:  # by case alone: some disks would lay one over the other
                raise PlanError(
                    f"{label}: there is an adapter called {same} already",
                    hint="An adapter is called like its folder. Rename one of the two, or leave out what is\n"
                    "named twice.",
                )
            found[name] = Carried(name, _placed(adapter, described, target, fuse=fuse))
    return tuple(found.values())


def _opened(place: "Path | Local", config: Mapping[str, Any]) -> "tuple[AdapterSource, str, str]":
    """An adapter for a base with that config, its name, and how messages call it."""
    from modelkit.source.adapters.reading import adapter_name, read_adapter, read_folder, safe_name

    if isinstance(place, Path):
        return read_adapter(place, config), adapter_name(place), str(place)
    repository = place.upstream.repository if place.upstream else place.label
    name = safe_name(repository.rpartition("/")[2], place.label)
    return read_folder(place.files, place.label, config), name, place.label


def _placed(adapter: "AdapterSource", described: Described, target: "Part", *, fuse: bool) -> "Placement":
    """In the target's network, where run time takes it."""
    from modelkit.pack.adapters.attachment import require_attachable  # these load MLX
    from modelkit.pack.adapters.place import head_beside, place, with_head
    from modelkit.pack.adapters.towers import without_towers
    from modelkit.pack.adapters.whole_parameters import settle_saved, settle_tied
    from modelkit.source.adapters.value import refuse
    from modelkit.source.prequantized import BitNetWeights

    if isinstance(target.source.kind, BitNetWeights):
        refuse(adapter.label, ["BitNet's projections read what is rounded, which no adapter does"])
    shapes = {name: tensor.shape for name, tensor in target.source.inventory.tensors.items()}
    adapter, left_out = without_towers(adapter, described, shapes)
    kernels = [f"{shown(name)} is a convolution, which takes no pair here" for name in adapter.kernels]
    refuse(adapter.label, kernels)
    tied = head_beside(described) is not None
    adapter, notes = settle_saved(with_head(adapter) if tied else adapter, target.source)
    if tied:
        adapter, apart = settle_tied(adapter)
        notes += apart
    adapter = replace(adapter, notes=(*adapter.notes, *left_out, *notes))
    placement = place(adapter, described, shapes)
    if not placement.parameters:
        refuse(adapter.label, ["it changes nothing of the base: no tensor in it would"], _EMPTY)
    if not fuse:
        require_attachable(placement, described)
    return placement


def carried_notes(adapters: tuple[Carried, ...], base: str) -> Iterator[str]:
    """base: what FROM names."""
    for one in adapters:
        if one.placement is not None:
            yield from (f"adapter {one.name}: {note}" for note in one.placement.source.notes)
            if one.base and _last(one.base) != _last(base):
                yield f"adapter {one.name} says that it was trained on {shown(one.base)}"


def _last(name: str) -> str:
    return Path(name.rstrip("/")).name.partition(":")[0].lower()


def write_carried(
    one: Carried, target: "Part", new: "Transaction", store: "Store"
) -> tuple[dict[str, Blob], AdapterFacts]:
    """Its files by their paths in the package, and what modelkit.json says of it."""
    weights_path, config_path = one.paths
    if one.stored is not None:
        files = {weights_path: one.stored.path, config_path: one.stored.config}
        known = target.source.known
        blobs = {path: new.add_file(real, expect=known.get(real)) for path, real in files.items()}
        return blobs, one.facts or AdapterFacts(one.name, one.kind, one.base, {})
    assert one.placement is not None
    from modelkit.pack.adapters.filled import fill

    source = one.placement.source
    tensors, scales = fill(one.placement, describe(target.plan.config))
    with new.write_blob() as sink:
        for piece in weights_bytes(tensors):
            sink.write(piece)
        weights = sink.commit()
    digest = store.source_digest(source.file.path)
    facts = AdapterFacts(one.name, one.kind, one.base, {source.file.name: digest})
    config = new.add_bytes(config_bytes(source, scales))
    return {weights_path: weights, config_path: config}, facts
