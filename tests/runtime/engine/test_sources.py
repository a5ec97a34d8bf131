"""Requests whose prompt an encoder reads: what one gets depends on nobody else, and an equal prompt is read
once.
"""

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime.cache.page_folder import PrefixFolder
from runtime.cpu import native
from runtime.engine.engine import Engine
from runtime.engine.loop import Loop
from runtime.engine.request import Request
from runtime.errors import BadTokenIds, CacheFull
from runtime.loaded import LoadedModel, score
from runtime.loading.load import load_model
from runtime.sampling.params import SamplingParams
from runtime.speculate.ngram import NgramDrafter
from tests.support.checkpoints import write_checkpoint
from tests.support.engines import GREEDY, answer, answers, finished, ids_of, run, start
from tests.support.parity import Reference

WARM = SamplingParams(temperature=0.9, top_k=20, repeat_penalty=1.2, seed=11)
FAMILIES = ("t5", "umt5", "t5gemma2")
START = 0
CONTEXT = 128
TOKEN_BYTES = 4 * 768  # of T5's four layers, of a prompt as of an answer


def load(entry: str, folder: Path) -> LoadedModel:
    """As it is, where a Reference's reads its own source by itself."""
    record = Reference(entry).record
    write_checkpoint(folder, record["config"], record["tensors"])
    return load_model(record["config"], [folder / "model.safetensors"])


def begin(folder: Path, entry: str = "t5", **options: Any) -> Engine:
    return start(folder, partial(load, entry), context_length=CONTEXT, **options)


@pytest.fixture(scope="module", params=FAMILIES)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    running = begin(tmp_path_factory.mktemp("model"), request.param)
    yield running
    running.close()


@pytest.fixture
def keeping(tmp_path: Path) -> Iterator[Engine]:
    running = begin(tmp_path, prefix_bytes=1 << 20)
    yield running
    running.close()


def source(seed: int, length: int) -> tuple[int, ...]:
    return tuple(random.Random(seed).choices(range(3, 160), k=length))


def asked(seed: int, *, length: int = 20, count: int = 24, sampling: SamplingParams = GREEDY) -> Request:
    return Request((START,), count, sampling, source=source(seed, length))


def likeliest(model: LoadedModel, read: tuple[int, ...], count: int) -> list[int]:
    """The plainest truth: everything computed anew for every token."""
    ids = [START]
    for _ in range(count):
        ids.append(int(np.argmax(score(model, ids, len(ids), source=read)[-1])))
    return ids[1:]


def test_the_answer_is_that_of_one_pass_over_it(engine: Engine) -> None:
    for seed, length in ((1, 1), (2, 9), (3, 60)):
        one = asked(seed, length=length, count=12)
        wanted = engine.call(lambda model, read=one.source: likeliest(model, read, 12))
        assert answer(engine, one) == wanted


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "warm"])
def test_a_batch_gives_what_single_runs_give(engine: Engine, sampling: SamplingParams) -> None:
    requests = [asked(n, length=1 + 17 * n, count=10 + 5 * n, sampling=sampling) for n in range(7)]
    alone = [answer(engine, one) for one in requests]
    assert answers(engine, requests) == alone


def test_seeds_part_answers_to_one_prompt(engine: Engine) -> None:
    got = [answer(engine, asked(1, sampling=replace(WARM, seed=seed))) for seed in (1, 2, 1)]
    assert got[0] == got[2] != got[1]


def test_the_answers_to_two_prompts_differ(engine: Engine) -> None:
    assert answer(engine, asked(1, sampling=WARM)) != answer(engine, asked(2, sampling=WARM))


def test_usage_counts_the_prompt_that_was_read(engine: Engine) -> None:
    usage = finished(engine, asked(2, length=40, count=9))[1].usage
    assert (usage.prompt_tokens, usage.cached_tokens, usage.generated_tokens) == (40, 0, 9)


@pytest.mark.parametrize("by_pages", [True, False])
def test_a_long_prompt_gets_what_a_long_answer_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, by_pages: bool
) -> None:
    """Where buffers are counted whole, one that fits beside no spare room fits, too."""
    monkeypatch.setattr("runtime.engine.room.native.by_pages", lambda: by_pages)
    engine = begin(tmp_path, cache_bytes=TOKEN_BYTES * CONTEXT)
    try:
        for length, count in ((5, CONTEXT - 9), (CONTEXT - 9, 5), (5, CONTEXT - 9)):
            assert len(answer(engine, asked(6, length=length, count=count))) == count
    finally:
        engine.close()


def test_prompt_and_answer_each_have_the_whole_context(engine: Engine) -> None:
    usage = finished(engine, asked(4, length=CONTEXT, count=CONTEXT - 1))[1].usage
    assert (usage.prompt_tokens, usage.generated_tokens) == (CONTEXT, CONTEXT - 1)


@pytest.mark.parametrize("length", [0, CONTEXT + 1])
def test_a_prompt_that_cannot_be_read_is_refused(engine: Engine, length: int) -> None:
    with pytest.raises(ValueError, match=f"{length} tokens for an encoder"):
        engine.submit(asked(1, length=length))


def test_ids_outside_the_vocabulary_are_refused(engine: Engine) -> None:
    with pytest.raises(BadTokenIds):
        engine.submit(replace(asked(1), source=(3, 160)))


def test_a_model_without_an_encoder_takes_none(tmp_path: Path) -> None:
    llama = begin(tmp_path, "llama")
    with pytest.raises(ValueError, match="expected none"):
        llama.submit(asked(1))
    llama.close()


def test_log_probabilities_are_those_of_the_answer(engine: Engine) -> None:
    request = replace(asked(5, count=6), top_logprobs=3)
    deltas = list(engine.submit(request))
    ids = [START, *(token for delta in deltas for token in delta.ids)]
    logits = engine.call(lambda model: score(model, ids, 4, source=request.source))
    wanted = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    got = [each.logprob for delta in deltas for each in delta.logprobs]
    assert np.allclose(got, wanted[np.arange(6), ids[1:]], atol=1e-4)


def test_lookup_drafts_change_nothing(tmp_path: Path, engine: Engine) -> None:
    drafting = begin(tmp_path, "t5", drafters=lambda *_: {"lookup": NgramDrafter()})
    plain = begin(tmp_path / "plain", "t5")
    requests = [asked(n, length=9 + n, count=60) for n in range(4)]
    wanted = [answer(plain, one) for one in requests]
    texts, finishes = run(drafting, requests)
    assert texts == wanted
    assert any(finish.usage.accepted_tokens for finish in finishes)
    drafting.close()
    plain.close()


def test_a_row_that_leaves_disturbs_nobody(engine: Engine) -> None:
    wanted = answer(engine, asked(3, count=40))
    staying, leaving = engine.submit(asked(3, count=40)), engine.submit(asked(4, length=50, count=90))
    next(iter(leaving))
    leaving.close()
    assert ids_of(staying) == wanted


def test_rows_step_aside_where_prompts_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = begin(tmp_path)
    requests = [asked(n, length=100, count=8) for n in range(4)]
    wanted = [answer(free, one) for one in requests]
    free.close()
    aside: list[object] = []
    plain = Loop._step_aside
    monkeypatch.setattr(Loop, "_step_aside", lambda self, error: (aside.append(error), plain(self, error))[1])
    tight = begin(tmp_path, cache_bytes=180 * TOKEN_BYTES)  # of one prompt and some answers
    assert answers(tight, requests) == wanted
    assert aside
    tight.close()


def test_what_a_prompt_takes_is_counted_once(tmp_path: Path) -> None:
    """Also where it has room only since earlier rows give back what they were not using. Without kernels
    they have nothing to give back: 256 tokens at a time are theirs.
    """
    tight = begin(tmp_path, cache_bytes=(300 if native.kernels else 400) * TOKEN_BYTES)
    for seed in range(8):
        assert len(answer(tight, asked(seed, length=100, count=8))) == 8
    memory = tight._loop.room.memory
    assert tight.call(lambda _model: memory.budget.held_bytes - memory.nbytes) == 0
    tight.close()


def test_a_prompt_too_large_for_the_memory_fails_alone(tmp_path: Path) -> None:
    tight = begin(tmp_path, cache_bytes=100 * TOKEN_BYTES)
    with pytest.raises(CacheFull):
        answer(tight, asked(1, length=120, count=4))
    assert len(answer(tight, asked(1, length=8, count=4))) == 4
    tight.close()


def test_an_equal_prompt_is_read_once(keeping: Engine) -> None:
    first, again = finished(keeping, asked(1))[1], finished(keeping, asked(1, sampling=WARM))[1]
    assert (first.usage.cached_tokens, again.usage.cached_tokens) == (0, 20)
    assert answer(keeping, asked(1)) == answer(keeping, asked(1))


def test_what_is_kept_gives_the_same_answer(keeping: Engine, tmp_path: Path) -> None:
    plain = begin(tmp_path / "plain")
    wanted = [answer(plain, asked(1, sampling=sampling)) for sampling in (GREEDY, WARM)]
    for _ in range(2):
        assert [answer(keeping, asked(1, sampling=sampling)) for sampling in (GREEDY, WARM)] == wanted
    plain.close()


@pytest.mark.parametrize("other", ["shorter", "longer", "last", "first"])
def test_prompts_that_are_not_equal_share_nothing(keeping: Engine, other: str) -> None:
    read = source(1, 20)
    changed = {
        "shorter": read[:-1],
        "longer": (*read, 5),
        "last": (*read[:-1], read[-1] ^ 1),
        "first": (read[0] ^ 1, *read[1:]),
    }[other]
    answer(keeping, asked(1))
    assert finished(keeping, replace(asked(1), source=changed))[1].usage.cached_tokens == 0
    assert finished(keeping, asked(1))[1].usage.cached_tokens == 20


def test_kept_prompts_are_listed_and_forgotten(keeping: Engine) -> None:
    for seed in (1, 2):
        answer(keeping, asked(seed))
    listed = keeping.list_prefixes()
    assert sorted(entry.keys for entry in listed) == sorted(source(seed, 20) for seed in (1, 2))
    assert all(entry.resumable and entry.nbytes == 20 * TOKEN_BYTES for entry in listed)
    keeping.clear_prefixes()
    assert keeping.list_prefixes() == []
    assert finished(keeping, asked(1))[1].usage.cached_tokens == 0


def test_the_oldest_prompt_gives_way(tmp_path: Path) -> None:
    small = begin(tmp_path, prefix_bytes=2 * 20 * TOKEN_BYTES)
    for seed in (1, 2, 3):
        answer(small, asked(seed))
    cached = [finished(small, asked(seed))[1].usage.cached_tokens for seed in (3, 2, 1)]
    assert cached == [20, 20, 0]
    small.close()


@pytest.mark.parametrize("entry", FAMILIES)
def test_prompts_outlive_the_process_on_disk(tmp_path: Path, entry: str) -> None:
    folder = PrefixFolder(tmp_path / "pages", "m", 1 << 24)
    texts: list[list[int]] = []
    cached: list[int] = []
    for _ in range(2):
        running = begin(tmp_path / "model", entry, prefix_bytes=1 << 20, prefix_folder=folder)
        ids, finish = finished(running, asked(1))
        texts.append(ids)
        cached.append(finish.usage.cached_tokens)
        running.close()
    assert texts[0] == texts[1]
    assert cached == [0, 20]
