"""A process that uses a store as fast as it can; several at once are what test_concurrency.py runs.

    python hammer.py HOME SEED SECONDS

At least LEAST operations, and more while SECONDS have not passed. Prints a line before the first and one at
the end. Ends with a traceback if anything fails that should not.
"""

import os
import random
import sys
import time
from contextlib import suppress
from pathlib import Path

from modelkit.errors import ModelNotFound
from modelkit.store import BrokenPackage, Digest, Store
from tests.modelkit.store.packages import put

LEAST = 20  # on a busy machine a process may get none of its seconds
NAMES = ("a", "b", "amy/c:q4")


def tree(dice: random.Random) -> dict[str, bytes]:
    """Few different files, so that processes meet over the same blobs."""
    return {f"{n}.json": bytes([dice.randrange(4)]) * 100 for n in range(dice.randrange(1, 4))}


def step(store: Store, dice: random.Random) -> None:
    name, other = dice.choice(NAMES), dice.choice(NAMES)
    action = dice.choice(("create", "create", "hold", "list", "copy", "remove", "prune", "give up", "memo"))
    if action == "create":
        put(store, name, tree(dice))
    elif action == "hold":
        with store.hold(name) as package:
            for layer in package.manifest.layers:
                assert Digest.of(package.files[layer.path].read_bytes()) == layer.blob.digest
    elif action == "list":
        broken = [package for package in store.packages() if isinstance(package, BrokenPackage)]
        assert not broken, broken
    elif action == "copy":
        store.copy(name, other)
    elif action == "remove":
        store.remove(name)
    elif action == "prune":
        store.prune()
    elif action == "memo":
        store.memo_put(name, {"blob": str(Digest.of(b"\0" * 100))})
        store.memo_get(other)
    else:
        with store.begin() as new:
            for data in tree(dice).values():
                new.add_bytes(data)


def main(home: Path, seed: int, seconds: float) -> None:
    os.fsync = lambda fd: None
    store, dice, count, end = Store(home), random.Random(seed), 0, time.monotonic() + seconds
    print("at work", flush=True)
    while count < LEAST or time.monotonic() < end:
        with suppress(ModelNotFound):  # another process was faster
            step(store, dice)
        count += 1
    print("done")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
