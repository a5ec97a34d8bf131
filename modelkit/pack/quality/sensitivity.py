"""What each format of each group would cost: nats per token, or of the cosine of a text's vector.

From one backward pass where the network has gradients. A matrix that it does not reach, or a network that an
operation without a gradient keeps from it, is measured: that one matrix stored in one format, and read again.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from modelkit.pack.quality.allocate import Option
from modelkit.pack.quality.options import KEEP, Group
from modelkit.pack.quality.reading import Reading
from modelkit.progress import Progress, bar
from runtime.quant import Format
from runtime.records import dataclass

if TYPE_CHECKING:
    from runtime.quality.divergence import Read
    from runtime.quality.fisher import Moments

_MEASURED_TEXTS = 2
_MEASURED_VECTORS = 12  # of which each text has one
_PROBE_BITS = 4


@dataclass(frozen=True, slots=True)
class Costs:
    """Of all groups, in their order."""

    options: tuple[tuple[Option, ...], ...]
    measured: tuple[str, ...]
    """The names of groups that the backward pass did not reach."""


def find_costs(reading: Reading, groups: Sequence[Group], progress: Progress) -> Costs:
    seen = _moments(reading, progress)
    options, measured = [], []
    with bar(progress, "formats: weights", sum(group.elements for group in groups)):
        for group in groups:
            reached = all(path in seen for path in group.modules)
            costs = _foreseen(reading, group, seen) if reached else _found(reading, group)
            if not reached:
                measured.append(group.name)
            names = [*(how.name for how in group.formats()), KEEP]
            sizes = [*(group.nbytes(how) for how in group.formats()), group.nbytes(None)]
            options.append(tuple(map(Option, names, sizes, [*costs, 0.0])))
            progress.advance(group.elements)
    return Costs(tuple(options), tuple(measured))


def scaled(options: Sequence[Option], factor: float) -> tuple[Option, ...]:
    """The same formats, all of which cost `factor` times as much as was foreseen."""
    return tuple(Option(one.name, one.nbytes, one.cost * factor) for one in options)


def measure(reading: Reading, group: Group, how: Format) -> float:
    """What storing this group alone so costs, by reading."""
    from runtime.quality.divergence import divergence, likeness, reader
    from runtime.quality.student import left_of

    modules = dict(reading.model.network.named_modules())
    chosen = [modules[path] for path in group.modules]
    kept = [module["weight"] for module in chosen]
    some = reading.calibration[: _MEASURED_VECTORS if reading.vectors else _MEASURED_TEXTS]
    before = _references(reading, some)
    try:
        for module, weight in zip(chosen, kept, strict=True):
            module["weight"] = left_of(weight, group.stored(how))
        return (likeness if reading.vectors else divergence)(before, reader(reading.model), some).cost
    finally:
        for module, weight in zip(chosen, kept, strict=True):
            module["weight"] = weight


def _references(reading: Reading, texts: Sequence[Sequence[int]]) -> "Read":
    """What the source says of these texts, read before anything is replaced."""
    from runtime.quality.divergence import reader

    read = reader(reading.model)
    known = {tuple(text): read(text) for text in texts}
    return lambda ids: known[tuple(ids)]


def _moments(reading: Reading, progress: Progress) -> "dict[str, tuple[Moments, ...]]":
    from runtime.quality.fisher import moments

    try:
        with bar(progress, "formats: gradient tokens", sum(map(len, reading.calibration))):
            return moments(reading.model, reading.calibration, progress.advance)
    except (ValueError, RuntimeError, NotImplementedError):  # what MLX raises where there is no gradient
        return {}


def _foreseen(reading: Reading, group: Group, seen: "dict[str, tuple[Moments, ...]]") -> list[float]:
    from runtime.quality.errors import costs

    modules, formats = dict(reading.model.network.named_modules()), group.formats()
    kind = group.stored(formats[0])
    found: list[list[float]] = []
    for path in group.modules:
        weight, uses = modules[path]["weight"], seen[path]
        if kind.turned(weight):
            weight, uses = weight.swapaxes(-1, -2), tuple(one.turned() for one in uses)
        found.append(costs(weight, uses, formats, kind.dtype))
    return [sum(one) for one in zip(*found, strict=True)]


def _found(reading: Reading, group: Group) -> list[float]:
    """One format measured, the others by what they do to the weights beside it."""
    from runtime.quality.fisher import even

    modules, formats = dict(reading.model.network.named_modules()), group.formats()
    alike = {path: (even(modules[path]["weight"].shape),) for path in group.modules}
    totals = _foreseen(reading, group, alike)
    probe = min(range(len(formats)), key=lambda at: (abs(formats[at].bits - _PROBE_BITS), at))
    kl = measure(reading, group, formats[probe])
    return [one * kl / max(totals[probe], 1e-30) for one in totals]
