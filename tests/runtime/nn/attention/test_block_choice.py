"""Attention to chosen blocks: the same however a prompt is cut, and nothing else where all are chosen."""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from runtime.cache.build import build_memory
from runtime.cache.layout import Full, LayerSpec
from runtime.nn.attention import block_choice
from runtime.nn.attention.block_choice import BlockIndex, ChoosingAttention
from runtime.nn.attention.self_attention import HeadNormAttention
from runtime.nn.norm import RMSNorm
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec
from runtime.records import dataclass
from runtime.step import Step


@dataclass(frozen=True, slots=True)
class Shape:
    hidden_size: int = 32
    heads: int = 6
    kv_heads: int = 3
    head_dim: int = 16


SHAPE, LENGTH = Shape(), 23
TURN = Rope(RopeSpec(8, (1.0, 10.0, 100.0, 1000.0)))
INDEX = BlockIndex(size=10, block=4, chosen=2, local=1)
MEMORY = INDEX.memory(3, 16)


def filled(made: Any) -> Any:
    mx.random.seed(11)
    for _, module in sorted(made.named_modules()):
        for name, array in sorted(module.items()):
            if isinstance(array, mx.array):
                module[name] = mx.random.normal(array.shape) * array.shape[-1] ** -0.5
    return made


def attention(index: BlockIndex = INDEX) -> ChoosingAttention:
    return filled(ChoosingAttention(SHAPE, TURN, index, 1e-6))


def text() -> mx.array:
    mx.random.seed(5)
    return mx.random.normal((1, LENGTH, 32))


def run(made: Any, memory: LayerSpec, cuts: list[int]) -> mx.array:
    held, at, out = build_memory([memory]), 0, []
    for width in cuts:
        step = Step((at,), (width,))
        held.prepare(step)
        out.append(made(text()[:, at : at + width], step, held[0]))
        held.commit(step, step.counts)
        at += width
    return mx.concatenate(out, axis=1)


@pytest.mark.parametrize("cuts", [[1] * LENGTH, [3, 1, 15, 4]], ids=str)
def test_blocks_are_chosen_alike_however_the_prompt_is_cut(cuts: list[int]) -> None:
    made = attention()
    assert float(mx.abs(run(made, MEMORY, cuts) - run(made, MEMORY, [LENGTH])).max()) < 1e-5


def test_blocks_are_chosen_alike_whatever_is_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = attention()
    whole = run(made, MEMORY, [LENGTH])
    monkeypatch.setattr(block_choice, "HELD", LENGTH * LENGTH)
    assert mx.array_equal(run(made, MEMORY, [LENGTH]), whole)


def test_the_choice_of_all_blocks_changes_nothing() -> None:
    wide = BlockIndex(size=10, block=4, chosen=6, local=1)
    choosing = attention(wide)
    plain = HeadNormAttention(SHAPE, TURN, lambda _heads: RMSNorm(16, eps=1e-6))
    own: list[tuple[str, mx.array]] = tree_flatten(choosing.parameters())  # pyright: ignore[reportAssignmentType] -- pairs
    plain.load_weights([(name, array) for name, array in own if not name.startswith("indexer.")])
    got, wanted = run(choosing, MEMORY, [LENGTH]), run(plain, Full(3, 16), [LENGTH])
    assert float(mx.abs(got - wanted).max()) < 1e-5


@pytest.mark.parametrize("local", [0, 1, 2])
def test_a_query_sees_the_blocks_near_it_and_the_best_of_the_others(local: int) -> None:
    made = attention(BlockIndex(size=10, block=4, chosen=2, local=local)).indexer
    step, x = Step((0,), (LENGTH,)), text()
    keys = made.key(x, step)
    seen = made.choose(x, keys, "causal", step)
    queries = TURN(made.q_norm(made.q_proj(x).reshape(1, LENGTH, 3, 10).swapaxes(1, 2)), step)
    scores = np.array(queries @ keys.swapaxes(-1, -2))[0]
    for group, place in np.ndindex(3, LENGTH):
        own = place // 4
        near = {own - i for i in range(local) if i <= own}
        best = {b: scores[group, place, 4 * b : min(4 * b + 4, place + 1)].max() for b in range(own + 1)}
        others = sorted(best.keys() - near, key=lambda b: -best[b])[: 2 - len(near)]
        wanted = {p for b in near | {*others} for p in range(4 * b, 4 * b + 4) if p <= place}
        assert {*np.flatnonzero(np.array(seen)[0, group, place])} == wanted


def test_an_index_key_lies_behind_those_of_the_groups() -> None:
    assert Full(3, 16 + 4, 16) == MEMORY
