"""One rank of a model that several run (`played`).

cut: whole (each rank has all of it), stages, shards, or pairs: stages of two shards. Rank 0 plays the scene
on one machine first, and then with the others; these print what they keep in the end.
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.cache.memory import LayerMemory
from runtime.cache.page_folder import PrefixFolder, list_pages
from runtime.cache.prefix import PrefixStore
from runtime.embedding import Reading
from runtime.engine.adapters import AdapterSource
from runtime.engine.engine import Engine
from runtime.engine.options import Options
from runtime.engine.request import Request
from runtime.engine.stream import Stream
from runtime.errors import CacheFull
from runtime.loaded import LoadedModel, score
from runtime.nn.adapters.low_rank import LowRanks
from runtime.ranks.follow import Follower
from runtime.ranks.group import Group
from runtime.ranks.lead import Leading
from runtime.ranks.load import Assignment, load_share
from runtime.ranks.parts import parts_of
from runtime.ranks.plan import Host, decide
from runtime.sampling.params import SamplingParams
from runtime.speculate.assistant import AssistantDrafter, layers_read
from runtime.speculate.drafter import Drafter, Rows
from runtime.speculate.ngram import NgramDrafter
from runtime.speculate.pair import drafters_for
from tests.support.assistants import load_assistant, record_of
from tests.support.checkpoints import write_checkpoint
from tests.support.dflash import load_block_draft
from tests.support.drafting import always_drafting
from tests.support.heads import HeadReference
from tests.support.low_ranks import pairs_of
from tests.support.parity import Reference

GREEDY = SamplingParams(temperature=0)
WARM = SamplingParams(temperature=0.9, top_k=30, repeat_penalty=1.1, seed=5)
PROMPT = tuple(range(20, 52))


def request(ids: tuple[int, ...], count: int = 12, sampling: SamplingParams = GREEDY, **more: Any) -> Request:
    return Request(ids, count, sampling, **more)


def answers(engine: Engine, *requests: Request) -> list[Any]:
    """What is answered to requests that come together."""
    return [_answer(stream) for stream in [engine.submit(one) for one in requests]]


def _answer(stream: Stream) -> Any:
    pieces = list(stream)
    ids = [token for piece in pieces for token in piece.ids]
    logprobs = [one.logprob for piece in pieces for one in piece.logprobs]
    assert stream.finish is not None
    return [ids, logprobs, stream.finish.reason]


def talk(engine: Engine) -> list[Any]:
    """Batches, seeds, log-probabilities, prefixes that are found again, and rows that leave early."""
    said = answers(engine, request(PROMPT), request(PROMPT[:9], 20, WARM), request(PROMPT[3:], 5))
    said += answers(engine, request((*PROMPT, 7, 8, 9), top_logprobs=2), request(PROMPT[:20], 9, WARM))
    with engine.submit(request(PROMPT[5:], 60)) as left:
        next(iter(left))
    twice = PROMPT[:6] * 5
    said += answers(engine, request(twice, 24, marks=(6, 12)), request(twice, 24, WARM))
    with engine.submit(request((*twice, 3), 2)) as again:
        list(again)
    assert again.finish is not None
    return [*said, again.finish.usage.cached_tokens]


def draft(engine: Engine) -> list[Any]:
    """Guesses of every depth, right and wrong ones."""
    with pytest.MonkeyPatch.context() as patched:
        always_drafting(patched)
        with engine.submit(request(PROMPT[:6] * 5, 40)) as alone:
            list(alone)
        assert alone.finish is not None
        assert alone.finish.usage.drafted_tokens > 10
        return answers(engine, request(PROMPT, 30), request(PROMPT[4:], 30, WARM), request(PROMPT * 2, 20))


def brief(engine: Engine, *, guesses: bool = True) -> list[Any]:
    """A little of all: guesses, a batch with seeds, a row that leaves early, and a prefix that is found."""
    with pytest.MonkeyPatch.context() as patched:
        if guesses:
            always_drafting(patched)
        said = answers(engine, request(PROMPT[:6] * 3, 8), request(PROMPT[:9], 8, WARM))
        with engine.submit(request(PROMPT[5:], 60)) as left:
            next(iter(left))
        with engine.submit(request((*PROMPT[:6] * 3, 7), 8, marks=(6, 12))) as found:
            said.append([token for piece in found for token in piece.ids])
        assert found.finish is not None
        assert (found.finish.usage.drafted_tokens > 0) == guesses
        return [*said, found.finish.usage.cached_tokens]


def forget(engine: Engine) -> list[Any]:
    """Answers that outgrow their context."""
    return answers(engine, request(PROMPT, 120, keep=4), request(PROMPT[:5], 110, WARM, keep=0))


def asked(
    source: tuple[int, ...], count: int = 12, sampling: SamplingParams = GREEDY, **more: Any
) -> Request:
    """Of a model whose prompts an encoder reads."""
    return request((0,), count, sampling, source=source, **more)


def ask(engine: Engine, **more: Any) -> list[Any]:
    """Prompts that an encoder reads: scores of a text, batches, seeds, guesses, rows that leave early, and
    prompts that are found again, or not any more.
    """
    with pytest.MonkeyPatch.context() as patched:
        always_drafting(patched)
        batch = asked(PROMPT, **more), asked(PROMPT[:9], 20, WARM, **more), asked(PROMPT[3:], 40)
        said = answers(engine, *batch, asked(PROMPT[:1], 3))
        with engine.submit(asked(PROMPT[5:], 60)) as left:
            next(iter(left))
        said += answers(engine, *batch)
        for _ in range(2):
            with engine.submit(asked(PROMPT, 5, WARM, **more)) as again:
                said.append([token for piece in again for token in piece.ids])
            assert again.finish is not None
            said.append(again.finish.usage.cached_tokens)
            engine.clear_prefixes()
        scored = engine.call(lambda model: score(model, (0, *PROMPT[:9]), 4, source=PROMPT[4:]).tolist())
        return [scored, *said, *answers(engine, asked(PROMPT[7:], 5), asked(PROMPT[8:], 5))]


def adapt(engine: Engine) -> list[Any]:
    """Rows with other adapters, several, or none share steps and drafts, and never each other's prompts."""
    sets = ((), (("one", 1.0),), (("two", 0.5), ("one", -0.4)), (("two", 0.0),))
    said = answers(engine, *(request(PROMPT, 8, adapters=some) for some in sets))
    again = answers(engine, *(request(PROMPT, 8, WARM, adapters=some) for some in sets[::-1]))
    return [*said, *again, [entry.space for entry in engine.list_prefixes()]]


def read(engine: Engine) -> list[Any]:
    """Vectors of texts, read piece by piece beside an answer; one is not read to its end."""
    with engine.submit(request(PROMPT, 30)) as running:
        some = (([PROMPT], "mean"), ([PROMPT[3:], PROMPT[:5]], "last"), ([PROMPT[9:]], "max"))
        readings = [engine.call(lambda model, one=one: Reading(model, *one)) for one in some]
        engine.call(lambda _: readings.pop().read(4))
        while more := [one for one in readings if not one.over]:
            for one in more:
                engine.call(lambda _, one=one: one.read(7))
        vectors = [engine.call(lambda _, one=one: one.vectors().tolist()) for one in readings]
        return [_answer(running), vectors]


SCENES: dict[str, Callable[[Engine], list[Any]]] = {
    "talk": talk,
    "forget": forget,
    "draft": draft,
    "brief": brief,
    "block": brief,
    "plain": partial(brief, guesses=False),
    "adapt": adapt,
    "ask": ask,
    "ask adapted": partial(ask, adapters=(("two", 0.5), ("one", -0.4))),
    "read": read,
}


def kept(store: PrefixStore | None) -> Any:
    """What is known of earlier sequences, with a digest of what this machine has of it."""
    assert store is not None
    digest, pages = (
        hashlib.sha256(),
        [[one.start, one.stop, one.nbytes, one.resumable, repr(one.keys[:3])] for one in store.describe()],
    )
    for node in store._trie:
        for snapshot in node.page:
            for array in snapshot.arrays if snapshot else ():
                if isinstance(array, mx.array):
                    digest.update(np.array(array.astype(mx.float32)).tobytes())
    return {"pages": pages, "digest": digest.hexdigest(), "bytes": store.nbytes}


def store_of(engine: Engine) -> PrefixStore | None:
    """What keeps prompts, or those that an encoder reads."""
    read = engine._loop._sources._kept
    return engine._loop._prefixes.store if read is None else read.store


def options(**changes: Any) -> Options:
    settings: dict[str, Any] = {
        "context_length": 100,
        "budget_tokens": 16,
        "max_rows": 3,
        "prefix_bytes": 1 << 20,
        **changes,
    }
    return Options(**settings)


def pairs(reference: Reference, folder: Path) -> dict[str, LowRanks]:
    """Two adapters, the second of DoRA."""
    network = reference.load(folder).network
    return {
        name: LowRanks(pairs_of(network, seed, dora=seed == 2)) for name, seed in (("one", 1), ("two", 2))
    }


def share_of(
    reference: Reference, folder: Path, cut: str, group: Group, adapters: dict[str, LowRanks]
) -> LoadedModel:
    """What this rank has of it."""
    config, tensors = reference.record["config"], reference.record["tensors"]
    if cut == "whole":
        group.readers = group.size
        return reference.load(folder)
    write_checkpoint(folder, config, tensors)
    headers = {name: ("F32", tuple(shape)) for name, shape in tensors.items()}
    shards = {"stages": 1, "shards": group.size, "pairs": 2}[cut]
    parts = parts_of(config, headers, shards=shards)
    plan = decide(parts, [Host(f"rank {rank}") for rank in range(group.size)])
    return load_share(config, [folder / "model.safetensors"], Assignment(plan, group), adapters=adapters)


def restarted(group: Group, kind: str, cut: str) -> object:
    """What is asked again, with pages on disk, after all have ended: found by all, by one less, and anew.

    Rank 0: the answers, and how many tokens were not computed for each. Others: how many files they have.
    """
    folder, pages = Path(f"model-{group.rank}"), Path(f"pages-{group.rank}")
    reference, said = Reference(kind), list[Any]()
    kept = PrefixFolder(pages, "sha256:aa", 1 << 30, f"rank {group.rank}")
    for turn in range(4):
        if turn == 2 and group.rank == group.size - 1:
            for file in pages.iterdir():
                file.unlink()
        if group.rank:
            Follower(group, share_of(reference, folder, cut, group, {}), kept).run()
            said.append(len(list_pages(pages)))
            continue
        engine = Engine(
            lambda: share_of(reference, folder, cut, group, {}),
            options(prefix_folder=kept, mark_spacing=1),
            leading=Leading(group),
        )
        again = request(PROMPT, 6, marks=(9, 20)) if reference.source is None else asked(PROMPT, 6)
        with engine.submit(again) as stream:
            ids = [token for piece in stream for token in piece.ids]
        assert stream.finish is not None
        said.append([ids, stream.finish.usage.cached_tokens])
        engine.close()
    return said


def readers(group: Group, kind: str, cut: str) -> object:
    """How many ranks are given the ids of a step."""
    share_of(Reference(kind), Path(f"model-{group.rank}"), cut, group, {})
    return group.readers


def short_of_memory(group: Group, kind: str, cut: str) -> object:
    """Rank 0: what is said where the last rank has no memory for its part, and once it has some. The others
    end as they do after any model.
    """
    folder, some = Path(f"model-{group.rank}"), Path("there-is-some")
    last = group.rank == group.size - 1

    def free() -> int:
        return (1 << 20) + 1 if last and not some.exists() else 1 << 40

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("runtime.device.available_bytes", free)
        patched.setattr("runtime.engine.free_memory.LASTS_S", 0.0)
        if group.rank:
            Follower(group, share_of(Reference(kind), folder, cut, group, {})).run()
            return "ended"
        engine = Engine(
            lambda: share_of(Reference(kind), folder, cut, group, {}),
            options(spare_bytes=1 << 20),
            leading=Leading(group),
        )
        try:
            with pytest.raises(CacheFull) as refused:
                answers(engine, request(PROMPT))
            some.touch()
            return [str(refused.value), len(answers(engine, request(PROMPT))[0][0])]
        finally:
            engine.close()


def played(group: Group, kind: str, scene: str, cut: str) -> object:
    """What is said alone and with others, and what is kept; by ranks above 0, what these keep."""
    folder = Path(f"model-{group.rank}")
    reference = Reference(kind)
    if group.rank:
        adapters = pairs(reference, folder) if "adapt" in scene else {}
        follower = Follower(group, share_of(reference, folder, cut, group, adapters))
        follower.run()
        return kept(follower._kept.store) | {"memories": len(follower._memories)}
    play, drafters = SCENES[scene], partial(_drafters, scene, reference, folder)
    adapters: dict[str, LowRanks] = {}

    def whole() -> LoadedModel:
        if "adapt" in scene:
            adapters.update(pairs(reference, folder))
        model = reference.load(folder)
        return model if reference.source is None else replace(model, network=model.network.plain)

    def share() -> LoadedModel:
        whole()  # for its adapters
        return share_of(reference, folder, cut, group, adapters)

    def sources() -> list[AdapterSource]:
        names = ("one", "two") if "adapt" in scene else ()
        return [AdapterSource(name, f"sha256:{name}", lambda name=name: adapters[name]) for name in names]

    alone = Engine(whole, options(), drafters, None, sources())
    expected = play(alone)
    alone.close()
    crew = Engine(share, options(), drafters, None, sources(), leading=Leading(group))
    said = play(crew)
    mine = crew.call(lambda _model: kept(store_of(crew)))
    crew.close()
    return {"same": said == expected, "said": said, "expected": expected, "kept": mine}


def _drafters(
    scene: str, reference: Reference, folder: Path, target: LoadedModel, memory: LayerMemory
) -> dict[str, Drafter]:
    if scene == "plain":
        return {}
    if "ask" in scene:
        return {"lookup": NgramDrafter()}
    other = None
    if scene == "block":
        (folder / "block").mkdir(parents=True, exist_ok=True)
        other = load_block_draft(folder / "block")
    elif scene in ("draft", "brief"):
        other = reference.load(folder)
    return drafters_for(target, other, memory)


def headed(group: Group, kind: str, cut: str) -> object:
    """A target with a draft head in its file, whose pairs look a token ahead: what is said, alone and with
    others, of prompts that begin alike.
    """
    folder = Path(f"model-{group.rank}")
    reference = HeadReference(kind)
    config, tensors = reference.record["config"], reference.record["tensors"]
    write_checkpoint(folder, config, tensors)
    headers = {name: ("F32", tuple(shape)) for name, shape in tensors.items()}
    parts = parts_of(config, headers, shards=group.size if cut == "shards" else 1)
    plan = decide(parts, [Host(f"rank {rank}") for rank in range(group.size)])

    def share() -> LoadedModel:
        file = folder / "model.safetensors"
        return load_share(config, [file], Assignment(plan, group, with_head=group.rank == 0))

    if group.rank:
        return Follower(group, share()).run()
    said: list[Any] = []
    for load, crew in ((lambda: reference.load(folder), None), (share, Leading(group))):
        engine = Engine(load, options(), lambda of, memory: drafters_for(of, None, memory), leading=crew)
        said.append(brief(engine))
        engine.close()
    return said


def assisted(group: Group) -> object:
    """A target whose draft reads what its last layers remember: what is said and what is guessed, alone and
    with others, of prompts that begin alike.
    """
    folder = Path(f"model-{group.rank}")
    folder.mkdir(parents=True, exist_ok=True)
    whole, draft = (load_assistant(name, folder) for name in ("target", "plain"))
    config, tensors = record_of("target")
    plan = decide(parts_of(config, tensors), [Host(f"rank {rank}") for rank in range(group.size)])
    copied = layers_read(draft.described, whole.described) if group.rank == 0 else ()

    def share() -> LoadedModel:
        return load_share(config, [folder / "target.safetensors"], Assignment(plan, group, copied=copied))

    if group.rank:
        return Follower(group, share()).run()
    return [
        _guessed(folder, lambda: load_assistant("target", folder)),
        _guessed(folder, share, Leading(group)),
    ]


def _guessed(folder: Path, load: Callable[[], LoadedModel], crew: Leading | None = None) -> Any:
    """Answers, and by what stood before what was guessed first. crew: of the others."""
    guesses, propose = dict[str, int](), AssistantDrafter.propose

    def noting(self: AssistantDrafter, rows: Rows, depth: int) -> Any:
        made = propose(self, rows, depth)
        if made is not None:
            first = [one[0] for one in np.array(made.tokens).tolist()]
            guesses.update(zip(map(str, rows.ids), first, strict=True))
        return made

    def drafters(target: LoadedModel, memory: LayerMemory) -> dict[str, Drafter]:
        return drafters_for(target, load_assistant("plain", folder), memory)

    with pytest.MonkeyPatch.context() as patched:
        always_drafting(patched)
        patched.setattr(AssistantDrafter, "propose", noting)
        engine = Engine(load, options(), drafters, leading=crew)
        said = answers(engine, request(PROMPT, 9), request(PROMPT[4:], 9))
        said += answers(engine, request((*PROMPT, 7), 9, marks=(9, 20)), request((*PROMPT[:20], 3, 7), 9))
        engine.close()
    return [said, guesses]
