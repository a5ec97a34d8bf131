"""What layers of a whole model remember, as seen by a rank that has some of them."""

from collections.abc import Sequence

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import Rotate
from runtime.loaded import LoadedModel
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Whole:
    """A layout of all layers, wherever they are."""

    layout: tuple[LayerSpec, ...]
    elsewhere: frozenset[int]
    """Those of other ranks."""

    @classmethod
    def of(cls, share: LoadedModel) -> "Whole":
        """share: what this rank has of the model."""
        here, model = share.described.layout, share.everywhere or share.described.layout
        places = (i for i, (own, spec) in enumerate(zip(here, model, strict=True)) if own != spec)
        return cls(model, frozenset(places))

    def shifts(self, share: LoadedModel) -> Sequence[Rotate | None]:
        """How keys of each layer are moved. What turns keys has no weights, so layers elsewhere are asked in
        a network of which none are loaded.
        """
        mine: Sequence[Rotate | None] = share.network.shifts
        if not mine or not self.elsewhere:
            return mine
        described = share.described
        bare: Sequence[Rotate | None] = described.network().shifts
        return [bare[i] if i in self.elsewhere else one for i, one in enumerate(mine)]
