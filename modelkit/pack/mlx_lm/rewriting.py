"""Which mends a package needs, and what is left to say of it."""

from modelkit.pack.mlx_lm.limits import Limit, limits
from modelkit.pack.mlx_lm.mends import find
from modelkit.pack.mlx_lm.pieces import CannotMend
from modelkit.pack.mlx_lm.sheet import Sheet
from runtime.config.text import levels
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A sheet in mlx-lm's form."""

    sheet: Sheet
    done: tuple[str, ...]
    """What was changed, a few words each."""
    left: tuple[Limit, ...]
    """What mlx-lm computes otherwise still."""


def rewritten(sheet: Sheet) -> Rewritten:
    """Every sentence that holds is tried once; what one mend brings to light is tried too."""
    done: dict[Limit, str] = {}
    tried: set[Limit] = set()
    while True:
        rest = [row for row in limits(sheet.config, sheet.names()) if row not in done]
        waiting = [row for row in rest if row not in tried]
        if not waiting:
            return Rewritten(sheet, tuple(done.values()), tuple(rest))
        row = waiting[0]
        tried.add(row)
        kinds = frozenset(str(block.get("model_type")) for _, block in levels(sheet.config))
        mend, trial = find(kinds, row.says), sheet.copy()
        if mend is None:
            continue
        try:
            done[row] = mend.act(trial)
        except CannotMend:
            continue
        sheet = trial
