"""One rank of two of a model, of which the other is lost while both read what is kept of a prompt on disk:
python -m tests.support.losing_pages HOW

HOW: a signal (KILL, STOP) that rank 1 sends itself at its second page. Rank 0 prints JSON.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from runtime.cache import disk_pages
from runtime.cache.page_files import Tensor
from runtime.cache.page_folder import PrefixFolder
from runtime.cpu import native
from runtime.engine.engine import Engine
from runtime.errors import RankLost
from runtime.ranks.follow import Follower
from runtime.ranks.group import Group
from runtime.ranks.lead import Leading
from tests.support.crewing import PROMPT, options, request, share_of
from tests.support.parity import Reference

KIND, CUT = "llama", "stages"
LIMIT_S = {"KILL": 100.0, "STOP": 2.0}
"""Who is killed is noticed by the end of the connection, whatever the limit."""


def follow(group: Group, kept: PrefixFolder, how: str) -> None:
    read, asked = disk_pages.read_page, list[Path]()

    def lose(path: Path) -> dict[str, Tensor]:
        asked.append(path)
        if len(asked) == 2:
            os.kill(os.getpid(), getattr(signal, f"SIG{how}"))
        return read(path)

    disk_pages.read_page = lose
    for _ in range(2):
        Follower(group, share_of(Reference(KIND), Path("model-1"), CUT, group, {}), kept).run()


def lead(group: Group, kept: PrefixFolder) -> object:
    ended, began = "", 0.0
    for _ in range(2):
        engine = Engine(
            lambda: share_of(Reference(KIND), Path("model-0"), CUT, group, {}),
            options(prefix_folder=kept, mark_spacing=1),
            leading=Leading(group),
        )
        began = time.monotonic()
        try:
            with engine.submit(request(PROMPT, 6, marks=(9, 20))) as stream:
                list(stream)
            engine.close()
        except RankLost as error:
            ended = str(error)
    return {"ended": ended, "s": time.monotonic() - began}


if __name__ == "__main__":
    its = Group.join("ring", LIMIT_S[sys.argv[1]], native.kernels)
    folder = PrefixFolder(Path(f"pages-{its.rank}"), "sha256:aa", 1 << 30, f"rank {its.rank}")
    if its.rank:
        follow(its, folder, sys.argv[1])
    else:
        print(json.dumps(lead(its, folder)), flush=True)
    os._exit(0)  # MLX would wait for what is in flight
