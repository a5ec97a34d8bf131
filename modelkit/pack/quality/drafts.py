"""A draft's format, so that target and draft together are fastest.

Each format is tried on texts that the target writes: how much the draft's distribution has in common with the
target's says how often a guess is kept, bytes say what a guess costs, and both together how many tokens per
second to expect. Fewer bits make guesses cheaper and worse; where that turns is found, not assumed.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from modelkit.errors import PlanError
from modelkit.modelfile import Quantizing
from modelkit.pack.accept import decide
from modelkit.pack.part import Part
from modelkit.pack.planning.plan_types import Plan
from modelkit.pack.planning.policy import Choice
from modelkit.pack.quality.allocate import Option
from modelkit.pack.quality.float_model import load
from modelkit.pack.quality.options import KEEP, Group
from modelkit.pack.quality.reading import Reading, read
from modelkit.pack.quality.report import Report, matrices
from modelkit.pack.quality.search import Found, groups_of
from modelkit.pack.quality.source_check import refuse_packed
from modelkit.pack.quality.student import compare, packed_student
from modelkit.progress import Progress, bar
from runtime.quant import find_format

if TYPE_CHECKING:
    from modelkit.pack.model_setup import ModelSetup

TRIED = (KEEP, "q8", "q6", "q5", "q4", "q4g32", "q3", "q3g32", "q2g32", "mxfp4")


def fastest(part: Part, target: Part, asked: Quantizing, ready: "ModelSetup", progress: Progress) -> Found:
    """The plan of a draft. Raises PlanError for one that is not a language model by itself."""
    from runtime.models import describe

    refuse_packed(part, asked)
    if describe(target.plan.config).start_id is not None:
        raise PlanError(
            f"{target.source.inventory.origin} answers what an encoder reads; a draft's formats are tried "
            "with targets that go on from their prompt",
            hint="Name the draft's format, such as q4.",
        )
    model = load(part)
    # The target's texts: what it writes is what is to be guessed.
    reading = read(target, ready, asked.calibration, progress, train=False, draft=model)
    beside = replace(reading, model=model)
    plans = {name: _plan(part, name) for name in TRIED}
    found = _offers(beside, reading, plans, target, progress)
    best = max(found, key=lambda one: (one["speed"], -one["size_bytes"]))
    plan, groups = plans[best["format"]], groups_of(beside, plans[best["format"]])[0]
    after = compare(beside, packed_student(beside, groups, _options(plan, groups)), progress)
    offers = [{key: value for key, value in one.items() if key != "size_bytes"} for one in found]
    report = Report(
        asked=str(asked),
        bits_per_weight=plan.bits_per_weight,
        size_bytes=plan.nbytes,
        own_text=reading.own,
        calibration=after[0],
        held_out=after[1],
        matrices=matrices(plan, {}),
        pair={"chosen": best["format"], "depth": best["depth"], "speed": best["speed"], "offers": offers},
    )
    return Found(replace(plan, format=None), _choices(plan), {}, report)  # nobody has asked for this one


def _plan(part: Part, name: str) -> Plan:
    how = None if name == KEEP else find_format(name)
    return decide(part.source, part.plan.role, how, settled=True, spare=part.spare).plan


def _offers(
    beside: Reading, reading: Reading, plans: Mapping[str, Plan], target: Part, progress: Progress
) -> list[dict[str, Any]]:
    """beside: the draft with the target's texts."""
    from runtime.quality.acceptance import best_depth, shared
    from runtime.quality.divergence import reader

    texts = reading.calibration
    known = {tuple(text): reader(reading.model)(text) for text in texts}
    offers: list[dict[str, Any]] = []
    with bar(progress, "draft: trying tokens", len(plans) * sum(map(len, texts))):
        for name, plan in plans.items():
            groups, _ = groups_of(beside, plan)
            student = packed_student(beside, groups, _options(plan, groups))
            kept = shared(lambda ids: known[tuple(ids)], reader(student), texts, progress.advance)
            cost = plan.nbytes / target.plan.nbytes
            depth, speed = best_depth(kept, cost)
            row = {"format": name, "acceptance": kept, "cost": cost, "speed": speed}
            rounded = {key: float(f"{row[key]:.4g}") for key in ("acceptance", "cost", "speed")}
            offers.append({"format": name, **rounded, "depth": depth, "size_bytes": plan.nbytes})
    return offers


def _options(plan: Plan, groups: list[Group]) -> list[Option]:
    """What the plan makes of each group."""
    made = {tensor.name: tensor for tensor in plan.tensors}
    return [Option(made[one.name].label, one.nbytes(made[one.name].encode), 0.0) for one in groups]


def _choices(plan: Plan) -> dict[str, Choice]:
    """Of all that is quantized or stays though it could be, so that the plan can be made again."""
    return {
        tensor.name: Choice(tensor.encode, tensor.reason) for tensor in plan.tensors if len(tensor.shape) > 1
    }
