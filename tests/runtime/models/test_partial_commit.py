"""A hybrid model forgets the tail of a step in every kind of its memory: what follows is as if it had
never been offered.
"""

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.cache.build import build_memory
from runtime.loaded import LoadedModel
from runtime.models import qwen3_5
from runtime.step import Inputs, Step
from tests.support.parity import Reference, bar, full_logits

HYBRIDS = [
    "bailing_hybrid",
    "bamba",
    "falcon_h1_norm",
    "granitemoehybrid",
    "jamba",
    "kimi_linear",
    "lfm2",
    "lfm3",
    "mamba",
    "mamba2_groups",
    "minimax",
    "nemotron_h",
    "olmo_hybrid",
    "plamo2",
    "qwen3_5",
    "recurrent_gemma",
    "ring_linear",
    *("rwkv5", "rwkv6", "rwkv7", "xlstm"),
    *("zamba", "zamba2"),
]


def _run(
    model: LoadedModel, memory: Any, rows: list[list[int]], starts: tuple[int, ...], kept: list[int]
) -> Any:
    """One step of several rows, of which kept[b] tokens stay; the hidden states."""
    width = max(len(row) for row in rows)
    tokens = mx.array([row + [0] * (width - len(row)) for row in rows])
    step = Step(starts=starts, counts=tuple(len(row) for row in rows), inputs=Inputs(tokens))
    memory.prepare(step)
    hidden = model.network(step, memory)
    memory.commit(step, kept)
    return hidden


@pytest.mark.parametrize("name", HYBRIDS)
def test_rejected_drafts_leave_no_trace(name: str, tmp_path: Path) -> None:
    reference = Reference(name)
    model, ids = reference.load(tmp_path), [int(i) for i in reference.answers["ids"]]
    memory = build_memory(model.described.layout, rows=2, dtype=model.dtype)
    _run(model, memory, [ids[:20], ids[:15]], (0, 0), [20, 15])
    wrong = [[*ids[20:22], 5, 6, 7], [*ids[15:19], 8]]
    _run(model, memory, wrong, (20, 15), [2, 4])
    _run(model, memory, [[9, 9], [9]], (22, 19), [0, 0])
    hidden = _run(model, memory, [[ids[22]], [ids[19]]], (22, 19), [1, 1])
    logits = np.array(model.network.logits(hidden)[:, 0].astype(mx.float32))
    wanted = full_logits(model, reference.answers["ids"])[[22, 19]]
    assert np.abs(logits - wanted).max() < 2 * bar(reference) * reference.answers["std"]


def test_a_draft_head_reads_its_own_memory_token_by_token_as_at_once(tmp_path: Path) -> None:
    config = qwen3_5.parse(Reference("qwen3_5_moe").record["config"])
    mx.random.seed(5)
    head = qwen3_5.build_head(config)
    head.update(_random(head.parameters()))
    embedded, hidden = mx.random.normal((1, 9, 64)), mx.random.normal((1, 9, 64))
    outcomes: list[mx.array] = []
    for cuts in ([9], [4, 1, 1, 3]):
        memory, at, parts = build_memory(qwen3_5.head_layout(config)), 0, []
        for width in cuts:
            now = slice(at, at + width)
            step = Step(starts=(at,), counts=(width,), inputs=Inputs(embeddings=embedded[:, now]))
            memory.prepare(step)
            parts.append(head(step, memory, hidden[:, now]))
            memory.commit(step, (width,))
            at += width
        outcomes.append(mx.concatenate(parts, axis=1))
    assert float(mx.abs(outcomes[0] - outcomes[1]).max()) < 1e-4


def _random(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _random(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_random(value) for value in tree]
    return mx.random.normal(tree.shape) * 0.2
