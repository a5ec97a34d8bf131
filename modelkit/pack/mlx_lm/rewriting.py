"""Which fixes a package needs, and what is left to say of it."""

from modelkit.pack.mlx_lm.fixes import find
from modelkit.pack.mlx_lm.limits import Limit, limits
from modelkit.pack.mlx_lm.mutable_folder import MutableFolder
from modelkit.pack.mlx_lm.pieces import CannotFix
from runtime.config.text import levels
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The folder in mlx-lm's form."""

    folder: MutableFolder
    done: tuple[str, ...]
    """What was changed, a few words each."""
    left: tuple[Limit, ...]
    """What mlx-lm computes otherwise still."""


def rewritten(folder: MutableFolder) -> Rewritten:
    """Every sentence that holds is tried once; what holds only after a fix is tried too."""
    done: dict[Limit, str] = {}
    tried: set[Limit] = set()
    while True:
        rest = [row for row in limits(folder.config, folder.names()) if row not in done]
        waiting = [row for row in rest if row not in tried]
        if not waiting:
            return Rewritten(folder, tuple(done.values()), tuple(rest))
        row = waiting[0]
        tried.add(row)
        kinds = frozenset(str(block.get("model_type")) for _, block in levels(folder.config))
        fix, trial = find(kinds, row.says), folder.copy()
        if fix is None:
            continue
        try:
            done[row] = fix.act(trial)
        except CannotFix:
            continue
        folder = trial
