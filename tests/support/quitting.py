"""One rank of three, of which the second passes on late what it hears: python -m tests.support.quitting"""

import sys
from typing import Any

import mlx.core as mx

from modelkit.ranks import rank_group as crews
from modelkit.ranks.follower import follow
from modelkit.ranks.rank_group import RankGroup
from modelkit.ranks.rendezvous import join


def late(crew: RankGroup) -> None:
    """What is sent from here waits for a second of work."""
    group: Any = crew._group
    send = group.send

    def after_work(x: mx.array, to: int) -> mx.array:
        wide = mx.ones((2000, 2000))
        for _ in range(4):
            wide = mx.sort(wide + mx.random.uniform(shape=wide.shape), axis=0)
        return send(mx.depends(x, wide), to)

    group.send = after_work


if __name__ == "__main__":
    crews._LEAVING_S = 100  # where many have work, its second is longer
    its = join()
    if its.rank == 1:
        late(its)
    if its.rank:
        sys.exit(follow(its))
