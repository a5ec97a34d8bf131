"""Starting a model on all ranks at once: they agree on what it is and who gets what, and then read.

All call it at the same time. What goes wrong on one rank is said on all, and ends it for all.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from modelkit.errors import LoadError, ModelkitError
from modelkit.ranks.facts import Member, own_facts
from modelkit.ranks.job import Job, identity, plan_of
from modelkit.ranks.progress import OnBytes, Pace, Progress
from modelkit.requests.attached import contents
from runtime.errors import RankLost, RuntimeFault, TooLarge
from runtime.loaded import LoadedModel
from runtime.ranks.load import Assignment
from runtime.ranks.plan import Plan

if TYPE_CHECKING:
    from modelkit.opening.opened import Opened
    from modelkit.ranks.package_transfer import Brought
    from modelkit.ranks.wants import SlicedWeights

_LOADING_S = 3600.0
"""How long reading weights may take on any machine."""

_LESS = (
    "Give it less to hold: a smaller num_ctx, num_parallel or kv_format, fewer bits, more machines, or "
    "another cut (`modelkit plan` shows what each has)."
)

Read = Callable[["Opened", Assignment, OnBytes, "SlicedWeights | None"], LoadedModel]
"""Reads what is assigned to this rank, of what was opened or of slices that it was given, and calls back with
the bytes of each tensor."""


def read_together(
    member: Member,
    opened: "Opened | None",
    problem: str | None,
    job: Job,
    read: Read,
    progress: Progress,
    on_bytes: OnBytes,
    brought: "Brought",
) -> LoadedModel:
    """This rank's share. problem: why nothing was opened here. on_bytes: called with what all ranks have
    read; what it raises ends it. brought: what ranks have been given. Raises LoadError.
    """
    plan = _plan_together(member, opened, problem, job)
    assert opened is not None
    assigned = _assigned(member, plan, job)
    sliced, notes = _sliced(member, opened, assigned, brought, progress)

    def agree(done_bytes: int) -> list[int]:
        said = member.agree({"read": done_bytes}, within_s=_LOADING_S)
        return [facts["read"] for facts in said]

    pace = Pace([one.weight_bytes for one in plan.shares], member.rank, agree, on_bytes, progress)
    try:
        share = read(opened, assigned, pace.read, sliced)
        pace.finish()
    except RankLost:
        raise
    except Exception as fault:
        progress.over()
        if pace.failed:
            raise
        with suppress(LoadError):  # what happened here says more
            said = str(fault) or type(fault).__name__
            member.agree({"problem": said}, within_s=_LOADING_S)
        if member.rank > 0:
            raise LoadError(str(fault)) from fault
        raise
    return replace(share, notes=(*notes, *share.notes))


def _plan_together(member: Member, opened: "Opened | None", problem: str | None, job: Job) -> Plan:
    """The plan that all ranks have made of what each has opened. Raises LoadError where one has nothing, or
    another thing.
    """
    package = None if opened is None else identity(opened)
    adapters = None if opened is None else contents(opened.adapters)
    own = {**own_facts(member.group), "host": member.host}
    mine = {**own, "problem": problem, "package": package, "adapters": adapters}
    facts = member.agree(mine, ("package", "adapters"))
    plan = None
    assert opened is not None
    try:
        plan = plan_of(opened, job, facts)
    except TooLarge as fault:
        problem = f"{fault}. {_LESS}"
    except (RuntimeFault, ModelkitError) as fault:
        problem = str(fault)
    member.agree({"problem": problem, "plan": plan and plan.digest}, ("plan",))
    assert plan is not None
    return plan


def _assigned(member: Member, plan: Plan, job: Job) -> Assignment:
    leads = member.group.rank == 0
    return Assignment(plan, member.group, job.with_head and leads, job.copied if leads else ())


def _sliced(
    member: Member, opened: "Opened", assigned: Assignment, brought: "Brought", progress: Progress
) -> "tuple[SlicedWeights | None, tuple[str, ...]]":
    """What this rank loads of, where it has no files of its own; and sentences for the user."""
    if not brought.in_slices:
        return None, ()
    from modelkit.ranks.slices import give_slices

    try:
        return give_slices(member, opened, brought.outline, assigned, partial(progress.at, "fetched"))
    finally:
        progress.over()
