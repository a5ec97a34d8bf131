"""Requests with adapters: what one gets depends on its own alone, whoever shares steps, drafts or prompts."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from runtime.cache.memory import LayerMemory
from runtime.cache.page_folder import PrefixFolder
from runtime.engine.adapters import AdapterSource, Asked
from runtime.engine.engine import Engine
from runtime.engine.options import Options
from runtime.engine.request import Request
from runtime.engine.room import Drafters
from runtime.errors import WeightMismatch
from runtime.loaded import LoadedModel
from runtime.models import describe
from runtime.nn.adapters.low_rank import LowRank, LowRanks
from runtime.sampling.params import SamplingParams
from runtime.speculate.draft_model import ModelDrafter
from runtime.speculate.drafter import Drafter
from runtime.speculate.head import HeadDrafter
from runtime.speculate.ngram import NgramDrafter
from runtime.speculate.pair import drafters_for
from tests.support.assistants import load_assistant
from tests.support.dflash import block_config, load_block_draft
from tests.support.drafting import always_drafting
from tests.support.engines import GREEDY, Load, answer, answers, finished, run
from tests.support.heads import HeadReference
from tests.support.low_ranks import pairs_of
from tests.support.parity import Reference

WARM = SamplingParams(temperature=0.8, top_k=20, repeat_penalty=1.2, seed=11)
KINDS = [
    "llama",
    "qwen3_5",
    *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("qwen3_moe", "deepseek_v3")),
]
SETS: list[Asked] = [(), (("one", 1.0),), (("two", 1.0),), (("one", 0.5), ("two", -0.4)), (("two", 0.0),)]
PROMPT = tuple(range(20, 40))


def begin(folder: Path, model: str | Load, drafters: Drafters | None = None, **options: Any) -> Engine:
    """With adapters `one` and `two`, `uno` which is `one` by another name, and `broken`."""
    folder.mkdir(parents=True, exist_ok=True)
    loaded: list[LoadedModel] = []  # arrays live on the engine's thread alone

    def load() -> LoadedModel:
        found = (Reference(model).load if isinstance(model, str) else model)(folder)
        loaded.append(replace(found, network=getattr(found.network, "plain", found.network)))
        return loaded[0]

    def source(name: str, seed: int) -> AdapterSource:
        def read() -> LowRanks:
            return LowRanks(pairs_of(loaded[0].network, seed, dora=seed == 2))

        return AdapterSource(name, f"sha256:{seed}", read)

    def broken() -> LowRanks:
        return LowRanks({"nowhere": LowRank(mx.zeros((2, 1)), mx.zeros((1, 2)))})

    sources = [source("one", 1), source("two", 2), source("uno", 1), AdapterSource("broken", "", broken)]
    settings = {"context_length": 128, "budget_tokens": 16, "max_rows": 4, **options}
    return Engine(load, Options(**settings), drafters, None, sources)  # pyright: ignore[reportArgumentType]


def ask(
    engine: Engine, adapters: Asked, ids: tuple[int, ...] = PROMPT, count: int = 10
) -> tuple[list[int], int]:
    """The answer, and how many prompt tokens were not computed for it."""
    tokens, finish = finished(engine, Request(ids, count, GREEDY, adapters=adapters))
    return tokens, finish.usage.cached_tokens


@pytest.fixture(scope="module", params=KINDS)
def plain(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Engine]]:
    engine = begin(tmp_path_factory.mktemp("plain"), request.param)
    yield request.param, engine
    engine.close()


def requests(sampling: SamplingParams) -> list[Request]:
    return [Request(PROMPT[i:], 16, sampling, adapters=its) for i, its in enumerate(SETS)]


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "warm"])
def test_the_text_is_the_same_alone_and_in_company(
    plain: tuple[str, Engine], sampling: SamplingParams
) -> None:
    _, engine = plain
    alone = [answer(engine, one) for one in requests(sampling)]
    assert answers(engine, requests(sampling)) == alone
    assert len({tuple(tokens) for tokens in alone[:4]}) == 4


@pytest.mark.parametrize("drafter", ["lookup", "itself"])
def test_the_text_is_the_same_with_drafts(
    plain: tuple[str, Engine], drafter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, engine = plain
    wanted = [answer(engine, one) for one in requests(WARM)]
    always_drafting(monkeypatch)

    def make(_model: LoadedModel, _memory: LayerMemory) -> dict[str, Drafter]:
        if drafter == "lookup":
            return {"lookup": NgramDrafter(shortest=1)}
        return {"model": ModelDrafter(Reference(kind).load(tmp_path / "draft"))}

    drafting = begin(tmp_path, kind, drafters=make)
    got = answers(drafting, requests(WARM))
    drafting.close()
    assert got == wanted


def test_a_head_in_the_target_keeps_what_adapters_made_of_a_prompt_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (kind, *_) = sorted(path.stem for path in Path(__file__).parents[2].joinpath("data/heads").glob("*.json"))
    plain = begin(tmp_path / "plain", HeadReference(kind).load)
    asked = [(), (("one", 1.0),), (), (("one", 1.0),), (("uno", 1.0),)]
    wanted = [ask(plain, its)[0] for its in asked]
    plain.close()
    always_drafting(monkeypatch)
    drafting = begin(
        tmp_path / "drafting",
        HeadReference(kind).load,
        drafters=lambda target, _: {"head": HeadDrafter(target)},
        prefix_bytes=1 << 24,
    )
    got = [ask(drafting, its) for its in asked]
    kept = [entry for entry in drafting.list_prefixes() if entry.space == "head" and entry.start == 0]
    drafting.close()
    assert [tokens for tokens, _ in got] == wanted
    assert len(kept) == 2
    assert [cached > 0 for _, cached in got] == [False, False, True, True, True]


def block(folder: Path) -> LoadedModel:
    layers = len(describe(Reference("qwen3").record["config"]).layout)
    return load_block_draft(folder, {**block_config(), "num_target_layers": layers})


@pytest.mark.parametrize("pair", ["block", "assistant"])
def test_drafts_that_read_the_targets_states_change_no_text(
    pair: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target: Load = Reference("qwen3").load
    draft: Load = block
    if pair == "assistant":
        target, draft = (partial(load_assistant, name) for name in ("target", "plain"))
    (tmp_path / "draft").mkdir()
    plain = begin(tmp_path / "plain", target)
    wanted = [answer(plain, one) for one in requests(WARM)]
    plain.close()
    always_drafting(monkeypatch)
    drafting = begin(
        tmp_path / "drafting",
        target,
        drafters=lambda model, memory: drafters_for(model, draft(tmp_path / "draft"), memory),
        prefix_bytes=1 << 24,
    )
    got = [run(drafting, requests(WARM), together=together)[0] for together in (True, False)]
    drafting.close()
    assert got == [wanted, wanted]


def test_prompts_are_found_again_with_the_same_adapters_alone(
    plain: tuple[str, Engine], tmp_path: Path
) -> None:
    kind, cold = plain
    folder = PrefixFolder(tmp_path / "pages", "sha256:aa", 1 << 30)
    options: dict[str, Any] = {"prefix_bytes": 1 << 26, "mark_spacing": 1}
    warm = begin(tmp_path / "model", kind, prefix_folder=folder, **options)
    halved: Asked = (("one", 0.5),)
    for adapters in ((), (("one", 1.0),), halved, (("two", 1.0),), (("two", 1.0), ("one", 1.0))):
        first, cached = ask(warm, adapters)
        assert (first, cached) == (ask(cold, adapters)[0], 0)
        again, cached = ask(warm, adapters)
        assert again == first
        assert cached > 0
    assert ask(warm, (("uno", 1.0),))[1] > 0, "equal sets share, whatever they are called"
    assert ask(warm, (("two", 0.0),))[1] > 0, "nothing is nothing"
    wanted = ask(warm, halved)[0]
    warm.close()  # which waits for what goes to disk
    later = begin(tmp_path / "model", kind, prefix_folder=folder, **options)
    got, cached = ask(later, halved)
    assert ask(later, (("one", 0.25),))[1] == 0
    later.close()
    assert got == wanted
    assert cached > 0


def test_names_that_there_are_not_are_refused(plain: tuple[str, Engine]) -> None:
    _, engine = plain
    with pytest.raises(ValueError, match="no adapter 'three'; there is one, two, uno, broken"):
        engine.submit(Request(PROMPT, 4, GREEDY, adapters=(("one", 1.0), ("three", 1.0))))


def test_one_that_does_not_fit_ends_its_own_request(plain: tuple[str, Engine]) -> None:
    _, engine = plain
    with pytest.raises(WeightMismatch, match="adapter broken: nowhere belongs to no module"):
        ask(engine, (("broken", 1.0),))
    assert len(ask(engine, (("one", 1.0),))[0]) == 10


def test_what_an_encoder_made_of_a_prompt_is_its_adapters_own(tmp_path: Path) -> None:
    def read(engine: Engine, adapters: Asked) -> tuple[list[int], int]:
        tokens, finish = finished(engine, Request((0,), 8, WARM, source=PROMPT, adapters=adapters))
        return tokens, finish.usage.cached_tokens

    cold, warm = begin(tmp_path / "cold", "t5"), begin(tmp_path / "warm", "t5", prefix_bytes=1 << 22)
    asked: list[Asked] = [(), (("one", 1.0),), (("one", 1.0),), ()]
    got, wanted = [read(warm, its) for its in asked], [read(cold, its)[0] for its in asked]
    cold.close()
    warm.close()
    assert [tokens for tokens, _ in got] == wanted
    assert [cached > 0 for _, cached in got] == [False, False, True, True]
    assert wanted[0] != wanted[1]
