"""Penalties by the kernels have the bits of their definition in MLX."""

import mlx.core as mx
import numpy as np
import pytest

from runtime.cpu import native

if native.kernels is None:
    pytest.skip(f"no kernels: {native.status.reason}", allow_module_level=True)

from runtime.nn.operations import ops
from runtime.sampling.params import SamplingParams
from runtime.sampling.penalties import Penalties

IDS = 300
PARAMS = [
    SamplingParams(repeat_penalty=1.3, presence_penalty=0.3, frequency_penalty=0.7, repeat_last_n=20),
    SamplingParams(repeat_penalty=0.7, frequency_penalty=-0.9, repeat_last_n=-1),
    SamplingParams(presence_penalty=1.1, repeat_last_n=3),
]


@pytest.mark.parametrize("columns", [1, 4])
@pytest.mark.parametrize("lengths", [(0, 0, 0), (100, 40, 2), (7, 500, 60)])
def test_bits(columns: int, lengths: tuple[int, ...]) -> None:
    dice = np.random.default_rng(sum(lengths))
    logits = mx.array(dice.normal(size=(3, columns, IDS)).astype(np.float32) * 5)
    pasts = [dice.integers(0, 60, length).tolist() for length in lengths]
    inputs = mx.array(dice.integers(0, 60, (3, columns)).astype(np.int32))
    by = Penalties.of(PARAMS)
    with ops.using("plain"):
        wanted = np.array(by.apply(logits, pasts, inputs))
    with ops.using("cpu"):
        got = np.array(by.apply(logits, pasts, inputs))
    assert np.array_equal(got.view(np.uint32), wanted.view(np.uint32))
    assert not np.array_equal(got, np.array(logits))


def test_ids_beyond_the_logits_count_for_nothing() -> None:
    by = Penalties.of(PARAMS[:1])
    logits = mx.ones((1, 1, 8))
    with ops.using("cpu"):
        got = by.apply(logits, [[900, 2]], mx.array([[4]], dtype=mx.int32))
    assert np.flatnonzero(np.array(got[0, 0]) != 1).tolist() == [2, 4]
