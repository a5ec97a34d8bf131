"""A step from ids to tokens in one node draws what its parts draw, and leaves the same memory."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.cache.build import build_memory
from runtime.cache.protocol import by_layout
from runtime.cpu import native
from runtime.loaded import LoadedModel
from runtime.nn.operations import ops
from runtime.parts.decoder import decoder_parts_of
from runtime.parts.draws import GuessParams
from runtime.sampling.params import SamplingParams
from runtime.sampling.sampler import Sampler
from runtime.step import Inputs, Step
from tests.support.parity import Reference

pytestmark = pytest.mark.skipif(native.kernels is None, reason=f"no kernels: {native.status.reason}")

FAMILIES = [
    *("gemma2", "gemma3_text", "gemma4_unified", "granite", "cohere", "cohere2"),  # logits of their own
    *("lfm2", "bamba", "granitemoehybrid", "qwen3_5", "olmo_hybrid", "mamba2", "nemotron_h"),  # folds
    *("mamba", "falcon_mamba", "jamba", "apertus", "apertus_biases"),
    *("gpt_neox", "gpt_neox_sequential", "falcon_h1", "falcon_h1_norm", "llama4", "llama4_text"),
    *("falcon_7b", "falcon_11b", "gptj", "codegen"),
]
STEPS = [(3, 5), (1, 1), (3, 2), (1, 1)]
"""Tokens of each of two rows; as many are kept, less one where it is the third."""


@pytest.fixture(autouse=True)
def _by_kernels() -> Iterator[None]:
    with ops.using("cpu"):
        yield


def drawn(model: LoadedModel, *, whole: bool) -> list[np.ndarray]:
    """What is drawn behind every token, and memory at the end."""
    memory: Any = build_memory(model.described.layout, rows=2, dtype=model.dtype)
    sampler = Sampler([SamplingParams(temperature=0.7 + row / 4, seed=row) for row in range(2)])
    starts, found = [0, 0], list[np.ndarray]()
    for turn, counts in enumerate(STEPS):
        ids = mx.array(
            [
                [(7 * row + 3 * (start + i)) % 50 + 1 for i in range(max(counts))]
                for row, start in enumerate(starts)
            ]
        )
        step = Step(tuple(starts), counts, inputs=Inputs(ids.astype(mx.int32)))
        memory.prepare(step)
        positions = [start + 1 for start in starts]
        if whole:
            by, network = sampler.plainly(positions, [], ()), decoder_parts_of(model.network)
            assert by is not None
            assert network is not None
            behind = ops.table.guess(network, step, None, by_layout(memory), by)
            assert behind is not None
            assert behind.broken is None
            tokens = behind.tokens
        else:
            logits = model.network.logits(model.network(step, memory), step)
            tokens = sampler.sample(logits, positions, inputs=ids)
        kept = tuple(count - (turn == 2) for count in counts)
        memory.commit(step, kept)
        found += [np.array(row[:count]) for row, count in zip(tokens, counts, strict=True)]
        starts = [start + count for start, count in zip(starts, kept, strict=True)]
    memory.evaluate()
    pages = [memory.snapshot(row, 0) for row in range(2)]
    held = [array for page in pages for part in page if part is not None for array in part.arrays]
    return [*found, *(np.array(array) for array in held)]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_whole_step_is_its_parts(name: str, tmp_path: Path) -> None:
    model = Reference(name).load(tmp_path)
    parts = drawn(model, whole=False)
    assert all(np.array_equal(a, b) for a, b in zip(drawn(model, whole=True), parts, strict=True))


@pytest.mark.parametrize("value", [mx.nan, mx.inf, -mx.inf, 1.0], ids=str)
def test_who_looks_is_told_where_there_were_no_numbers(value: float, tmp_path: Path) -> None:
    """Of the second row's last token; an id that is forbidden may have -inf."""
    model = Reference("llama").load(tmp_path)
    model.network.model.embed_tokens.weight[9] = value
    memory: Any = build_memory(model.described.layout, rows=2, dtype=model.dtype)
    step = Step((0, 0), (2, 3), inputs=Inputs(mx.array([[1, 2, 0], [3, 4, 9]], mx.int32)))
    memory.prepare(step)
    network = decoder_parts_of(model.network)
    assert network is not None
    behind = ops.table.guess(
        network, step, None, by_layout(memory), GuessParams(None, None, (1, 1), looks=True)
    )
    assert behind is not None
    assert behind.broken is not None
    hidden = model.network(step, memory)
    logits = np.array(model.network.logits(hidden, step))
    expected = (np.isnan(logits) | np.isposinf(logits)).any(axis=-1)
    assert np.array(behind.broken)[0, :2].tolist() == expected[0, :2].tolist()
    assert np.array(behind.broken)[1].tolist() == expected[1].tolist()
    assert expected[1, 2] == (value != 1.0)
