"""One rank of several that bring a package to those which lack it (`scenes`), and such a rank that is killed.

Each has a store of its own in its folder, `home-RANK`; rank 0's has the package, of random files. Pieces are
small, so that there are many.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modelkit.address import RegistryAddress
from modelkit.errors import LoadError, ModelNotFound
from modelkit.fetch.registry.origin import keep_origin
from modelkit.ranks import package_transfer, rounds
from modelkit.ranks.fetching import Fetching
from modelkit.ranks.progress import Progress
from modelkit.store import Store, build_artifact
from runtime.cpu import native
from runtime.errors import RankLost
from runtime.ranks.group import Group
from tests.support.fake_registry import FakeRegistry

PIECE_BYTES, ROUND_BYTES = 1000, 4000
NAMES = ("config.json", "tokenizer.json", "model-1.safetensors", "model-2.safetensors", "empty.txt")


def contents(seed: int) -> dict[str, bytes]:
    random = np.random.default_rng(seed)
    return {name: random.bytes(20 + 9001 * number) for number, name in enumerate(NAMES[:-1])} | {
        "empty.txt": b""
    }


def made(home: Path, name: str, seed: int) -> str:
    """Store a package; its digest."""
    with Store(home).begin() as new:
        files = {path: new.add_bytes(data) for path, data in contents(seed).items()}
        return str(new.commit(name, build_artifact(files)))


def here(home: Path, name: str) -> dict[str, Any]:
    """What a store has, whether all of it is right, and how many files are left of what was given up."""
    store = Store(home)
    try:
        digest = str(store.digest(name))
    except ModelNotFound:
        digest = None
    report = store.verify()
    left = [] if report.problems else store.prune(dry_run=True).temp_files
    return {
        "digest": digest,
        "problems": [str(one) for one in report.problems],
        "blobs": report.blobs,
        "left": len(left),
        "mine": home.name == "home-0",
    }


class Scene:
    """Rank 0 makes a package of some name, and all call `bring`."""

    def __init__(self, group: Group) -> None:
        self.group, self.home = group, Path(f"home-{group.rank}").absolute()

    def named(self, name: str, seed: int) -> str:
        """The package, which all have made once, to know its digest; rank 0 keeps it."""
        home = self.home if self.group.rank == 0 else Path(f"elsewhere-{self.group.rank}").absolute()
        return made(home, name, seed)

    def bring(self, name: str, digest: str) -> dict[str, Any]:
        said: dict[str, Any] = {}
        try:
            hosts, progress = ["here"] * self.group.size, Progress(self.group.size)
            with package_transfer.bring(self.group, self.home, name, digest, hosts, progress) as brought:
                said["notes"] = brought.notes
        except LoadError as error:
            said["problem"] = error.message
        return said | here(self.home, name)

    def blob(self, name: str, path: str) -> Path:
        return Store(self.home).resolve(name).files[path]


def missing(scene: Scene) -> Any:
    """All of it, and then one blob of it."""
    digest = scene.named("whole", 1)
    first = scene.bring("whole", digest)
    if scene.group.rank:
        scene.blob("whole", "model-1.safetensors").unlink()
    return {"digest": digest, "first": first, "again": scene.bring("whole", digest)}


def same(scene: Scene) -> Any:
    """All have it."""
    digest = made(scene.home, "same", 2)
    return {"digest": digest, "said": scene.bring("same", digest)}


def other(scene: Scene) -> Any:
    """Another one of that name."""
    digest = scene.named("other", 3)
    own = made(scene.home, "other", 4) if scene.group.rank else digest
    return {"own": own, "said": scene.bring("other", digest)}


def spoiled(scene: Scene) -> Any:
    """Rank 0 sends other bytes, not all of them, and the manifest of another package than it said."""
    said = list[Any]()
    for turn, seed in enumerate((5, 6, 7)):
        name = f"spoiled-{turn}"
        digest = scene.named(name, seed)
        if scene.group.rank == 0:
            path = scene.blob(name, "model-2.safetensors")
            path.chmod(0o644)
            raw = path.read_bytes()
            path.write_bytes((raw[:-1] + b" ", raw[:-1], raw)[turn])
            digest = made(scene.home, "another", 70) if turn == 2 else digest
        said.append(scene.bring(name, digest))
    return said


def registry(scene: Scene, name: str = "away", lacks: int = 0) -> Any:
    """A registry has all blobs, or all but the last."""
    digest = scene.named(name, 8 + lacks)
    if scene.group.rank:
        return {"digest": digest, "said": scene.bring(name, digest)}
    store = Store(scene.home)
    with FakeRegistry() as running:
        blobs = sorted(store.resolve(name).manifest.blobs)
        for blob in blobs[: len(blobs) - lacks]:
            running.put_blob("amy/away", store.blob_path(blob.digest).read_bytes())
        keep_origin(store, store.digest(name), RegistryAddress(running.host, "amy/away", "q4"))
        said = scene.bring(name, digest)
        asked = running.count("GET", "/blobs/")
    return {"digest": digest, "said": said, "asked": asked, "blobs": len(blobs) - 1}  # one is empty


def half(scene: Scene) -> Any:
    """A registry has not all of it."""
    return registry(scene, "half", 1)


def stalled(scene: Scene) -> Any:
    """A rank whose disk does not answer."""
    digest = scene.named("stalled", 12)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rounds, "_STALLED_S", 0.3)
        patched.setattr(Fetching, "_missing", lambda self: self._over.wait(30) and [])
        return scene.bring("stalled", digest)


def rest(scene: Scene) -> Any:
    """What a killed rank had of it is not sent again."""
    digest = scene.named("killed", 9)
    before = here(scene.home, "killed")
    said = scene.bring("killed", digest)
    Store(scene.home).prune()
    return {"digest": digest, "before": before, "said": said | here(scene.home, "killed")}


SCENES: dict[str, Callable[[Scene], Any]] = {
    one.__name__: one for one in (missing, same, other, spoiled, registry, half, stalled, rest)
}


def scenes(group: Group, *names: str) -> dict[str, Any]:
    """What each gave on this rank."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rounds, "PIECE_BYTES", PIECE_BYTES)
        patched.setattr(rounds, "ROUND_BYTES", ROUND_BYTES)
        patched.setattr(os, "fsync", lambda fd: None)
        return {name: SCENES[name](Scene(group)) for name in names}


def killed() -> None:
    """A rank 1 that dies when half of a large blob is there."""
    group = Group.join("ring", 10, native.kernels)
    taken = Fetching.take

    def take(self: Fetching, number: int, start: int, piece: bytes) -> None:
        taken(self, number, start, piece)
        if start > 9000:
            self.state()
            os.kill(os.getpid(), signal.SIGKILL)

    Fetching.take = take
    rounds.PIECE_BYTES, rounds.ROUND_BYTES = PIECE_BYTES, ROUND_BYTES
    scene = Scene(group)
    digest = scene.named("killed", 9)
    try:
        scene.bring("killed", digest)
    except RankLost as error:
        print(error, flush=True)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(killed())
