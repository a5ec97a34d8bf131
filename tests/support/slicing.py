"""One rank of several of which rank 0 alone has the weights of a package (`scenes`), and such a rank that is
killed. Each has a store of its own in its folder, `home-RANK`.
"""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import modelkit
from modelkit.errors import LoadError
from modelkit.opening.read import open_model, open_outline
from modelkit.ranks import pieces, slices
from modelkit.ranks.facts import Member, own_facts
from modelkit.ranks.job import Job, plan_of
from modelkit.ranks.package_transfer import bring
from modelkit.ranks.progress import Progress
from modelkit.ranks.slices import give_slices
from modelkit.settings import Settings
from modelkit.store import Store
from modelkit.store.slices import SliceWriter
from runtime.cpu import native
from runtime.errors import RankLost
from runtime.ranks.group import Group
from runtime.ranks.load import Assignment
from runtime.ranks.slices import Slice
from tests.support.tiny import write_model

NAME = "story"


class Scene:
    def __init__(self, group: Group) -> None:
        self.group, self.home = group, Path(f"home-{group.rank}").absolute()
        self.written: list[str] = []
        if group.rank == 0 and not self.home.exists():
            folder = write_model(Path("model").absolute(), num_hidden_layers=4)
            Path("Modelfile").write_text(f"FROM {folder}\nSYSTEM Be brief.\n", encoding="utf-8")
            modelkit.create("Modelfile", name=NAME, quantize="q8", home=self.home)

    def give(self) -> dict[str, Any]:
        """What came of it: notes or the problem."""
        with pytest.MonkeyPatch.context() as patched, ExitStack() as stack:
            commit = SliceWriter.commit
            patched.setattr(
                SliceWriter, "commit", lambda own, said: (commit(own, said), self.written.append(said))
            )
            try:
                given, notes = self.give_all(stack)
            except LoadError as error:
                return {"problem": error.message}
            assert (given is None) == (self.group.rank == 0)
            return {"notes": [*notes], "slices": self.slices, "written": len(self.written)}

    def give_all(self, stack: ExitStack) -> Any:
        group, hosts = self.group, ["here"] * self.group.size
        said = (str(Store(self.home).digest(NAME)) if group.rank == 0 else "").encode()
        if group.rank == 0:
            group.tell(said)
        digest = said.decode() or group.hear(10).decode()
        brought = stack.enter_context(
            bring(group, self.home, NAME, digest, hosts, Progress(group.size), in_slices=True)
        )
        if brought.outline is None:
            opened = stack.enter_context(open_model(NAME, Settings(home=self.home)))
        else:
            opened = open_outline(brought.outline, NAME)
        job = Job(NAME, shards=1, tokens=64, sequences=1, kept_format=None, threads=None)
        plan = plan_of(opened, job, [{**own_facts(group), "host": "here"}] * group.size)
        own, assigned = Member(group, "here"), Assignment(plan, group)
        return give_slices(own, opened, brought.outline, assigned, lambda _done, _whole: None)

    @property
    def files(self) -> list[Path]:
        return [path for path in (self.home / "store" / "slices").rglob("*") if path.is_file()]

    @property
    def slices(self) -> int:
        """Bytes."""
        return sum(path.stat().st_size for path in self.files)

    @property
    def left(self) -> int:
        """Files of operations that are over."""
        return len([*(self.home / "store" / "ingest").rglob("*")])


def given(scene: Scene) -> Any:
    """What each needs; once more; damaged; pruned."""
    first = scene.give()
    scene.written.clear()
    again = scene.give()
    store = Store(scene.home)
    said: dict[str, Any] = {"first": first, "again": again}
    said["named"] = [str(one) for one in store.packages()]
    said["problems"] = [str(one) for one in store.verify().problems]
    said["left"] = scene.left
    if scene.group.rank:
        said["whole"] = sum(
            path.stat().st_size for path in Path("home-0/store/blobs").rglob("*") if path.is_file()
        )
        damaged = scene.files[0]
        damaged.chmod(0o644)
        raw = damaged.read_bytes()
        damaged.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
        said["damaged"] = len(store.verify().problems)
        store.prune()
        said["pruned"] = len(scene.files)
    return said


def spoiled(scene: Scene) -> Any:
    """One of the slices loses a bit between rank 0 and the disk."""
    with pytest.MonkeyPatch.context() as patched:
        write = SliceWriter.write

        def lose(own: SliceWriter, data: Any) -> None:
            fifth = len(scene.written) == 5
            write(own, bytes([data[0] ^ 1]) + bytes(data[1:]) if fifth else data)

        patched.setattr(SliceWriter, "write", lose)
        first = scene.give()
    said: dict[str, Any] = {**first, "rank": scene.group.rank, "slices": scene.slices}
    return said | {"afterwards": scene.give().get("slices")}


def nonsense(scene: Scene) -> Any:
    """Rank 1 asks for a tensor that there is not."""
    with pytest.MonkeyPatch.context() as patched:
        if scene.group.rank:
            patched.setattr(Slice, "to_json", lambda own: ["other", 0, []])
        return scene.give()


def full(scene: Scene) -> Any:
    """Rank 1 has no room."""
    with pytest.MonkeyPatch.context() as patched:
        if scene.group.rank:
            patched.setattr("modelkit.disk_faults._SPARE", 1e15)
            patched.setattr("modelkit.ranks.fetching.Store.require_space", lambda own, needed: None)
        return scene.give()


def rest(scene: Scene) -> Any:
    """What a killed rank had is not sent again."""
    before = len(scene.files)
    scene.give()
    return {"before": before, "after": len(scene.files), "written": len(scene.written)}


SCENES: dict[str, Callable[[Scene], Any]] = {
    one.__name__: one for one in (given, spoiled, nonsense, full, rest)
}


def scenes(group: Group, *names: str) -> dict[str, Any]:
    """What each gave on this rank."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pieces, "PIECE_BYTES", 3000)
        patched.setattr(slices, "ROUND_BYTES", 20_000)
        patched.setattr(os, "fsync", lambda fd: None)
        return {name: SCENES[name](Scene(group)) for name in names}


def killed() -> None:
    """A rank 1 that dies when it has three slices."""
    group = Group.join("ring", 10, native.kernels)
    commit, done = SliceWriter.commit, list[str]()

    def count(self: SliceWriter, sha256: str) -> None:
        if len(done) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        commit(self, sha256)
        done.append(sha256)

    SliceWriter.commit = count
    scene = Scene(group)
    try:
        with ExitStack() as stack:
            scene.give_all(stack)
    except RankLost as error:
        print(error, flush=True)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(killed())
