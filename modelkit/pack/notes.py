"""What a plan says of itself beyond its table: what a user who asked for a format may not expect."""

from collections.abc import Sequence

from modelkit.pack.planned import Planned
from runtime.quant import Format

_MUCH = 0.1  # the share of all weights from which on those that stay wide are worth a line


def quantizing_notes(planned: Sequence[Planned], chosen: Format) -> tuple[str, ...]:
    """One sentence per reason why matrices could not be quantized, and one when much stays wide."""
    if not chosen.quantized:
        return ()
    notes = _misfits(planned)
    if not any(tensor.encode for tensor in planned):
        return (*notes, f"nothing could be stored as {chosen.name}")
    return (*notes, *_much_stays(planned))


def counted(number: int, one: str) -> str:
    """`3 masks are`, `1 mask is`."""
    return f"{number} {one}{'s are' if number > 1 else ' is'}"


def _misfits(planned: Sequence[Planned]) -> tuple[str, ...]:
    misfits: dict[tuple[str, str], list[str]] = {}
    for tensor in planned:
        if tensor.encode is None and "do not divide" in tensor.reason:
            misfits.setdefault((tensor.label, tensor.reason), []).append(tensor.name)
    return tuple(
        f"{len(names)} {'matrices stay' if len(names) > 1 else 'matrix stays'} at {label}: {reason} "
        f"({names[0]}{', ...' if len(names) > 1 else ''})"
        for (label, reason), names in misfits.items()
    )


def _much_stays(planned: Sequence[Planned]) -> tuple[str, ...]:
    """How much of a quantized model is as wide as in the source, and why the largest part of that is."""
    wide = [tensor for tensor in planned if tensor.encode is None and len(tensor.outputs) == 1]
    elements, total = sum(t.elements for t in wide), sum(t.elements for t in planned)
    if elements <= _MUCH * total:
        return ()
    reasons: dict[str, list[Planned]] = {}
    for tensor in wide:
        reasons.setdefault(tensor.reason, []).append(tensor)
    reason, group = max(reasons.items(), key=lambda item: sum(t.elements for t in item[1]))
    largest = max(group, key=lambda tensor: tensor.elements)
    more = f" and {len(group) - 1:,} more" if len(group) > 1 else ""
    return (
        f"{elements / total:.0%} of the weights stay at {largest.label}; the largest part: {reason} "
        f"({largest.name}{more})",
    )
