"""What an engine that leads owes the others when it cannot start."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from runtime.cache.budget import Budget
from runtime.cache.build import build_memory
from runtime.cache.disk_pages import Stored
from runtime.cache.memory import LayerMemory
from runtime.cache.page_folder import PrefixFolder
from runtime.cache.pages import Page, page_arrays
from runtime.cache.prefix import PrefixStore
from runtime.cache.sharing import Sharing
from runtime.cpu import native
from runtime.engine.engine import Engine
from runtime.engine.options import Options
from runtime.engine.request import Request
from runtime.ranks.follow import Follower
from runtime.ranks.group import Group
from runtime.ranks.lead import Lead, Leading
from runtime.sampling.params import SamplingParams
from runtime.step import Inputs, Step
from tests.support import returning
from tests.support.parity import Reference
from tests.support.ranks import Standing


def _leading(ended: list[str]) -> Leading:
    return Leading(Group.alone(), lambda: ended.append("ended"))


def _no_drafters(*_args: Any) -> Any:
    raise ValueError("no draft fits")


def test_the_others_are_told_where_an_engine_cannot_start(tmp_path: Path) -> None:
    ended: list[str] = []
    with pytest.raises(ValueError, match="no draft fits"):
        Engine(lambda: Reference("llama").load(tmp_path), Options(64), _no_drafters, leading=_leading(ended))
    assert ended == ["ended"]


def test_they_are_told_when_it_is_closed(tmp_path: Path) -> None:
    ended: list[str] = []
    engine = Engine(lambda: Reference("llama").load(tmp_path), Options(64), leading=_leading(ended))
    with engine.submit(Request((3, 4, 5), 4, SamplingParams(temperature=0))) as stream:
        assert sum(len(delta.ids) for delta in stream) == 4
    assert ended == []
    engine.close()
    assert ended == ["ended"]


def test_who_leads_and_who_follows_keep_to_their_part_of_a_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    for name in ("keep_apart", "let_go"):
        monkeypatch.setattr(Group, name, lambda _self, name=name: seen.append(name))
    monkeypatch.setattr(Follower, "turn", lambda _self: seen.append("turn"))
    engine = Engine(lambda: Reference("llama").load(tmp_path), Options(64), leading=_leading([]))
    assert seen == ["keep_apart"]
    engine.close()
    Follower(Group.alone(), Reference("llama").load(tmp_path)).run()
    assert seen == ["keep_apart", "let_go", "keep_apart", "turn", "let_go"]


KEYS = [*range(3, 12)]


def _following(folder: PrefixFolder | None = None) -> tuple[Follower, Page]:
    """Another rank, and a page of the first keys."""
    share = Reference("llama").made()
    memory = build_memory(share.described.layout, dtype=share.dtype)
    _read(share.network, memory)
    follower = Follower(Group.alone(), share, folder)
    follower._do(("remember", None))
    follower._do(("keep", 1 << 20))
    return follower, memory.snapshot(0, 0)


def _read(network: Any, memory: LayerMemory) -> None:
    step = Step((0,), (8,), inputs=Inputs(mx.array([KEYS[:8]], dtype=mx.int32)))
    memory.prepare(step)
    mx.eval(network(step, memory))
    memory.commit(step, (8,))


def test_others_put_a_row_back_layer_by_layer_as_rank_0_does() -> None:
    """No step waits until all of a long prompt is copied."""
    follower, page = _following()
    follower._sharing.store.insert(KEYS[:8], 0, page)
    follower._do(("begin", 1, 0, KEYS, 8))
    lengths: list[list[int]] = []
    count = len(follower.memory)
    for layers in range(count + 1):
        if layers:
            follower._do(("put_back", 1, 0, layers))
        lengths.append([cache.lengths[0] for cache in follower.memory.caches])
    assert lengths == [[8] * layers + [0] * (count - layers) for layers in range(count + 1)]


def test_others_read_from_disk_beside_their_steps_what_rank_0_reads(tmp_path: Path) -> None:
    """It is there when it is asked for, and nobody waits for it in the middle of answers."""
    follower, page = _following(PrefixFolder(tmp_path, "sha256:aa", 1 << 30))
    disk = follower._disk
    assert disk is not None
    mx.eval(page_arrays(page))
    disk.save(KEYS[:8], [Stored(0, 8, page)])
    disk._jobs.put(None)
    disk._writer.join()
    for wanted in ([], [[0, 8]]):
        follower._do(("fetch", KEYS[:8], wanted))
        fetched = follower._fetching
        assert (fetched is None) == (not wanted)
        assert fetched is None or [stored.stop for stored in fetched.arriving()] == [8]
        assert follower._sharing.store.lookup(KEYS).offset == 0
        follower._do(("read", len(wanted)))
    assert follower._fetching is None
    assert follower._sharing.store.lookup(KEYS).offset == 8


def test_rank_0_tells_of_each_layer_that_it_has_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[object, ...]] = []
    monkeypatch.setattr(Lead, "done", lambda _self, *action: told.append(action))
    lead = Leading(Group.alone())(Reference("llama").made())
    memory = lead.memory(None, Budget())
    sharing = lead.sharing(memory, PrefixStore(memory.layout, 1 << 20), spacing=1)
    _read(lead.model.network, memory)
    sharing.enter("first", 0, KEYS[:8], sharing.store.lookup(KEYS))
    sharing.end("first", 0, KEYS[:8])
    memory.clear(0)
    restoring = sharing.enter("second", 0, KEYS, sharing.store.lookup(KEYS))
    restoring.go_on(0)
    restoring.finish(0)
    found = [action for action in told if action[0] == "put_back"]
    assert found == [("put_back", 2, 0, 1), ("put_back", 2, 0, len(memory))]


def test_a_prompt_that_is_read_whole_may_take_as_long_as_its_tokens_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is there when the step begins that follows it, for which others wait no longer than for any."""
    group, seen = Group.alone(), list[int]()
    monkeypatch.setattr(group, "renew", lambda times=1: seen.append(times))
    engine = Engine(lambda: Reference("t5").load(tmp_path), Options(2000), leading=Leading(group))
    with engine.submit(Request((0,), 2, SamplingParams(temperature=0), source=(5,) * 1200)) as stream:
        assert sum(len(delta.ids) for delta in stream) == 2
    engine.close()
    assert seen[:3] == [1, 3, 1]


def test_nothing_is_waited_for_without_end_while_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages of what still runs are made of steps that others may never finish."""
    group, until = Group.alone(), list[float | None]()

    def noted(of: object, name: str) -> None:
        its = getattr(of, name)
        monkeypatch.setattr(of, name, lambda *given: [until.append(group._bounded._until_s), its(*given)][1])

    noted(group, "tell")
    noted(Sharing, "end")
    options = Options(4000, prefix_bytes=1 << 20)
    engine = Engine(lambda: Reference("llama").load(tmp_path), options, leading=Leading(group))
    next(iter(engine.submit(Request((3, 4, 5), 3900, SamplingParams(temperature=0)))))
    engine.close()
    assert len(until) > 2
    assert None not in until


def test_of_a_prompt_only_its_last_chunk_comes_back(crews: Callable[[int], Standing], tmp_path: Path) -> None:
    """Else no stage could read a chunk before the last one has read the one before."""
    said = crews(2).do(tmp_path, returning.__name__, "answers", 40, 8, 3)
    assert said == [3, 3]  # of five chunks, and of each token behind the first
    assert crews(2).do(tmp_path, returning.__name__, "answers", 40, 64, 1) == [1, 1]


@pytest.mark.skipif(native.kernels is None, reason="sums are counted by kernels")
def test_of_a_prompt_nobody_computes_what_comes_behind_the_last_memory(
    crews: Callable[[int], Standing], tmp_path: Path
) -> None:
    """Of shards neither: of all chunks but the last, the last layer's second sum is made by no rank."""
    whole, chunked = (crews(2).do(tmp_path, returning.__name__, "sums", 40, chunk, 1) for chunk in (64, 8))
    layers = Reference("llama").record["config"]["num_hidden_layers"]
    ids = 1  # which go to all as a sum, too
    assert whole == [2 * layers + ids] * 2
    assert chunked == [5 * (2 * layers + ids) - 4] * 2
