"""What a plan says of itself beyond its table: what a user who asked for a format may not expect."""

from collections.abc import Sequence

from modelkit.pack.planning.plan_types import Planned
from modelkit.source.prequantized import GgufWeights
from runtime.blocks.types import BLOCK_TYPES
from runtime.quant import Format

_MOST = 0.5
_MUCH = 0.1  # the share of all weights from which on those that stay wide are worth a line


def quantizing_notes(planned: Sequence[Planned], chosen: Format) -> tuple[str, ...]:
    """One sentence per reason why matrices could not be quantized; one when much stays wide for another
    reason, and one when most is stored in another format than was asked for.
    """
    if not chosen.quantized:
        return ()
    notes = _misfits(planned)
    if not any(tensor.encode for tensor in planned):
        return (*notes, f"nothing could be stored as {chosen.name}")
    return (*notes, *_much_stays(planned), *_mostly_other(planned, chosen))


def requantizing_notes(kind: GgufWeights, wanted: Format | None) -> tuple[str, ...]:
    """What was lost already, where a GGUF file is to be stored in another format; None: in several."""
    names = [name.upper() for name in kind.types() if name in BLOCK_TYPES]
    if not names or (wanted and not wanted.quantized):
        return ()
    were = f"the file was already quantized as {', '.join(names)}"
    made = f"{wanted.name} is made" if wanted else FOUND
    return (f"{were}; {made} of exactly those numbers",)


FOUND = "what does not stay as it is is made"
"""Of a source that was quantized already and whose formats were found."""


def counted(number: int, one: str) -> str:
    """`3 masks are`, `1 mask is`."""
    return f"{number} {one}{'s are' if number > 1 else ' is'}"


def _is_misfit(tensor: Planned) -> bool:
    return tensor.encode is None and "do not divide" in tensor.reason


def _misfits(planned: Sequence[Planned]) -> tuple[str, ...]:
    total, misfits = _elements(planned), dict[tuple[str, str], list[Planned]]()
    for tensor in planned:
        if _is_misfit(tensor):
            misfits.setdefault((tensor.label, tensor.reason), []).append(tensor)
    return tuple(
        f"{len(group)} {'matrices stay' if len(group) > 1 else 'matrix stays'} at {label}"
        f"{_share(group, total)}: {reason} ({group[0].name}{', ...' if len(group) > 1 else ''})"
        for (label, reason), group in misfits.items()
    )


def _share(group: Sequence[Planned], total: int) -> str:
    """How much of the model it is, where that is much."""
    elements = _elements(group)
    return f", {elements / total:.0%} of the weights" if elements > _MUCH * total else ""


def _much_stays(planned: Sequence[Planned]) -> tuple[str, ...]:
    """How much of a quantized model is as wide as in the source, and why the largest part of that is. Misfits
    have notes of their own.
    """
    wide = [t for t in planned if t.encode is None and len(t.outputs) == 1 and not _is_misfit(t)]
    if _elements(wide) <= _MUCH * _elements(planned):
        return ()
    reason, group = _largest(wide)
    return (
        f"{_elements(wide) / _elements(planned):.0%} of the weights stay at {_widest(group).label}; "
        f"the largest part: {reason} ({_named(group)})",
    )


def _mostly_other(planned: Sequence[Planned], chosen: Format) -> tuple[str, ...]:
    """Small models are mostly embedding, and that is kept at more bits."""
    other = [t for t in planned if t.encode and t.label != chosen.name]
    if _elements(other) <= _MOST * _elements(planned):
        return ()
    reason, group = _largest(other)
    return (
        f"{_elements(other) / _elements(planned):.0%} of the weights are stored as {_widest(group).label}, "
        f"not {chosen.name}, which would cost them too much; the largest part: {reason} ({_named(group)})",
    )


def _largest(tensors: Sequence[Planned]) -> tuple[str, list[Planned]]:
    """The reason that most of these weights share, and those."""
    reasons: dict[str, list[Planned]] = {}
    for tensor in tensors:
        reasons.setdefault(tensor.reason, []).append(tensor)
    return max(reasons.items(), key=lambda item: _elements(item[1]))


def _named(group: Sequence[Planned]) -> str:
    return _widest(group).name + (f" and {len(group) - 1:,} more" if len(group) > 1 else "")


def _widest(group: Sequence[Planned]) -> Planned:
    return max(group, key=lambda tensor: tensor.elements)


def _elements(tensors: Sequence[Planned]) -> int:
    return sum(tensor.elements for tensor in tensors)
