"""A package ready to be written: what `prepare` has decided and checked, and `build` writes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from modelkit.pack.adapters.package_adapters import Carried
from modelkit.pack.metadata import DRAFT_FOLDER, Metadata
from modelkit.pack.origins import Line
from modelkit.pack.part import Part
from runtime.records import dataclass

if TYPE_CHECKING:
    from modelkit.chat.capabilities import Capabilities


@dataclass(frozen=True, slots=True)
class Preparation:
    """A package ready to be written."""

    target: Part
    draft: Part | None
    metadata: Metadata
    """Without provenance, which needs the sources' digests; of adapters, those that were fused before."""
    capabilities: "Capabilities | None"
    """Of the chat template."""
    texts: Mapping[str, bytes]
    """The files that the Modelfile itself brings, by path."""
    notes: tuple[str, ...]
    """Sentences for the user."""
    origin: tuple[Line, ...]
    """The directives that say where the weights come from."""
    write_bytes: int
    """What may have to be written, at most."""
    adapters: tuple[Carried, ...] = ()
    """In the order in which they were named."""

    @property
    def parts(self) -> tuple[tuple[str, Part], ...]:
        """(folder in the package, part): "" is the target's."""
        return (("", self.target), *(((f"{DRAFT_FOLDER}/", self.draft),) if self.draft else ()))

    @property
    def fused(self) -> tuple[str, ...]:
        """The names of adapters that become part of the weights."""
        fused = self.target.fused
        return tuple(one.name for one in fused.facts()) if fused else ()

    @property
    def size_bytes(self) -> int:
        weights = sum(part.plan.nbytes for _, part in self.parts)
        return weights + sum(one.nbytes for one in self.adapters)

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target.plan.to_json(),
            "draft": self.draft.plan.to_json() if self.draft else None,
            "adapters": [one.to_json() for one in self.adapters],
            "fused": list(self.fused),
            "size_bytes": self.size_bytes,
            "write_bytes": self.write_bytes,
            "notes": list(self.notes),
        }
