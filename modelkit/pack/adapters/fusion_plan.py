"""Which adapters go into a target's weights, decided; their numbers are read when these are written."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from modelkit.errors import PlanError
from modelkit.modelfile import Quantizing
from modelkit.pack.accept import decide
from modelkit.pack.adapters.package_adapters import Carried
from modelkit.pack.metadata import AdapterFacts
from modelkit.pack.part import Part
from modelkit.pack.sources import Source
from modelkit.pack.writing.conversion import memo_key, recall, source_digests
from modelkit.source.inventory import Inventory
from modelkit.source.prequantized import GgufWeights, MlxWeights, Mxfp4Blocks
from modelkit.source.tensor import TensorInfo
from modelkit.store.digest import Digest
from modelkit.store.store import Store
from runtime.models import Described, describe
from runtime.records import dataclass

if TYPE_CHECKING:
    from modelkit.pack.adapters.fusion import Fusion
    from modelkit.pack.adapters.fusion_sites import Ways
    from modelkit.pack.adapters.own_head import OwnHead


@dataclass(frozen=True, slots=True)
class Fused:
    """Adapters on their way into the weights of one target."""

    adapters: tuple[Carried, ...]
    """In order."""
    described: Described
    ways: "Ways"
    digests: Mapping[str, Mapping[str, Digest]]
    """Of all files that decide their numbers, by adapter and name."""
    head: "OwnHead | None" = None
    """Of a checkpoint whose head was its embedding, and that they tell apart."""

    def load(self) -> "Fusion":
        from modelkit.pack.adapters.fusion import Fusion

        ranks = [one.load(self.described) for one in self.adapters]
        return Fusion(self.ways, [self.head.ranks(one) for one in ranks] if self.head else ranks)

    def facts(self) -> tuple[AdapterFacts, ...]:
        """What modelkit.json says of them."""
        return tuple(
            AdapterFacts(one.name, one.kind, one.base, self.digests[one.name], fused=True)
            for one in self.adapters
        )


def with_fused(target: Part, adapters: tuple[Carried, ...], asked: Quantizing | None, store: Store) -> Part:
    """The target with these adapters in its weights, before they are quantized: its format is named, not to
    be found. Raises PlanError.
    """
    from modelkit.pack.adapters.fusion_sites import in_file, table_that_parts, ways  # loads MLX

    _refuse_unmoved(target.source, adapters)
    source, spare, head, described = target.source, target.spare, None, describe(target.plan.config)
    changed = {name for one in adapters for name in one.parameters}
    table = table_that_parts(described, changed, unties=any(one.unties for one in adapters))
    if table is not None:
        from modelkit.pack.adapters.own_head import with_own_head

        (source, head), spare = with_own_head(source, table, spare), None
        described, changed = describe(source.inventory.config), head.parameters(changed)
    known = ways(described, unpacked(source), changed)
    if isinstance(source.kind, GgufWeights):
        known = in_file(known, source.kind)
    format_, plain = (asked.format, asked.plain) if asked else (None, False)
    part = decide(
        source,
        "target",
        format_,
        settled=True,
        spare=spare,  # no longer what the embedding is, and the next reader would take it for the head
        plain=plain,
        rewrite=True,
        repacked=known.of,
    )
    digests = {one.name: _digests(one, store) for one in adapters}
    part = replace(part, asked=asked, fused=Fused(adapters, described, known, digests, head))
    sources = source_digests(part.source, store, read=False)
    return part if sources is None else replace(part, reused=recall(store, key_of(sources, part)))


def _refuse_unmoved(source: Source, adapters: tuple[Carried, ...]) -> None:
    if not adapters:
        raise PlanError("there is no adapter to fuse", hint="Add an ADAPTER line to the Modelfile.")
    if isinstance(source.kind, Mxfp4Blocks):
        raise PlanError(
            f"{source.inventory.origin} has its experts in blocks of MXFP4, which have to be moved before "
            "they change",
            hint="Make a package of it first, then one FROM that; or leave --fuse-adapters out.",
        )


def unpacked(source: Source) -> Inventory:
    """What the source would have if nothing were packed: names and shapes of the numbers."""
    inventory = source.inventory
    if not isinstance(source.kind, MlxWeights):
        return inventory
    codes = {matrix.name: matrix for matrix in source.kind.factored.values()}
    beside = {part.name for matrix in codes.values() for part in matrix.tensors} - codes.keys()
    modules = {f"{module}.weight": packing for module, packing in source.kind.packed.items()}
    tensors: dict[str, TensorInfo] = {}
    for name, tensor in inventory.tensors.items():
        module, _, leaf = name.rpartition(".")
        if name in codes:
            tensors[name] = replace(tensor, shape=codes[name].shape)
        elif name in beside:
            continue
        elif name in modules:
            packing = modules[name]
            width = tensor.shape[-1] * 32 // packing.bits
            tensors[name] = replace(tensor, shape=(*tensor.shape[:-1], width))
        elif f"{module}.weight" not in modules or leaf not in ("scales", "biases", "order"):
            tensors[name] = tensor
    for module, kind in source.kind.blocks.items():
        tensor = inventory.tensors[f"{module}.weight"]
        width = tensor.shape[-1] // kind.nbytes * kind.weights
        tensors[tensor.name] = replace(tensor, shape=(*tensor.shape[:-1], width))
        tensors.pop(f"{module}.factor", None)
    return replace(inventory, tensors=tensors)


def key_of(digests: Mapping[str, Digest], part: Part) -> str:
    """`memo_key`, adapters included: their numbers, and the scales in their configs."""
    fused = part.fused.digests.values() if part.fused else ()
    beside = {
        f"adapter {place} {name}": digest
        for place, files in enumerate(fused)
        for name, digest in files.items()
    }
    return memo_key({**digests, **beside}, part.plan)


def _digests(one: Carried, store: Store) -> dict[str, Digest]:
    return {name: store.source_digest(path) for name, path in one.files.items()}
