"""What a whole model remembers, as seen by a rank that has some of its layers."""

from collections.abc import Sequence

from runtime.cache.layout import LayerSpec, Stateless
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Whole:
    """A layout of all layers, wherever they are."""

    layout: tuple[LayerSpec, ...]
    elsewhere: frozenset[int]
    """Those of other ranks."""

    @classmethod
    def of(cls, model: Sequence[LayerSpec], share: Sequence[LayerSpec]) -> "Whole":
        """share: this rank's layout, stateless where a layer is elsewhere, with places of its own behind."""
        more = share[len(model) :]
        here = {i for i, spec in enumerate(share) if not isinstance(spec, Stateless)}
        layout = [spec if i not in here else share[i] for i, spec in enumerate(model)]
        elsewhere = (i for i, spec in enumerate(model) if i not in here and not isinstance(spec, Stateless))
        return cls((*layout, *more), frozenset(elsewhere))
