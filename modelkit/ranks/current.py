"""The ranks that this process is one of, or None. Apart, since most processes are none of several."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modelkit.ranks.rank_group import RankGroup

_current_group: "RankGroup | None" = None


def current_group() -> "RankGroup | None":
    """That of this process; None where it works alone."""
    return _current_group


def set_current_group(rank_group: "RankGroup") -> "RankGroup":
    """From now on, for as long as this process lives."""
    global _current_group
    _current_group = rank_group
    return rank_group
