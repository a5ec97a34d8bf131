"""Can a draft save time at all? One that is, as it would be stored, its own target is refused.

Two folders may hold the same weights. Where nothing else tells them apart, their bytes are compared, no
further than the first difference. A draft that is stored in another format than its target is another model,
which pays where it is smaller.
"""

from modelkit.errors import PlanError
from modelkit.pack.part import Part
from modelkit.pack.writing.reader import Reader, same_data
from modelkit.units import size


def refuse_same(target: Part, draft: Part) -> None:
    """Raise PlanError for a draft whose stored weights would be those of its target."""
    same_files = _paths(target) == _paths(draft)
    if _same_plan(target, draft) and (same_files or _same_bytes(target, draft)):
        raise PlanError(
            f"the draft is its own target: {draft.source.inventory.origin} has the same weights",
            hint="A draft pays when it is smaller than its target: another model, or a format of fewer bits.",
        )


def size_notes(target: Part, draft: Part) -> tuple[str, ...]:
    """A note on a draft that takes as much as its target."""
    if draft.plan.nbytes < target.plan.nbytes:
        return ()
    sizes = f"{size(draft.plan.nbytes)}, and the model has {size(target.plan.nbytes)}"
    return (f"the draft has {sizes}: one that is no smaller takes memory and hardly saves time",)


def _paths(part: Part) -> set[str]:
    return {str(file.path) for file in part.source.inventory.weights}


def _same_plan(target: Part, draft: Part) -> bool:
    """Do both store tensors of the same names, shapes and formats?"""
    ours, theirs = (part.plan.stored() for part in (target, draft))
    return ours == theirs


def _same_bytes(target: Part, draft: Part) -> bool:
    """Of every tensor, in whichever files they lie."""
    ours, theirs = (part.source.inventory.tensors for part in (target, draft))
    if ours.keys() != theirs.keys():
        return False
    with Reader(target.source.inventory.weights) as left, Reader(draft.source.inventory.weights) as right:
        return all(same_data(left, tensor, right, theirs[name]) for name, tensor in ours.items())
