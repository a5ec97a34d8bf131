"""Pairs of an adapter -> each with its one matrix, the right way round.

PEFT's form does not say which of a module's stacks a pair is for, nor whether it is for the matrices or
their transposes: its versions differ in that, and so do transformers' (`peft_config`). What arrives tells,
but of square matrices. There all stacks of an adapter are alike, and one that is not square tells for them;
else the version that wrote the file does, where it can. Nothing is guessed. No number is read.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from modelkit.source.adapters.value import AdapterSource, Factor, Pair, refuse
from runtime.loading.row_trace import trace
from runtime.loading.shapes import is_stack, parameters, stack_layouts
from runtime.models import Described
from runtime.quoting import shown

Shapes = Mapping[str, tuple[int, ...]]

HINT = "An adapter fits the base that it was trained on, and no other."

_Waiting = list[tuple[Pair, list[Pair]]]
"""Pairs, and what each may be."""


def oriented(
    adapter: AdapterSource, described: Described, stored: Shapes, tables: Collection[str]
) -> dict[str, Pair]:
    """The pairs by the names of their matrices. stored: the base's own tensors (name -> shape). tables: the
    network's modules that are looked up in. Raises SourceError, WeightMismatch.
    """
    settled: dict[str, Pair] = {}
    looked_up = _looked_up(adapter, described, stored, tables)
    waiting: _Waiting = []
    square: list[Pair] = []
    for pair in adapter.pairs:
        options = _options(pair, looked_up)
        if len(options) == 1:
            _claim(settled, options[0], adapter)
        elif pair.shape[-1] == pair.shape[-2]:
            square.append(pair)
        else:
            waiting.append((pair, options))
    _settle(settled, waiting, adapter, described, stored)
    if square:
        seen = {settled[name].left.turned for name in settled if settled[name].either_way}
        known = [(pair, _one_way(pair, seen, adapter, described, stored)) for pair in square]
        _settle(settled, _without(known, settled), adapter, described, stored)
    return settled


def _settle(
    settled: dict[str, Pair],
    waiting: _Waiting,
    adapter: AdapterSource,
    described: Described,
    stored: Shapes,
) -> None:
    """Let each be what arrives of what it may be."""
    while waiting:
        tried: dict[str, int] = {}
        for place, (_, options) in enumerate(waiting):
            if options and options[0].names[0] not in tried and options[0].names[0] not in settled:
                tried[options[0].names[0]] = place
        if not tried:
            names = dict.fromkeys(shown(pair.names[0]) for pair, _ in waiting)  # two may be for one module
            refuse(
                adapter.label, [f"{name} has a pair of shapes that the base has not" for name in names], HINT
            )
        shapes = {name: waiting[place][1][0].shape for name, place in tried.items()}
        found = trace(described, shapes, stored, adapter.form)
        for name, place in tried.items():
            if name in found.lost:
                waiting[place][1].pop(0)
            else:
                settled[name] = waiting[place][1][0]
        done = {place for name, place in tried.items() if name not in found.lost}
        waiting = _without([one for place, one in enumerate(waiting) if place not in done], settled)


def _without(waiting: _Waiting, settled: Collection[str]) -> _Waiting:
    return [(pair, [one for one in options if one.names[0] not in settled]) for pair, options in waiting]


def _looked_up(
    adapter: AdapterSource, described: Described, stored: Shapes, tables: Collection[str]
) -> set[str]:
    """Which of mlx-lm's pairs, that say so by their shapes alone, are for tables."""
    if adapter.kind != "mlx-lm":
        return set()
    network = parameters(described)
    shapes = {network[f"{table}.weight"] for table in tables}
    asked = {
        pair.names[0]: pair.shape[::-1]
        for pair in adapter.pairs
        if pair.magnitude is None and pair.shape[::-1] in shapes
    }
    arrivals = trace(described, asked, stored, adapter.form).arrivals if asked else ()
    return {name for one in arrivals if one.name.removesuffix(".weight") in tables for name in one.sources}


def _options(pair: Pair, looked_up: Collection[str]) -> list[Pair]:
    one = _each(pair)
    if pair.names[0] in looked_up:
        return [replace(_turned(one[0]), table=True)]
    return [*one, *(_turned(option) for option in one if option.either_way)]


def _each(pair: Pair) -> list[Pair]:
    return [replace(one, others=()) for one in (pair, *pair.others)]


def _one_way(
    pair: Pair, seen: Collection[bool], adapter: AdapterSource, described: Described, stored: Shapes
) -> list[Pair]:
    """What a square one may be. seen: are those that are not square turned?"""
    options = _each(pair)
    turned = next(iter(seen)) if len(seen) == 1 else _by_version(options, adapter, described)
    if turned is None and any(_fits(one, adapter, described, stored) for one in options):
        refuse(
            adapter.label,
            [
                f"{shown(pair.names[0])} is square, so A and B fit it either way round, and nothing says "
                "which is meant"
            ],
            "A pair for the other stack of the experts beside it would tell. Or let PEFT make it part of the "
            "model (`merge_and_unload`), and name that in FROM.",
        )
    return [_turned(one) if turned else one for one in options]


def _by_version(options: Sequence[Pair], adapter: AdapterSource, described: Described) -> bool | None:
    """Are they turned, by who wrote the file? None: that does not tell."""
    if not all(is_stack(one.names[0]) for one in options):
        return None
    layouts = {layout for one in options for layout in stack_layouts(described, one.names[0], one.shape)}
    told = {adapter.stacks_turned.get(layout) for layout in layouts}
    return told.pop() if len(told) == 1 else None


def _fits(pair: Pair, adapter: AdapterSource, described: Described, stored: Shapes) -> bool:
    return not trace(described, {pair.names[0]: pair.shape}, stored, adapter.form).lost


def _turned(pair: Pair) -> Pair:
    """For the transpose of the matrix."""
    return replace(pair, left=_swapped(pair.right), right=_swapped(pair.left))


def _swapped(factor: Factor) -> Factor:
    return replace(factor, turned=not factor.turned)


def _claim(settled: dict[str, Pair], pair: Pair, adapter: AdapterSource) -> None:
    if pair.names[0] in settled:
        refuse(adapter.label, [f"{shown(pair.names[0])} has two pairs"])
    settled[pair.names[0]] = pair
