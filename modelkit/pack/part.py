"""One model of a package, target or draft, once everything about it is decided and nothing is written yet."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from modelkit.modelfile import Quantizing
from modelkit.pack.metadata import AdapterFacts, Provenance
from modelkit.pack.planning.plan_types import Plan
from modelkit.pack.planning.slabs import Piece
from modelkit.pack.sources import Source
from modelkit.pack.writing.write import header_of
from modelkit.source.prequantized import CodeWeights, FloatWeights, GgufWeights, MlxWeights
from modelkit.source.shards import INDEX
from modelkit.store.digest import Digest
from runtime.records import dataclass

if TYPE_CHECKING:
    import mlx.core as mx

CONFIG = "config.json"


class Change(Protocol):
    """What goes into stored tensors while they are converted (`adapters.fusion.Fusion`)."""

    def touches(self, piece: Piece) -> bool: ...

    def to_measure(self, piece: Piece) -> bool:
        """Has `measure` to see all rows of this tensor before any is changed?"""
        ...

    def measure(self, piece: Piece, values: "mx.array") -> None:
        """values: as for `apply`. Each row once, and by one thread."""
        ...

    def apply(self, piece: Piece, values: "mx.array") -> "mx.array":
        """values: the piece's rows [rows, C] (a vector's as one row) -> those that are written, float32."""
        ...


class Fused(Protocol):
    """Adapters on their way into the weights (`adapters.fusion_plan.Fused`)."""

    @property
    def digests(self) -> Mapping[str, Mapping[str, Digest]]:
        """Of all files that decide their numbers, by adapter and name."""
        ...

    def load(self) -> Change:
        """Their numbers."""
        ...

    def facts(self) -> tuple[AdapterFacts, ...]:
        """What modelkit.json says of them."""
        ...


@dataclass(frozen=True, slots=True)
class Part:
    """Target or draft, decided."""

    source: Source
    plan: Plan
    inherited: Provenance | None = None
    """What a stored package says of where the same weights came from."""
    reused: Mapping[str, Digest] | None = None
    """The weight files by path, where an earlier conversion left them in the store."""
    asked: Quantizing | None = None
    """How its weights were to be stored."""
    spare: str | None = None
    """A head that only repeats the embedding, and is left out of what is written anew."""
    fused: Fused | None = None
    """The adapters that go into its weights."""

    @property
    def paths(self) -> set[str]:
        """Of all its files, in its folder of the package."""
        return {CONFIG, INDEX, *(file.path for file in self.plan.files), *self.source.inventory.files}

    @property
    def as_planned(self) -> bool:
        """Where it runs without being packaged: are its tensors those of the plan, and not its files'?"""
        if isinstance(self.source.kind, FloatWeights | MlxWeights):  # a file may have what MLX reads none of
            return any(file.source is None for file in self.plan.files)
        return isinstance(self.source.kind, GgufWeights | CodeWeights)

    @property
    def write_bytes(self) -> int:
        """What its weights may add to the store."""
        if self.reused is not None:
            return 0
        return sum(
            len(header_of(file)) + sum(tensor.nbytes for tensor in file.tensors)
            if file.source is None
            else (0 if file.source in self.source.known else file.source_bytes)
            for file in self.plan.files
        )
