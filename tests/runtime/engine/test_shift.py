"""Answers that go on when their context is full: what is forgotten, and that nothing else depends on it."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import pytest

from runtime.cache.build import build_memory
from runtime.cache.layout import sequence_bytes
from runtime.cache.memory import LayerMemory
from runtime.cache.shift import Shift
from runtime.engine.engine import Engine, Options
from runtime.engine.request import Request
from runtime.engine.room import Drafters
from runtime.loaded import LoadedModel
from runtime.models.registry.described import describe
from runtime.nn.positions.rope_spec import long_after
from runtime.sampling.params import SamplingParams
from runtime.sampling.sampler import Sampler
from runtime.speculate.block import BlockDrafter
from runtime.speculate.draft_model import ModelDrafter
from runtime.speculate.drafter import Drafter
from runtime.speculate.head import HeadDrafter
from runtime.speculate.ngram import NgramDrafter
from runtime.step import Inputs, Step
from tests.support.dflash import block_config, load_block_draft
from tests.support.drafting import always_drafting
from tests.support.engines import GREEDY, answer, answers, finished, prompt, start
from tests.support.heads import HeadReference
from tests.support.parity import SPECIAL, Reference

CONTEXT = 40
KINDS = {
    "llama": Reference("llama"),  # keys turn
    "window": Reference("mistral_window"),
    "fold": Reference("qwen3_5"),  # read anew, as all below
    "longrope": Reference("longrope_phi3", SPECIAL),
    "learned": Reference("gpt2"),
}
WARM = SamplingParams(temperature=1.1, seed=7)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return cache(tmp_path_factory.mktemp)


Folders = Callable[[str], Path]


def asked(number: int, length: int, count: int, keep: int, sampling: SamplingParams = WARM) -> Request:
    return Request(prompt(number, length), count, sampling, keep=keep)


def begin(kind: str, folders: Folders, drafters: Drafters | None = None, **options: Any) -> Engine:
    return start(folders(kind), KINDS[kind].load, drafters, context_length=CONTEXT, **options)


def fed(model: LoadedModel, memory: LayerMemory, ids: Sequence[int], *, long: bool | None) -> mx.array:
    """Logits [1, 1, V] after the last of `ids`, which are read in one step."""
    start = memory.caches[0].lengths[0]
    inputs = Inputs(mx.array([list(ids)], dtype=mx.int32))
    step = Step((start,), (len(ids),), long=None if long is None else (long,), inputs=inputs)
    memory.prepare(step)
    hidden = model.network(step, memory)
    memory.commit(step, step.counts)
    return model.network.logits(hidden[:, -1:])


@pytest.mark.parametrize(("kind", "anew"), [("llama", False), ("fold", True), ("learned", True)])
def test_what_is_read_anew_took_passes(folders: Folders, kind: str, anew: bool) -> None:
    engine = begin(kind, folders)
    ids, finish = finished(engine, asked(1, 30, 60, 8))
    engine.close()
    assert (finish.usage.rounds > len(ids) - 1) is anew
    assert finish.usage.rounds >= len(ids) - 1


def by_hand(model: LoadedModel, one: Request, context: int = CONTEXT) -> list[int]:
    """The answer, one token at a time over layer memory, without an engine."""
    assert one.keep is not None
    layout, rotates = model.described.layout, model.network.shifts
    shift = Shift.of(one.keep, context, layout, rotates)
    border = long_after(model.described.config)
    sampler, ids, dropped, out = Sampler([one.sampling]), list(one.ids), 0, list[int]()
    memory, unread = build_memory(layout, dtype=model.dtype), ids
    while len(out) < one.max_tokens:
        long = None if border is None else len(ids) > border
        if border is not None and len(ids) == border + 1:
            memory, unread = build_memory(layout, dtype=model.dtype), ids
        logits = fed(model, memory, unread, long=long)
        token = cast("int", sampler.sample(logits, [len(ids) + dropped]).item())
        out.append(token)
        if len(ids) == context:
            dropped += shift.stop - shift.keep
            if shift.turns:
                memory.remove(0, shift.keep, shift.stop, rotates)
            else:
                memory = build_memory(layout, dtype=model.dtype)
            ids = [*ids[: shift.keep], *ids[shift.stop :]]
            unread = [token] if shift.turns else [*ids, token]
            ids = [*ids, token]
        else:
            ids, unread = [*ids, token], [token]
    return out


@pytest.mark.parametrize(
    ("kind", "sampling"),
    [*((kind, WARM) for kind in KINDS), ("llama", GREEDY), ("fold", GREEDY)],
    ids=[*(f"{kind}-warm" for kind in KINDS), "llama-greedy", "fold-greedy"],
)
def test_the_answer_goes_on_as_by_hand(kind: str, sampling: SamplingParams, folders: Folders) -> None:
    model = KINDS[kind].load(folders(kind))
    engine = begin(kind, folders)
    for length, keep in ((9, 4), (20, 20), (39, 1), (CONTEXT // 2, 0)):
        one = asked(1, length, 90, keep, sampling)
        ids, finish = finished(engine, one)
        assert ids == by_hand(model, one)
        assert (finish.reason, finish.usage.generated_tokens) == ("length", 90)
        drop = max((CONTEXT - keep) // 2, 1)
        assert finish.usage.dropped_tokens > 0
        assert finish.usage.dropped_tokens % drop == 0
        held = length + 89 - finish.usage.dropped_tokens
        assert CONTEXT - drop <= held <= CONTEXT
    engine.close()


def test_who_can_turn_keys() -> None:
    kinds = {"llama": True, "window": True, "fold": False, "longrope": False, "learned": False}
    for kind, turns in kinds.items():
        described = describe(KINDS[kind].record["config"])
        rotates = described.family.build(described.config).shifts
        assert Shift.of(4, 4096, described.layout, rotates).turns is turns


def test_noise_does_not_come_back_with_the_positions(folders: Folders) -> None:
    """A flat choice, so that noise alone decides: with positions that repeat, the answer would, too."""
    engine = begin("llama", folders)
    flat = SamplingParams(temperature=100, seed=3)
    ids = answer(engine, asked(1, 8, 200, 4, flat))
    engine.close()
    for period in range(1, 60):
        same = sum(one == other for one, other in zip(ids, ids[period:], strict=False))
        assert same < len(ids) // 4


@pytest.mark.parametrize(
    ("kind", "prefix_bytes"),
    [*((kind, 1 << 30) for kind in KINDS), ("llama", None)],
    ids=[*(f"{kind}-prefixes" for kind in KINDS), "llama-forgetful"],
)
def test_rows_beside_each_other_do_not_notice(kind: str, prefix_bytes: int | None, folders: Folders) -> None:
    requests = [asked(n, 9 + 10 * n, 50 + 7 * n, 2 * n) for n in range(3)]
    requests.append(Request(prompt(5, 12), 20, WARM))
    alone = begin(kind, folders)
    wanted = [answer(alone, one) for one in requests]
    alone.close()
    engine = begin(kind, folders, prefix_bytes=prefix_bytes)
    for _ in range(2):  # the second time with what the first has left
        assert answers(engine, requests) == wanted
    engine.close()


@pytest.mark.parametrize("kind", ["llama", "window"])
def test_what_a_shifted_row_computed_is_not_given_to_others(kind: str, folders: Folders) -> None:
    engine = begin(kind, folders, prefix_bytes=1 << 30)
    one = asked(1, 20, 70, 6)
    ids, finish = finished(engine, one)
    said = [*one.ids, *ids]
    for entry in engine.list_prefixes():
        assert entry.stop <= CONTEXT
        assert list(entry.keys) == said[entry.start : entry.stop]
    left = [*said[:6], *said[6 + finish.usage.dropped_tokens :]][: CONTEXT - 10]
    again = Request(tuple(left), 8, WARM)
    known = answer(engine, again)
    engine.close()
    fresh = begin(kind, folders)
    assert answer(fresh, again) == known
    fresh.close()


@pytest.mark.parametrize("drafter", ["model", "lookup"])
@pytest.mark.parametrize("kind", ["llama", "window", "fold"])
def test_with_drafts_the_text_is_the_same(
    kind: str,
    drafter: str,
    folders: Folders,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests = [asked(n, 12 + 5 * n, 70, 3, SAME) for n, SAME in ((0, WARM), (1, GREEDY), (2, WARM))]
    alone = begin(kind, folders)
    wanted = [answer(alone, one) for one in requests]
    alone.close()
    always_drafting(monkeypatch)

    def drafters(target: LoadedModel, memory: LayerMemory) -> dict[str, Drafter]:
        if drafter == "lookup":
            return {"lookup": NgramDrafter()}
        return {"draft": ModelDrafter(KINDS[kind].load(tmp_path), budget=memory.budget)}

    engine = begin(kind, folders, drafters, prefix_bytes=1 << 30)
    for one, ids in zip(requests, wanted, strict=True):
        got, finish = finished(engine, one)
        assert got == ids
        if drafter == "model":  # the same model as draft: after a shift of its target it is no worse for long
            assert finish.usage.accepted_tokens > 25
    assert answers(engine, requests) == wanted
    engine.close()


@pytest.mark.parametrize("kind", ["head", "block"])
def test_drafters_that_watch_their_target_follow(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have to see a plain step of a shifted row before they are asked, and keep nothing of it."""

    def load() -> LoadedModel:
        if kind == "head":
            return HeadReference("glm4_moe").load(tmp_path / "target")
        return Reference("qwen3").load(tmp_path / "target")

    def drafters(target: LoadedModel, memory: LayerMemory) -> dict[str, Drafter]:
        if target.head is not None:
            return {"head": HeadDrafter(target)}
        layers = len(target.described.layout)
        draft = load_block_draft(tmp_path / "draft", block_config(num_target_layers=layers))
        return {"block": BlockDrafter(draft, target)}

    (tmp_path / "target").mkdir()
    options = Options(context_length=CONTEXT, budget_tokens=16, max_rows=4, prefix_bytes=1 << 30)
    requests = [asked(n, 12 + 5 * n, 70, 3) for n in range(3)]
    alone = Engine(load, options)
    wanted = [answer(alone, one) for one in requests]
    alone.close()
    always_drafting(monkeypatch, range(4))
    engine = Engine(load, options, drafters)
    for one, ids in zip(requests, wanted, strict=True):
        got, finish = finished(engine, one)
        assert got == ids
        assert finish.usage.drafted_tokens > 0
        assert finish.usage.dropped_tokens > 0
    for entry in engine.list_prefixes():
        assert entry.stop <= CONTEXT
    assert answers(engine, requests) == wanted
    engine.close()


@pytest.mark.parametrize("kind", ["llama", "fold"])
def test_a_row_that_stepped_aside_forgets_the_same_again(kind: str, folders: Folders) -> None:
    """Memory for one row and a half: rows are put off in the middle of their answers, and read again."""
    requests = [asked(n, 20, 60, 5) for n in range(3)]
    alone = begin(kind, folders)
    wanted = [answer(alone, one) for one in requests]
    alone.close()
    layout = describe(KINDS[kind].record["config"]).layout
    room = sequence_bytes(layout, CONTEXT, 4, slack=48)
    engine = begin(kind, folders, cache_bytes=int(1.5 * room), prefix_bytes=1 << 30)
    assert answers(engine, requests) == wanted
    engine.close()


def test_without_keep_a_request_has_to_fit(folders: Folders) -> None:
    engine = begin("llama", folders)
    with pytest.raises(ValueError, match="do not fit a context of 40"):
        engine.submit(Request(prompt(1, 20), 21, WARM))
    with pytest.raises(ValueError, match="do not fit a context of 40"):
        engine.submit(asked(1, 40, 3, 0))
    with pytest.raises(ValueError, match="30 tokens to keep of a prompt of 20"):
        engine.submit(asked(1, 20, 3, 30))
    plain, shifted = (finished(engine, Request(prompt(1, 20), 20, WARM, keep=keep)) for keep in (None, 20))
    assert plain[0] == shifted[0]
    assert (plain[1].usage.dropped_tokens, shifted[1].usage.dropped_tokens) == (0, 0)
    engine.close()
