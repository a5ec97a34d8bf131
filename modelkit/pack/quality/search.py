"""A target -> a format for each matrix, and what came of it, measured.

    read        the model in memory, texts of its own                       `reading`
    costs       what each format of each matrix would cost                  `sensitivity`
    allocate    the best choice within the bytes that there are             `allocate`
    measure     the chosen model and the source, on the texts and on others

The same source, target and text give the same choice: texts and labels are drawn from a fixed seed, and
what is reported is rounded. Everything is decided before the first byte is written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from modelkit.errors import PlanError
from modelkit.modelfile import Quantizing
from modelkit.pack.part import Part
from modelkit.pack.planning.plan import plan
from modelkit.pack.planning.plan_types import Plan, Planned, Tuned
from modelkit.pack.planning.policy import Choice
from modelkit.pack.quality.allocate import Allocated, Option, allocate, least
from modelkit.pack.quality.options import CHOICES, HALVES, KEEP, Group, candidates, group
from modelkit.pack.quality.reading import Reading, read
from modelkit.pack.quality.report import Report, matrices
from modelkit.pack.quality.sensitivity import Costs, find_costs, measure, scaled
from modelkit.pack.quality.source_check import refuse_packed
from modelkit.pack.quality.student import compare, packed_student, tune_student
from modelkit.pack.writing.tuning import plan_with
from modelkit.progress import Progress, Silent
from modelkit.units import size
from runtime.quant import Format, find_format
from runtime.records import dataclass

if TYPE_CHECKING:
    from modelkit.pack.model_setup import ModelSetup
    from modelkit.pack.quality.report import Compared

_MARGIN = 0.2  # the share of groups that "measured" measures
_FINEST = "q8g32"


@dataclass(frozen=True, slots=True)
class Found:
    """What a search ends in."""

    plan: Plan
    choices: Mapping[str, Choice]
    """By the names of planned tensors; {} where the formats were given."""
    tuned: Mapping[str, Tuned]
    report: Report


@dataclass(frozen=True, slots=True)
class _Decided:
    """Formats that are decided, before it is known how well they do."""

    groups: Sequence[Group]
    options: Sequence[Option]
    """One for each group."""
    plan: Plan
    choices: Mapping[str, Choice]
    """As in Found."""
    measured: tuple[str, ...] = ()
    """Groups that no gradient reaches, so that one format was tried on the texts."""

    @property
    def costs(self) -> dict[str, float]:
        """In nats per token, by the names of groups."""
        return {one.name: option.cost for one, option in zip(self.groups, self.options, strict=True)}


def search(part: Part, asked: Quantizing, ready: "ModelSetup", progress: Progress) -> Found:
    """Formats for a part that was decided without one. Raises PlanError for a target that cannot be met."""
    refuse_packed(part, asked)
    fine = replanned(part, {})
    fixed = fine.nbytes - sum(tensor.nbytes for tensor in candidates(fine))
    reading = read(part, ready, asked.calibration, progress, train=asked.quality == "learned")
    groups, idle = groups_of(reading, fine)
    source = replanned(part, {one.name: Choice(None, KEEP) for one in candidates(fine)})
    groups = [_with_kept(one, source) for one in groups]
    fixed += sum(tensor.nbytes for tensor in idle)
    budget = _budget(asked, fine) - fixed
    _refuse_impossible(asked, source, fine, groups, fixed, budget)
    costs = find_costs(reading, groups, progress)
    chosen = allocate(costs.options, budget)
    if asked.quality in ("measured", "learned"):
        costs, again = _measured(reading, groups, costs, chosen, budget)
        some = [how for how in CHOICES if how.mode == "affine" or asked.quality == "measured"]
        some += HALVES
        chosen = _best(reading, groups, [again, chosen, *_largest_alike(costs, budget, some)])
    choices = _choices(groups, chosen.options, "of the cosine" if reading.vectors else "nats per token")
    halves = _halves(part)
    if halves and replanned(part, halves).nbytes <= budget + fixed < fixed + _bytes_as(groups, HALVES[0]):
        # 16 bits of a source in float32 are bfloat16, norms too: they must not push a matrix down to 8.
        chosen, choices = _alike(costs, HALVES[0].name), halves
    decided = replace(replanned(part, choices), format=None)
    found = _Decided(groups, chosen.options, decided, choices, costs.measured)
    return _tune_and_compare(asked, reading, found, progress)


def _halves(part: Part) -> dict[str, Choice]:
    """All that `--quantize bf16` would narrow."""
    inventory, (half,) = part.source.inventory, HALVES
    whole = plan(inventory, part.source.kind, half, role=part.plan.role, spare=part.spare, plain=True)
    narrowed = [one.name for one in whole.tensors if one.encode == half and one.dtype == "F32"]
    return dict.fromkeys(narrowed, Choice(half, "room for 16 bits"))


def _bytes_as(groups: Sequence[Group], how: Format) -> int:
    """Of groups that may all be stored so; else none."""
    return sum(one.nbytes(how) for one in groups) if all(how in one.formats() for one in groups) else 0


def tune_formats(part: Part, asked: Quantizing, ready: "ModelSetup", progress: Progress) -> Found:
    """Scales and biases for the formats that a part was decided with."""
    refuse_packed(part, asked)
    reading = read(part, ready, asked.calibration, progress, train=True)
    groups, _ = groups_of(reading, part.plan)
    options = [
        Option(one.tensors[0].label, one.nbytes(one.tensors[0].encode), float("nan")) for one in groups
    ]
    return _tune_and_compare(asked, reading, _Decided(groups, options, part.plan, {}), progress)


def _tune_and_compare(asked: Quantizing, reading: Reading, decided: _Decided, progress: Progress) -> Found:
    """The student made, tuned where that was asked for, and compared."""
    student = packed_student(reading, decided.groups, decided.options)
    before = compare(reading, student, progress)
    after, tuned = before, dict[str, Tuned]()
    if asked.quality == "learned":
        tuned = tune_student(reading, decided.groups, student, progress)
        after = compare(reading, student, progress)
        if not gains(before, after, own_text=reading.own):
            after, tuned = before, {}
    report = Report(
        asked=str(asked),
        bits_per_weight=decided.plan.bits_per_weight,
        size_bytes=decided.plan.nbytes,
        own_text=reading.own,
        calibration=after[0],
        held_out=after[1],
        matrices=matrices(decided.plan, decided.costs),
        measured=decided.measured,
        untuned=before[1] if asked.quality == "learned" else None,
    )
    return Found(plan_with(decided.plan, tuned), decided.choices, tuned, report)


def gains(before: Sequence["Compared"], after: Sequence["Compared"], *, own_text: bool) -> bool:
    """Is what was tuned worth keeping? Each is of the calibration texts and of those held out. own_text: are
    the first the model's own, as those are that it was tuned on? A text that was given may be of another
    kind, and must not lose more than the others win.
    """
    held_out = after[1].cost < before[1].cost
    return held_out and (own_text or sum(one.cost for one in after) < sum(one.cost for one in before))


def replanned(part: Part, choices: Mapping[str, Choice]) -> Plan:
    """All candidates in the finest format, but for those in `choices`."""
    inventory, default = part.source.inventory, _default(choices)
    return plan(
        inventory,
        part.source.kind,
        default,
        role=part.plan.role,
        spare=part.spare,
        plain=True,
        chosen=choices,
    )


def _default(choices: Mapping[str, Choice]) -> Format:
    """The format that most of them have: what config.json says of modules that it does not name."""
    names = [one.format.name for one in choices.values() if one.format and one.format.quantized]
    found = find_format(max(sorted(set(names)), key=names.count) if names else _FINEST)
    assert found is not None
    return found


def groups_of(reading: Reading, fine: Plan) -> tuple[list[Group], list[Planned]]:
    """The groups that the network is made of, and the candidates that it does not run."""
    from runtime.quality.owners import owners

    shapes = {tensor.name: tensor.shape for tensor in fine.tensors}
    made_of = owners(reading.model.described, shapes)
    modules = dict(reading.model.network.named_modules())
    made_of = {path: names for path, names in made_of.items() if "weight" in modules.get(path, {})}
    found = group(candidates(fine), made_of)
    idle = [tensor for one in found if not one.modules for tensor in one.tensors]
    return [one for one in found if one.modules], idle


def _with_kept(one: Group, source: Plan) -> Group:
    """source: the plan in which all candidates stay as they are."""
    sizes = {tensor.name: tensor.nbytes for tensor in source.tensors}
    return replace(one, kept_bytes=sum(sizes[tensor.name] for tensor in one.tensors))


def _budget(asked: Quantizing, fine: Plan) -> int:
    if asked.size_bytes is not None:
        return asked.size_bytes
    assert asked.bits is not None
    return int(asked.bits * fine.elements / 8)


def _refuse_impossible(
    asked: Quantizing, source: Plan, fine: Plan, groups: Sequence[Group], fixed: int, budget: int
) -> None:
    if not groups:
        raise PlanError(
            f"{source.role}: no matrix of it can be quantized, so {asked} cannot be met",
            hint="Their rows do not divide into groups, or they are too small. Leave the target out.",
        )
    sizes = [[Option(how.name, one.nbytes(how), 0.0) for how in one.formats()] for one in groups]
    lowest = fixed + least(sizes)
    if budget + fixed < lowest:
        raise PlanError(
            f"{asked} cannot be met: the least that the {source.role} takes is {_in_bits(lowest, fine)}",
            hint=f"The nearest target is {_bits(lowest, fine, up=True):g} bits, or {lowest:,} bytes.",
        )
    if budget + fixed >= source.nbytes:
        raise PlanError(
            f"{asked} is met already: the {source.role} takes {_in_bits(source.nbytes, fine)} as it is",
            hint="Leave the target out, or take a smaller one.",
        )


def _in_bits(nbytes: int, fine: Plan) -> str:
    return f"{size(nbytes)}, {_bits(nbytes, fine):.3g} bits per weight"


def _bits(nbytes: int, fine: Plan, *, up: bool = False) -> float:
    bits = 8 * nbytes / fine.elements
    return -(-bits * 100 // 1) / 100 if up else bits


def _measured(
    reading: Reading, groups: Sequence[Group], costs: Costs, chosen: Allocated, budget: int
) -> tuple[Costs, Allocated]:
    """What was foreseen of the groups at the margin, corrected by what they cost; then chosen again."""
    options = list(costs.options)
    for at in _marginal(costs, chosen):
        picked = chosen.options[at]
        if picked.name == KEEP or picked.cost <= 0:
            continue
        how = find_format(picked.name)
        assert how is not None
        options[at] = scaled(options[at], measure(reading, groups[at], how) / picked.cost)
    better = Costs(tuple(options), costs.measured)
    return better, allocate(better.options, budget)


def _best(reading: Reading, groups: Sequence[Group], ways: Sequence[Allocated]) -> Allocated:
    """Of several, the first of those that cost least on the calibration texts."""
    by_names = {tuple(option.name for option in one.options): one for one in reversed(ways)}
    different = [*by_names.values()][::-1]
    if len(different) == 1:
        return different[0]
    found = [
        compare(reading, packed_student(reading, groups, one.options), Silent())[0].cost for one in different
    ]
    return different[found.index(min(found))]


def _largest_alike(costs: Costs, budget: int, formats: Sequence[Format]) -> list[Allocated]:
    """One format for all, the largest that there is room for; none where none fits."""
    alike = [made for how in formats if (made := _alike(costs, how.name)).nbytes <= budget]
    return [max(alike, key=lambda made: made.nbytes)] if alike else []


def _alike(costs: Costs, name: str) -> Allocated:
    """One format for all that fit it; others stay."""
    picked = tuple(
        next((one for one in options if one.name == name), options[-1]) for options in costs.options
    )
    return Allocated(picked, sum(one.nbytes for one in picked), 0.0)


def _marginal(costs: Costs, chosen: Allocated) -> list[int]:
    """The groups whose next or last step is worth about as much as the last byte was."""
    from math import inf, log

    from modelkit.pack.quality.allocate import hull

    def distance(at: int) -> float:
        points, picked = hull(costs.options[at]), chosen.options[at]
        slopes = [
            (a.cost - b.cost) / (b.nbytes - a.nbytes)
            for a, b in pairwise(points)
            if picked.name in (a.name, b.name)
        ]
        near = [abs(log(one / chosen.slope)) for one in slopes if one > 0 and 0 < chosen.slope < inf]
        return min(near, default=inf)

    order = sorted(range(len(chosen.options)), key=lambda at: (distance(at), at))
    return sorted(order[: max(round(_MARGIN * len(order)), 1)])


def _choices(groups: Sequence[Group], options: Sequence[Option], unit: str) -> dict[str, Choice]:
    """By the names of planned tensors. unit: of what they cost."""
    found: dict[str, Choice] = {}
    for one, option in zip(groups, options, strict=True):
        how = None if option.name == KEEP else find_format(option.name)
        reason = f"costs {option.cost:.2g} {unit}" if how else "worth all its bits"
        found.update((tensor.name, Choice(how, reason)) for tensor in one.tensors)
    return found
