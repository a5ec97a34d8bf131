"""The model as it would be stored, beside its source in memory: compared with it, and tuned towards it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from modelkit.pack.planning.plan_types import Tuned
from modelkit.pack.quality.allocate import Option
from modelkit.pack.quality.options import Group
from modelkit.pack.quality.reading import Reading
from modelkit.pack.writing.tuning import tuned_of
from modelkit.progress import Progress, bar
from runtime.quant import find_format

if TYPE_CHECKING:
    from modelkit.pack.quality.report import Compared
    from runtime.loaded import LoadedModel


def packed_student(reading: Reading, groups: Sequence[Group], options: Sequence[Option]) -> "LoadedModel":
    """options: one for each group, by the name of its format."""
    from runtime.quality.student import with_packed

    stored = {
        path: one.stored(how)
        for one, option in zip(groups, options, strict=True)
        if (how := find_format(option.name)) is not None
        for path in one.modules
    }
    return with_packed(reading.model, stored)


def compare(reading: Reading, student: "LoadedModel", progress: Progress) -> "tuple[Compared, Compared]":
    """With the source, on the calibration texts and on those that are held out."""
    from runtime.quality.divergence import divergence, likeness, reader

    compared = likeness if reading.vectors else divergence
    every = (*reading.calibration, *reading.held_out)
    with bar(progress, "formats: comparing tokens", sum(map(len, every))):
        first, second = reader(reading.model), reader(student)
        return (
            compared(first, second, reading.calibration, progress.advance),
            compared(first, second, reading.held_out, progress.advance),
        )


def tune_student(
    reading: Reading, groups: Sequence[Group], student: "LoadedModel", progress: Progress
) -> dict[str, Tuned]:
    """The student computes with what was found from here on. By the names of tensors: those whose matrix in
    the network is exactly the stored one; others stay as their format makes them.
    """
    import mlx.core as mx

    from runtime.quality.distil import put, tune

    modules = dict(student.network.named_modules())
    own = {
        one.modules[0]: one
        for one in groups
        if len(one.tensors) == len(one.modules) == 1
        and "biases" in modules[one.modules[0]]
        and modules[one.modules[0]]["scales"].shape[:-1] == one.tensors[0].shape[:-1]
    }
    tokens = reading.steps * min(4, len(reading.training)) * len(reading.training[0])
    with bar(progress, "formats: tuning tokens", tokens):
        found = tune(reading.model, student, reading.training, reading.steps, progress.advance)
    found = {path: pair for path, pair in found.items() if path in own}
    before = {path: np.array(modules[path]["scales"].astype(mx.float32)) for path in found}
    put(student, found, {path: one.stored_dtype() for path, one in own.items()})
    after = {path: [np.array(modules[path][leaf]) for leaf in ("scales", "biases")] for path in found}
    return {own[path].name: tuned_of(before[path], *after[path]) for path in found}
