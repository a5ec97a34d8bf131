"""Heads stored behind the last layer, and the block draft, compute what transformers' do."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.cache.build import build_memory
from runtime.loading.forecast import check_weights
from runtime.models import find_family, muse_glimmer_assistant
from runtime.models.muse_glimmer_assistant import BlockDraft
from runtime.step import Inputs, Step
from runtime.weights.fit import fit
from runtime.weights.holding import Holding, fill
from tests.support.checkpoints import random_state

DATA = Path(__file__).resolve().parents[2] / "data" / "special"
HEADS = ["deepseek_v3_mtp", "glm4_moe_mtp"]
BAR = 1e-4


def record(name: str) -> dict[str, Any]:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def answers(name: str) -> dict[str, mx.array]:
    with np.load(DATA / f"{name}.npz") as opened:
        return {key: mx.array(value) for key, value in opened.items()}


def tensors(name: str) -> dict[str, mx.array]:
    shapes = {key: tuple(shape) for key, shape in record(name)["tensors"].items()}
    return {key: mx.array(value) for key, value in random_state(shapes).items()}


def filled(network: Any, weights: dict[str, mx.array]) -> Any:
    fit(network, weights, {})
    fill(network, weights, Holding())
    return network


def distance(got: mx.array, wanted: mx.array) -> float:
    return float(mx.abs(got - wanted).max() / mx.std(wanted))


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("cuts", [[24], [7, 1, 1, 15]], ids=str)
def test_heads_in_a_row(name: str, cuts: list[int]) -> None:
    config, given = record(name)["config"], answers(name)
    family = find_family(config)
    assert family.head is not None
    parsed = family.parse(config)
    head = filled(family.head.build(parsed), family.head.adapt(parsed, tensors(name)))
    memory, at, got = build_memory(family.head.layout(parsed)), 0, []
    for width in cuts:
        now = slice(at, at + width)
        step = Step((at,), (width,), inputs=Inputs(embeddings=given["embedded"][:, now]))
        memory.prepare(step)
        first = head(step, memory, given["hidden"][:, now])
        second = head(step, memory, first, depth=1)
        memory.commit(step, step.counts)
        got.append(mx.stack([first, second]))
        at += width
    both = mx.concatenate(got, axis=2)
    assert distance(both[0], given["first"]) < BAR
    assert distance(both[1], given["second"]) < BAR


@pytest.mark.parametrize("name", HEADS)
def test_a_target_does_not_mind_the_heads_behind_it(name: str) -> None:
    config = record(name)["config"]
    stored = {key: ("F32", tuple(shape)) for key, shape in record(name)["tensors"].items()}
    copies = {f"model.layers.{config['num_hidden_layers']}.embed_tokens.weight": ("F32", (160, 64))}
    problems = check_weights(config, {**stored, **copies})
    assert problems
    assert all("is missing" in problem for problem in problems)


def drafter() -> BlockDraft:
    name = "muse_glimmer_assistant"
    config = muse_glimmer_assistant.parse(record(name)["config"])
    return filled(muse_glimmer_assistant.build(config), muse_glimmer_assistant.adapt(config, tensors(name)))


@pytest.mark.parametrize("length", [7, 24], ids=["within the window", "beyond it"])
@pytest.mark.parametrize("cuts", [[24], [3, 4, 9]], ids=str)
def test_a_drafted_block(length: int, cuts: list[int]) -> None:
    draft, given = drafter(), answers("muse_glimmer_assistant")
    config = muse_glimmer_assistant.parse(record("muse_glimmer_assistant")["config"])
    memory, at = build_memory(muse_glimmer_assistant.layout(config)), 0
    for width in cuts * 3:
        if width := min(width, length - at):
            step = Step((at,), (width,), inputs=Inputs(embeddings=given["states"][:, at : at + width]))
            memory.prepare(step)
            draft.read(step, memory)
            memory.commit(step, step.counts)
            at += width
    got = draft(Step((length,), (config.block,), inputs=Inputs(embeddings=given["embedded"])), memory)
    assert distance(got, given[f"after_{length}"]) < BAR


def test_blocks_of_rows_of_different_length() -> None:
    draft, given = drafter(), answers("muse_glimmer_assistant")
    config = muse_glimmer_assistant.parse(record("muse_glimmer_assistant")["config"])
    memory = build_memory(muse_glimmer_assistant.layout(config), rows=2)
    step = Step((0, 0), (24, 7), inputs=Inputs(embeddings=mx.repeat(given["states"], 2, axis=0)))
    memory.prepare(step)
    draft.read(step, memory)
    memory.commit(step, step.counts)
    block = Inputs(embeddings=mx.repeat(given["embedded"], 2, axis=0))
    got = draft(Step((24, 7), (5, 5), inputs=block), memory)
    assert distance(got[:1], given["after_24"]) < BAR
    assert distance(got[1:], given["after_7"]) < BAR
