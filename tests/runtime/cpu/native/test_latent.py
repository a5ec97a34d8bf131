"""Latent attention as one node has the bits of its parts, packed and not, in every column; and its products
by heads those of the heads by themselves.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from runtime.cache.build import build_memory
from runtime.cpu import native

if native.kernels is None:
    pytest.skip(f"no kernels: {native.status.reason}", allow_module_level=True)

from runtime.cpu.composed import Composed
from runtime.nn.attention.mla import HeadLinear, LatentAttention, LatentShape
from runtime.nn.feed_forward.mlp import GatedMLP
from runtime.nn.norm import RMSNorm
from runtime.nn.operations import ops
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec
from runtime.nn.residual.block import PreNorm
from runtime.step import Step
from tests.runtime.cpu.native.rows import computing

HIDDEN, HEADS, RANK, CONTENT, POSITION, VALUE = 64, 3, 64, 32, 8, 32
SHAPE = LatentShape(
    hidden=HIDDEN,
    heads=HEADS,
    query_rank=96,
    rank=RANK,
    content=CONTENT,
    position=POSITION,
    value=VALUE,
    scale=0.2,
    bias=True,
)
TURN = Rope(RopeSpec(POSITION, (1.0, 10.0, 100.0, 1000.0), traditional=True))


class Sharpened(LatentAttention):
    def factors(self, step: Step) -> mx.array | None:
        return 1 + step.positions / 7


def block(kind: type[LatentAttention], shape: LatentShape, rope: Rope | None, how: Any) -> PreNorm:
    mx.random.seed(3)
    made = PreNorm(kind(shape, rope), GatedMLP(HIDDEN, 96), partial(RMSNorm, HIDDEN))
    for _, module in made.named_modules():
        for name, array in module.items():
            if isinstance(array, mx.array):
                module[name] = mx.random.normal(array.shape) * array.shape[-1] ** -0.5
    matrices = nn.Linear, HeadLinear
    if isinstance(how, mx.Dtype):
        for module in made.modules():
            if isinstance(module, matrices):
                module.weight = module.weight.astype(how)
    elif how:
        nn.quantize(
            made, *how[:2], mode=how[2], class_predicate=lambda _, module: isinstance(module, matrices)
        )
    return made


def answers(made: PreNorm, shape: LatentShape, kept: str | None, cuts: list[list[int]]) -> list[np.ndarray]:
    """Of two rows, read in steps of so many tokens of each."""
    memory: Any = build_memory([shape.memory], rows=2, kept_format=kept)
    x = mx.random.normal((2, 40, HIDDEN), key=mx.random.key(5))
    found: list[list[np.ndarray]] = [[], []]
    for counts in cuts:
        starts = memory.caches[0].lengths
        step = Step(starts, tuple(counts))
        memory.prepare(step)
        rows = [x[row : row + 1, start : start + step.width] for row, start in enumerate(starts)]
        y = ops.table.layers([made], mx.concatenate(rows), step, memory)
        for row, count in enumerate(counts):
            found[row].append(np.array(y[row, :count]))
        memory.commit(step, step.counts)
    return [np.concatenate(row) for row in found]


CASES: list[tuple[type[LatentAttention], LatentShape, Rope | None, Any, str | None]] = [
    (LatentAttention, SHAPE, TURN, (32, 4, "affine"), None),
    (LatentAttention, replace(SHAPE, bias=False), TURN, (32, 8, "affine"), None),
    (LatentAttention, replace(SHAPE, query_rank=None), None, (32, 4, "mxfp4"), None),
    (LatentAttention, replace(SHAPE, query_rank=None), TURN, (32, 8, "mxfp8"), "f16"),
    (Sharpened, SHAPE, TURN, mx.bfloat16, None),
    (Sharpened, SHAPE, Rope(RopeSpec(POSITION, (1.0, 10.0, 100.0, 1000.0))), None, "bf16"),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_bits(case: int) -> None:
    kind, shape, rope, how, kept = CASES[case]
    with ops.using("cpu"):
        made = block(kind, shape, rope, how)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ops, "table", replace(ops.table, layers=Composed({}).layers))
            wanted = answers(made, shape, kept, [[1, 1]] * 24)
        for column in native.kernels.columns():
            with computing(column, 2):
                got = answers(made, shape, kept, [[11, 7], [3, 5], [1, 3], *[[1, 1]] * 9])
            assert all(np.array_equal(a, b[: len(a)]) for a, b in zip(got, wanted, strict=True)), column


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize(
    "how", [None, (32, 4, "affine"), (32, 3, "affine"), (16, 4, "nvfp4"), (32, 8, "mxfp8")]
)
def test_heads_are_products_with_their_own_matrices(how: Any, back: bool) -> None:
    mx.random.seed(1)
    plain: Any = HeadLinear(HEADS, CONTENT, RANK)
    plain.weight = mx.random.normal(plain.weight.shape)
    made = plain if how is None else plain.to_quantized(*how[:2], mode=how[2])
    x = mx.random.normal((2, HEADS, 5, CONTENT if back else RANK))
    with ops.using("plain"):
        wanted = ops.table.by_heads(made, x, back)
    with ops.using("cpu"):
        got = ops.table.by_heads(made, x, back)
        alone = mx.concatenate(
            [ops.table.by_heads(made, x[:1, :, i : i + 1], back) for i in range(5)], axis=2
        )
    assert float(mx.abs(got - wanted).max()) < 1e-3 * float(mx.abs(wanted).max())
    assert np.array_equal(np.array(got[:1]), np.array(alone))
