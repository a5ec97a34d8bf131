"""A rank that does one thing after the other: python -m tests.support.working, with work on its input.

A line of work is JSON: a module, a function of it, the folder to be in, and the arguments behind the group.
What the function gave is a line behind MARK; where it raised, that is said, and the rank ends. Where it is
ended by a signal, it says where its threads are.
"""

import faulthandler
import gc
import json
import os
import sys
import traceback
from importlib import import_module

import mlx.core as mx

from runtime.cpu import native
from runtime.ranks.group import Group

MARK = "answer: "


def main() -> int:
    faulthandler.enable()
    group = Group.join("ring", 120, native.kernels)
    for line in sys.stdin:
        module, name, folder, words = json.loads(line)
        os.chdir(folder)
        try:
            work = getattr(import_module(module), name)
            gc.freeze()  # what was imported is not garbage, which every model that is closed looks for
            answer = work(group, *words)
        except Exception:  # noqa: BLE001 -- said, and the others end with this one
            traceback.print_exc()
            return 1
        print(MARK + json.dumps(answer), flush=True)
    if not group.lost:
        mx.synchronize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
