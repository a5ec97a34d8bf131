"""What a process does that finds itself on a rank above 0."""

import sys
from contextlib import suppress

from modelkit.errors import ModelkitError
from modelkit.opening.start import read_share
from modelkit.ranks.rank_group import RankGroup
from modelkit.ranks.rendezvous import join
from modelkit.settings import Settings
from runtime.errors import RuntimeFault


def follow(rank_group: RankGroup | None = None) -> int:
    """Do what rank 0 wants until it ends. The exit code: 1 where it ended otherwise, which is said."""
    try:
        rank_group = rank_group or join()
        rank_group.follow(Settings.from_environment(), read_share)
    except (ModelkitError, RuntimeFault) as error:
        which = "a rank" if rank_group is None else f"rank {rank_group.rank}"
        with suppress(OSError, ValueError):  # whoever started this may be gone, and its pipes with it
            print(f"modelkit: {which} ends: {error}", file=sys.stderr, flush=True)
        return 1
    return 0
