"""Groups of experts as configs describe them: how many there are and how many stay open to a token."""

from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel


def read_groups(
    fields: Fields,
    experts: int,
    chosen: int,
    *,
    default: int = 1,
    open_by_default: int = 1,
    judges: int = 2,
) -> tuple[int, int]:
    """(groups, open groups). judges: how many of its experts a group is judged by.

    Refused is what has no one answer: groups of unequal size or of fewer experts than judge them, and more
    experts chosen than are open (which closed ones come in then depends on how closing is written).
    """
    groups = fields.count("n_group", min(default, experts), high=experts)
    if experts % groups:
        fields.refuse("n_group", f"a divisor of {experts} experts")
    size = experts // groups
    if groups > 1 and size < judges:
        fields.refuse("n_group", f"groups of at least {judges} of the {experts} experts")
    top = fields.count("topk_group", min(open_by_default, groups), high=groups)
    if chosen > top * size:
        raise UnsupportedModel(
            f"config.json: {fields.name('num_experts_per_tok')} is {chosen}, and topk_group {top} of "
            f"{fields.name('n_group')} {groups} leaves {top * size} experts open"
        )
    return groups, top
