"""One rank of several of which rank 0 has the outline of a package, and a registry its weights (`scenes`),
and such a rank that is killed. Each has a store of its own in its folder, `home-RANK`; the registry runs in
rank 0's process.
"""

import os
import signal
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import modelkit
from modelkit.errors import LoadError
from modelkit.fetch.registry import blobs
from modelkit.opening.read import open_model, open_outline
from modelkit.ranks import slices, streaming
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
from tests.support.fake_registry import Call, FakeRegistry, Rule
from tests.support.tiny import write_model

NAME = "story"


class Scene:
    def __init__(self, group: Group) -> None:
        self.group, self.home = group, Path(f"home-{group.rank}").absolute()
        self.blob = b""
        """The largest that the registry has."""

    @contextmanager
    def registry(self, scene: str) -> Generator[FakeRegistry | None]:
        """On rank 0, which then has the outline of a package of its own for each scene."""
        self.home = self.home / scene
        if self.group.rank:
            yield None
            return
        with FakeRegistry() as running:
            made = Path("made").absolute()
            folder = write_model(Path("model").absolute(), num_hidden_layers=4)
            Path("Modelfile").write_text(f"FROM {folder}\nSYSTEM Be brief.\n", encoding="utf-8")
            modelkit.create("Modelfile", name=NAME, quantize="q8", home=made)
            modelkit.push(NAME, f"oci://{running.host}/amy/story:q8", home=made)
            modelkit.pull(f"oci://{running.host}/amy/story:q8", name=NAME, outline=True, home=self.home)
            running.log.clear()
            self.blob = max(running.blobs.values(), key=len)
            yield running

    def give(self, shards: int = 1) -> dict[str, Any]:
        """What came of it: notes or the problem."""
        try:
            with ExitStack() as stack:
                given, notes = self._give(stack, shards)
        except LoadError as error:
            said: dict[str, Any] = {"problem": error.message}
        else:
            assert given is not None
            said = {"notes": [*notes]}
        return said | {"slices": self.slices, "left": self.left}

    def _give(self, stack: ExitStack, shards: int) -> Any:
        group, hosts = self.group, ["here"] * self.group.size
        outline = opened = None
        if group.rank == 0:
            opened = stack.enter_context(open_model(NAME, Settings(home=self.home), outlines=True))
            outline = opened.outline
            assert outline is not None
            group.tell(str(outline.package).encode())
            digest = str(outline.package)
        else:
            digest = group.hear(40).decode()
        brought = stack.enter_context(
            bring(
                group, self.home, NAME, digest, hosts, Progress(group.size), in_slices=True, outline=outline
            )
        )
        assert brought.outline is not None
        opened = opened or open_outline(brought.outline, NAME)
        job = Job(NAME, shards=shards, tokens=64, sequences=1, kept_format=None, threads=None)
        plan = plan_of(opened, job, [{**own_facts(group), "host": "here"}] * group.size)
        own, assigned = Member(group, "here"), Assignment(plan, group)
        return give_slices(own, opened, brought.outline, assigned, lambda _done, _whole: None)

    @property
    def slices(self) -> int:
        """Bytes."""
        return sum(path.stat().st_size for path in (self.home / "store/slices").rglob("*") if path.is_file())

    @property
    def left(self) -> int:
        """Files of operations that are over."""
        return len([*(self.home / "store" / "ingest").rglob("*")])


def came(scene: Scene) -> Any:
    """Stages, once more, and shards, which need more of it."""
    with scene.registry("came") as running:
        first = scene.give()
        asked = 0 if running is None else running.count("GET", "/blobs/")
        again = scene.give()
        shards = scene.give(scene.group.size)
        store = Store(scene.home)
        said: dict[str, Any] = {
            "first": first,
            "again": again,
            "shards": shards,
            "asked": asked,
            "whole": len(scene.blob),
        }
        if running is not None:
            said["later"] = running.count("GET", "/blobs/")
        said["problems"] = [str(one) for one in store.verify().problems]
        store.prune()
        return said | {"pruned": scene.slices}


def _parted(registry: FakeRegistry, blob: bytes) -> Rule:
    """Each answer ends after the first 9000 bytes; so many have to be let go on."""

    def rule(call: Call) -> bool:
        if not _is_of(call, blob, registry):
            return False
        start = _start(call)
        end = min(start + 9000, len(blob))
        call.answer(
            206,
            blob[start:end],
            length=len(blob) - start,
            Content_Range=_content(start, len(blob), len(blob)),
        )
        call.handler.close_connection = True
        return True

    return rule


def _whole(registry: FakeRegistry, blob: bytes) -> Rule:
    """No ranges are known, and the first answer ends early."""
    times = list[int]()

    def rule(call: Call) -> bool:
        if not _is_of(call, blob, registry):
            return False
        times.append(1)
        call.answer(200, blob[:9000] if len(times) == 1 else blob, length=len(blob))
        call.handler.close_connection = True
        return True

    return rule


def _elsewhere(registry: FakeRegistry, blob: bytes) -> Rule:
    """Another range than the one that was asked for."""

    def rule(call: Call) -> bool:
        if _is_of(call, blob, registry):
            return call.answer(206, blob[1:], Content_Range=_content(1, len(blob), len(blob)))
        return False

    return rule


def _more(registry: FakeRegistry, blob: bytes) -> Rule:
    """More bytes than the blob has."""

    def rule(call: Call) -> bool:
        if _is_of(call, blob, registry):
            return call.answer(206, blob + b"more", Content_Range=_content(0, len(blob), len(blob)))
        return False

    return rule


def _other(registry: FakeRegistry, blob: bytes) -> Rule:
    """One bit is another."""
    spoiled = blob[:-9] + bytes([blob[-9] ^ 1]) + blob[-8:]

    def rule(call: Call) -> bool:
        if _is_of(call, blob, registry):
            return call.answer(206, spoiled, Content_Range=_content(0, len(blob), len(blob)))
        return False

    return rule


def _front(registry: FakeRegistry, blob: bytes) -> Rule:
    """A header that is another than the one of the outline; what it describes is where it was."""
    spoiled = blob[:9] + blob[9:].replace(b"self_attn.q_proj", b"self_attn.k_proj", 1)
    assert spoiled != blob

    def rule(call: Call) -> bool:
        if _is_of(call, blob, registry):
            return call.answer(206, spoiled, Content_Range=_content(0, len(blob), len(blob)))
        return False

    return rule


def _gone(registry: FakeRegistry, blob: bytes) -> Rule:
    """The blob is not there any more."""
    return lambda call: call.answer(404) if _is_of(call, blob, registry) else False


def _is_of(call: Call, blob: bytes, registry: FakeRegistry) -> bool:
    return call.method == "GET" and any(
        data == blob and call.path.endswith(digest) for digest, data in registry.blobs.items()
    )


def _start(call: Call) -> int:
    return int((call.header("range") or "bytes=0-").removeprefix("bytes=").partition("-")[0])


def _content(start: int, stop: int, whole: int) -> str:
    return f"bytes {start}-{stop - 1}/{whole}"


RULES = {one.__name__: one for one in (_parted, _whole, _elsewhere, _more, _other, _front, _gone)}


def hostile(scene: Scene, name: str) -> Any:
    """What a registry does, and a start after it has ended."""
    with scene.registry(name) as running:
        if running is not None:
            running.rules.append(RULES[name](running, scene.blob))
        first = scene.give()
        if running is not None:
            running.rules.clear()
        return {"first": first, "again": scene.give(), "whole": len(scene.blob)}


def killed() -> None:
    """A rank 1 that dies when it has the second of its slices, before it knows that they are right."""
    group = Group.join("ring", 10, native.kernels)
    sealed, done = SliceWriter.seal, list[int]()

    def seal(self: SliceWriter) -> None:
        sealed(self)
        done.append(1)
        if group.rank and len(done) == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    streaming.PIECE_BYTES, SliceWriter.seal = 3000, seal
    scene = Scene(group)
    try:
        with scene.registry("killed"):
            scene.give()
    except RankLost as error:
        print(error, flush=True)
    os._exit(0)


def scenes(group: Group, name: str, *words: str) -> Any:
    """What it gave on this rank."""
    done: dict[str, Callable[..., Any]] = {"came": came, "hostile": hostile}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(streaming, "PIECE_BYTES", 3000)
        patched.setattr(slices, "ROUND_BYTES", 20_000)
        patched.setattr(blobs, "PROGRESS_BYTES", 3000)
        patched.setattr(os, "fsync", lambda fd: None)
        return done[name](Scene(group), *words)


if __name__ == "__main__":
    killed()
