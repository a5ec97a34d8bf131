"""Is a draft, as it would be stored, the same model as its target? Then it saves no time, and is refused.

Two folders may hold the same weights. Where nothing else tells them apart, their bytes are compared, no
further than the first difference. A draft that is stored in another format than its target is another,
cheaper model.
"""

from modelkit.errors import PlanError
from modelkit.pack.part import Part
from modelkit.pack.writing.reader import Reader, same_data


def refuse_same(target: Part, draft: Part) -> None:
    """Raise PlanError for a draft whose stored weights would be those of its target."""
    if _paths(target) == _paths(draft) or (_same_plan(target, draft) and _same_bytes(target, draft)):
        raise PlanError(
            f"the draft is its own target: {draft.source.inventory.origin} has the same weights",
            hint="A draft pays when it is smaller than its target.",
        )


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
