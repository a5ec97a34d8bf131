"""When a sequence has filled its context: which tokens it forgets, and whether layer memory can forget them.

What lies behind the part to keep loses its older half. Where every layer can, that is cut out of the row's
memory and the keys behind it turn to their new positions: what was said later stays as it was understood,
and nothing is computed. Else the row reads what is left anew.

Which of the two it is follows from the layout and these numbers alone, never from what a buffer happens to
hold, so that an answer does not depend on who else was answered. Source: the context shift of llama.cpp.
"""

from collections.abc import Sequence

from runtime.cache.layout import Chunked, Full, LayerSpec, Rotating, Shared, Stateless
from runtime.cache.protocol import Rotate
from runtime.cache.snapshot import Reach
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Shift:
    """What a row forgets when its context is full: the tokens [keep, stop)."""

    keep: int
    """Tokens in front that stay."""
    stop: int
    room: int
    """How many tokens the row holds when it forgets."""
    turns: bool
    """They are cut out of its memory. If not, the row is read again without them."""

    @classmethod
    def of(
        cls, keep: int, room: int, layout: Sequence[LayerSpec], rotates: Sequence[Rotate | None]
    ) -> "Shift":
        """keep: tokens in front that stay, 0 <= keep < room. rotates: as in LayerMemory.remove; () where the
        model cannot say.
        """
        assert 0 <= keep < room
        stop = keep + max((room - keep) // 2, 1)
        turns = len(rotates) == len(layout) and all(
            _can_forget(spec, rotate, room, keep, stop) for spec, rotate in zip(layout, rotates, strict=True)
        )
        return cls(keep, stop, room, turns)


def _can_forget(spec: LayerSpec, rotate: Rotate | None, length: int, start: int, stop: int) -> bool:
    match spec:
        case Shared() | Stateless():
            return True  # the donor is asked in its own place
        case Full() | Rotating() | Chunked():
            reach = Reach.of(spec)
            held = base_after(reach.needed(length), start, stop)
            return rotate is not None and held <= reach.needed(length - (stop - start))
        case _:
            return False  # a fold over all tokens cannot lose some


def base_after(base: int, start: int, stop: int) -> int:
    """Where a row's first held position lies once [start, stop) is cut out."""
    if stop <= base:
        return base - (stop - start)
    return min(base, start)
