"""Block drafts: what they propose, that they keep up with what happens to rows, and that nobody notices."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.cache.build import build_memory
from runtime.cache.memory import LayerMemory
from runtime.cache.prefix import PrefixStore
from runtime.engine.engine import Engine, Options
from runtime.engine.request import Request, Usage
from runtime.loaded import LoadedModel
from runtime.loading.load import load_model
from runtime.models import Described, describe
from runtime.sampling.params import SamplingParams
from runtime.speculate import block as block_room
from runtime.speculate.block import BlockDrafter
from runtime.speculate.drafter import Drafter, Proposal, Rows
from runtime.speculate.pair import drafters_for, pair_problem, runs_inside
from runtime.step import Inputs, Step
from runtime.trunks.taps import taps_of
from tests.support import drafting
from tests.support.bench import Action, Bench, actions_of
from tests.support.checkpoints import random_state
from tests.support.dflash import block_config, block_shapes, block_states, load_block_draft
from tests.support.drafting import Texts, put_right, texts_of
from tests.support.oneshot import build_one_shot
from tests.support.parity import Reference
from tests.support.tiny import CONFIG as TINY
from tests.support.tiny import llama_shapes

GREEDY = SamplingParams(temperature=0)
WARM = SamplingParams(temperature=1.0, top_k=30, seed=5)
HELD = SamplingParams(temperature=1.0, top_k=30, repeat_penalty=1.3, presence_penalty=0.2, seed=6)
WINDOWED = block_config(layer_types=["sliding_attention", "full_attention"], sliding_window=9)


def layers_of(name: str) -> int:
    return len(describe(Reference(name).record["config"]).layout)


def draft_for(name: str, folder: Path, **changes: Any) -> LoadedModel:
    return load_block_draft(folder, {**WINDOWED, "num_target_layers": layers_of(name), **changes})


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[LoadedModel, LoadedModel]:
    folder = tmp_path_factory.mktemp("pair")
    return Reference("qwen3").load(folder), draft_for("qwen3", folder / "draft")


def drafts_of(target: LoadedModel, ids: list[int], depth: int) -> list[int]:
    """Greedy drafts after `ids`: states without layer memory, and the block by its definition in numpy."""
    step = Step(starts=(0,), counts=(len(ids) - 1,), inputs=Inputs(mx.array([ids[:-1]])))
    target.network(step, build_one_shot(target.described.layout))
    taps = taps_of(target.network)
    assert taps is not None
    states = np.array(taps.tapped(step, (0, 2, 1))[0])
    embedded = np.array(target.network.model.embed_tokens(mx.array([ids[-1], *[159] * depth])))
    hidden = block_states(WINDOWED, random_state(block_shapes(WINDOWED)), states, embedded)
    logits = target.network.logits(mx.array(hidden[1:].astype(np.float32)))
    return [int(token) for token in mx.argmax(logits, axis=-1).tolist()]  # pyright: ignore


ACTIONS = actions_of(range(2, 21), range(1, 10), range(1, 6))


@settings(max_examples=8)
@given(actions=st.lists(ACTIONS, min_size=4, max_size=9))
def test_drafts_are_those_of_a_draft_that_read_everything_anew(
    pair: tuple[LoadedModel, LoadedModel], actions: list[Action]
) -> None:
    target, draft = pair
    bench = Bench(target, lambda _: BlockDrafter(draft, target), rows=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_room, "FLUSH", 6)
        for ids, depth, drafted in bench.play([("admit", 5, 5), *actions, ("speculate", 5, 2)]):
            assert drafted == drafts_of(target, ids, depth)


def test_what_waits_is_bounded(pair: tuple[LoadedModel, LoadedModel]) -> None:
    target, draft = pair
    bench = Bench(target, lambda _: BlockDrafter(draft, target), rows=1)
    bench.admit(3 * block_room.FLUSH // 2 + 5, 64)
    assert isinstance(bench.drafter, BlockDrafter)
    line = bench.drafter._lines[0]  # pyright: ignore[reportPrivateUsage] -- what it holds is the claim
    assert line.waiting <= block_room.FLUSH + 64


def test_a_row_whose_past_was_not_observed_drafts_from_what_it_saw(
    pair: tuple[LoadedModel, LoadedModel],
) -> None:
    target, draft = pair
    bench = Bench(target, lambda _: BlockDrafter(draft, target), rows=1)
    ids = [bench.token() for _ in range(12)]
    silent(bench, ids[:8])
    bench.step([ids[8:]], [8], [4])
    bench.ids.append([*ids, bench.token()])
    for depth in (3, 1, 5):
        assert len(bench.speculate(depth, 1)[0]) == depth


def test_a_row_begins_with_what_an_earlier_one_left(
    pair: tuple[LoadedModel, LoadedModel],
) -> None:
    """The target itself starts later than that, or earlier and is not heard again."""
    target, draft = pair
    ids = [(7 * i) % 150 + 3 for i in range(31)]
    for known in (12, 20, 29):
        bench = Bench(target, lambda _: BlockDrafter(draft, target), rows=1)
        drafter: Any = bench.drafter
        drafter.share(PrefixStore(drafter.memory.layout, 1 << 24))
        drafter.begin(0, ids[:21])
        bench.step([ids[:20]], [0], [20])
        drafter.end(0, ids[:20])
        for place in (bench.memory, drafter):
            place.clear(0)
        drafter.begin(0, ids[:-1])
        silent(bench, ids[:known])
        bench.step([ids[known:-1]], [known], [30 - known])
        bench.ids.append(list(ids))
        heard_all = bench.speculate(4, 2)[0] == drafts_of(target, ids, 4)
        assert heard_all == (known <= 20)


def silent(bench: Bench, ids: list[int]) -> None:
    """The target knows these from elsewhere: nobody is told."""
    step = Step(starts=(0,), counts=(len(ids),), inputs=Inputs(mx.array([ids])))
    bench.memory.prepare(step)
    bench.target.network(step, bench.memory)
    bench.memory.commit(step, step.counts)


def test_the_limit_is_a_block_without_its_first_token(pair: tuple[LoadedModel, LoadedModel]) -> None:
    target, draft = pair
    assert BlockDrafter(draft, target).limit == 5


# Tokens of the engine


@pytest.fixture
def always_drafting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Depths of every size in turn, whatever pays, and flushes in the middle of prompts."""
    drafting.always_drafting(monkeypatch, range(1, 6))
    monkeypatch.setattr(block_room, "FLUSH", 12)


class Helped(BlockDrafter):
    """Guesses right more often than random weights do."""

    known: Texts

    def propose(self, rows: Rows, depth: int) -> Proposal | None:
        return put_right(super().propose(rows, depth), rows, depth, self.known)


def requests(sampling: SamplingParams) -> list[Request]:
    """Prompts of different lengths that begin alike; the fourth waits for a place."""
    long = [(i * i + 3) % 150 + 3 for i in range(60)]
    return [Request((*long[: 1 + 14 * n], n + 3), 24, sampling) for n in range(5)]


def total(usages: list[Usage]) -> tuple[int, int]:
    """Drafted, accepted."""
    return sum(u.drafted_tokens for u in usages), sum(u.accepted_tokens for u in usages)


@pytest.mark.usefixtures("always_drafting")
@pytest.mark.parametrize(
    ("name", "sampling"),
    [
        ("qwen3", GREEDY),
        ("qwen3", HELD),
        ("mistral_window", WARM),
        ("qwen3_5", WARM),
        ("muse_glimmer", GREEDY),
    ],
    ids=["full", "full with penalties", "window", "recurrent", "muse_glimmer"],
)
def test_the_tokens_are_those_of_plain_decoding(name: str, sampling: SamplingParams, tmp_path: Path) -> None:
    """In a batch, and once more from what the prefix stores kept of it."""
    load: Callable[[], LoadedModel] = lambda: Reference(name).load(tmp_path)  # noqa: E731
    plain = Engine(load, Options(context_length=256, budget_tokens=16, max_rows=3))
    wanted, _ = texts_of(plain, requests(sampling))
    plain.close()

    def drafters(target: LoadedModel, _: object) -> dict[str, Drafter]:
        helped = Helped(draft_for(name, tmp_path / "draft"), target)
        helped.known = wanted
        return {"draft": helped}

    storing = Options(context_length=256, budget_tokens=16, max_rows=3, prefix_bytes=1 << 24)
    engine = Engine(load, storing, drafters)
    cold, usages = texts_of(engine, requests(sampling))
    warm, again = texts_of(engine, requests(sampling))
    engine.close()
    assert cold == wanted
    assert warm == wanted
    assert any(usage.cached_tokens for usage in again)
    drafted, accepted = total(usages)
    assert 0.2 * drafted < accepted < 0.9 * drafted


# A pair with crafted weights: the target counts to eight again and again, and the draft looks one round back.

SIZE, ROUND, MASK = 64, 8, 63
COUNTING = {
    **TINY,
    "vocab_size": SIZE,
    "hidden_size": SIZE,
    "num_attention_heads": 1,
    "head_dim": SIZE,
    "tie_word_embeddings": False,
}
LOOKING = block_config(
    vocab_size=SIZE,
    num_hidden_layers=1,
    num_target_layers=2,
    num_attention_heads=1,
    num_key_value_heads=1,
    head_dim=SIZE,
    attention_bias=True,
    block_size=8,
    mask_token_id=MASK,
    target_layer_ids=[1],
)


def crafted(folder: Path, config: dict[str, Any], shapes: Mapping[str, tuple[int, ...]], **own: Any) -> Any:
    """A model of zeros and norms of ones, but for these tensors."""
    state = {name: (np.ones if "norm" in name else np.zeros)(shape) for name, shape in shapes.items()}
    state |= {name.replace("__", "."): array for name, array in own.items()}
    assert state.keys() == shapes.keys()
    folder.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(
        str(folder / "model.safetensors"), {name: mx.array(x, mx.float32) for name, x in state.items()}
    )
    return load_model(config, [folder / "model.safetensors"])


def counting(folder: Path) -> LoadedModel:
    """Token t is the t-th unit vector, layers add nothing, and t + 1 mod 8 follows."""
    follows = np.zeros((SIZE, SIZE))
    follows[(np.arange(SIZE) + 1) % ROUND, np.arange(SIZE)] = 4
    own = {"model__embed_tokens__weight": np.eye(SIZE), "lm_head__weight": follows}
    return crafted(folder, COUNTING, llama_shapes(COUNTING), **own)


def looking_back(folder: Path) -> LoadedModel:
    """Every token attends what stands ROUND + 1 places before it, whose successor its own successor is.

    All keys are alike, all queries are that key turned as far; only rotation tells positions apart.
    """
    frequencies = LOOKING["rope_theta"] ** (-np.arange(SIZE // 2) / (SIZE // 2))
    angles = -(ROUND + 1) * frequencies
    query = np.concatenate([np.cos(angles), np.sin(angles)])
    key = np.concatenate([np.ones(SIZE // 2), np.zeros(SIZE // 2)])
    at = "layers__0__self_attn__"
    own = {
        "fc__weight": np.eye(SIZE),
        f"{at}q_proj__bias": query,
        f"{at}k_proj__bias": key,
        f"{at}q_norm__weight": np.full(SIZE, 20.0),
        f"{at}v_proj__weight": np.eye(SIZE),
        f"{at}o_proj__weight": 9 * np.eye(SIZE),
    }
    return crafted(folder, LOOKING, block_shapes(LOOKING), **own)


@pytest.mark.usefixtures("always_drafting")
@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "warm"])
def test_all_drafts_of_a_perfect_draft_stand(sampling: SamplingParams, tmp_path: Path) -> None:
    """It is right only if states, positions and places in the block are exactly where they should be."""
    prompts = [tuple((n + i) % ROUND for i in range(12 + 9 * n)) for n in range(3)]

    def drafters(target: LoadedModel, memory: LayerMemory) -> dict[str, Drafter]:
        return drafters_for(target, looking_back(tmp_path / "draft"), memory)

    engine = Engine(lambda: counting(tmp_path), Options(context_length=256, budget_tokens=7), drafters)
    texts, usages = texts_of(engine, [Request(prompt, 40, sampling) for prompt in prompts])
    engine.close()
    for prompt, text in texts.items():
        assert text == [(prompt[-1] + 1 + i) % ROUND for i in range(40)]
    drafted, accepted = total(usages)
    assert accepted == drafted > 60


# Who fits whom


def described(name: str) -> Described:
    return describe(Reference(name).record["config"])


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("qwen3", {}, None),
        ("mamba", {}, "hidden states between layers, which MambaForCausalLM does not give"),
        ("qwen3", {"hidden_size": 96}, "hidden size 96, and this one's is 64"),
        ("qwen3", {"num_target_layers": 36}, "36 layers, and this one has 4"),
        ("qwen3", {"num_target_layers": None, "target_layer_ids": [1, 7]}, "reads layer 7, .* is 3"),
        # Each of its three layers remembers two things.
        ("baichuan_m1_plain", {"num_target_layers": 3}, None),
        ("baichuan_m1_plain", {"num_target_layers": None, "target_layer_ids": [1, 3]}, "layer 3, .* is 2"),
        ("qwen3", {"mask_token_id": 160}, "mask token is 160, .* vocabulary has 160"),
        ("qwen3", {"draft_vocab_size": 32}, "vocabulary of 32, and its target's has 160"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_block_draft_fits_the_target_it_was_made_for(
    name: str, changes: dict[str, Any], said: str | None
) -> None:
    problem = pair_problem(describe(block_config(**changes)), described(name))
    assert problem is None if said is None else re.search(said, str(problem))


def test_a_block_draft_only_runs_inside_its_target() -> None:
    assert runs_inside(describe(block_config()))
    assert not runs_inside(described("qwen3"))


def test_a_block_draft_is_served_by_its_own_drafter(pair: tuple[LoadedModel, LoadedModel]) -> None:
    target, draft = pair
    memory = build_memory(target.described.layout)
    assert isinstance(drafters_for(target, draft, memory)["draft"], BlockDrafter)
