"""What adapters add behind products: the right numbers, and the same bits whoever shares the step."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from runtime.cpu import native

if native.kernels is None:
    pytest.skip(f"no kernels: {native.status.reason}", allow_module_level=True)

from runtime.cache.attention import KVCache
from runtime.cache.layout import Full
from runtime.cpu.native.pairs import in_strips
from runtime.nn.adapters.adapter import Adapter
from runtime.nn.adapters.low_rank import LowRank, LowRanks
from runtime.nn.adapters.rows import Members, RowAdapters
from runtime.nn.adapters.stacks import AdapterStacks
from runtime.nn.operations import ops
from runtime.step import Step
from tests.runtime.cpu.native.rows import bits, computing, normal
from tests.runtime.cpu.native.test_attention_nodes import packed
from tests.runtime.cpu.native.test_layers import CPU, KINDS, MIXTURES, memory, one_by_one

kernels = native.kernels
TYPES = {mx.float32: 0, mx.bfloat16: 1, mx.float16: 2}
SHAPES = [
    (5, 7, 1),
    (64, 64, 8),
    (3, 9, 8),
    (65, 20, 8),
    (126, 33, 8),
    (300, 200, 16),
    (96, 37, 17),
    (130, 80, 40),
]
"""(width, outputs, rank)"""
LISTS: Sequence[list[tuple[int, float]]] = (
    [(0, 1.0)], [], [(1, 0.5)], [(0, 1.0)],
    [(1, 0.5), (0, -2.0)], [(0, 1.0)], [(2, 1.0)], [(0, 1.0), (2, 3.0)],
)  # fmt: skip
"""Of each row its adapters; the third of them adds nothing behind this matrix."""


class Made:
    """Random numbers of two adapters, as kernels have them."""

    def __init__(self, width: int, outputs: int, rank: int, kind: mx.Dtype, vectors: bool) -> None:
        def numbers(*shape: int, seed: int, kind: mx.Dtype = mx.float32) -> mx.array:
            return mx.array(normal(*shape, seed=seed)).astype(kind)

        self.down = numbers(2, width, rank, seed=1, kind=kind)
        self.up = numbers(2, rank, outputs, seed=2, kind=kind)
        self.factor, self.bias = numbers(2, outputs, seed=3), numbers(2, outputs, seed=4)
        self.own = numbers(outputs, seed=5)
        if not vectors:
            self.factor = self.bias = self.own = None
        lying = [*({**vars(self), "up": mx.contiguous(in_strips(self.up))}).values()]
        mx.eval([array for array in lying if array is not None])
        self.pairs = kernels.Pairs(width, outputs, *lying, places=[0, 1, -1])

    def wanted(self, x: np.ndarray, y: np.ndarray, its: list[tuple[int, float]]) -> np.ndarray:
        """One row, in float64."""

        def of(array: mx.array | None, which: int) -> Any:
            return 0.0 if array is None else np.array(array[which].astype(mx.float32), np.float64)

        own = 0.0 if self.own is None else np.array(self.own, np.float64)
        total = y.astype(np.float64)
        for which, scale in its:
            if which < 2:
                more = x @ of(self.down, which) @ of(self.up, which)
                total = total + scale * (more + of(self.factor, which) * (y - own) + of(self.bias, which))
        return total


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_as_defined(shape: tuple[int, int, int], kind: mx.Dtype, vectors: bool) -> None:
    width, outputs, rank = shape
    made = Made(width, outputs, rank, kind, vectors)
    x, y = normal(len(LISTS), 3, width, seed=8), normal(len(LISTS), 3, outputs, seed=9)
    for column in kernels.columns():
        with computing(column, 2):
            got = kernels.add_pairs(mx.array(x), mx.array(y), made.pairs, kernels.Members(LISTS))
            wanted = np.stack([made.wanted(x[i], y[i], its) for i, its in enumerate(LISTS)])
            assert np.abs(np.array(got) - wanted).max() <= 2e-6 * np.sqrt(width * rank) * np.abs(wanted).max()


@pytest.mark.parametrize(("width", "rank"), [(300, 17), (303, 8)])
def test_a_row_is_the_same_bits_alone_in_company_and_for_any_cut(width: int, rank: int) -> None:
    outputs = 200
    made = Made(width, outputs, rank, mx.bfloat16, True)
    x, y = mx.array(normal(8, 11, width, seed=8)), mx.array(normal(8, 11, outputs, seed=9))
    with computing("plain", 1):
        alone = np.stack(
            [
                np.concatenate(
                    [
                        bits(
                            kernels.add_pairs(
                                x[i : i + 1, t : t + 1], y[i : i + 1, t : t + 1], made.pairs, one
                            )
                        )[0]
                        for t in range(11)
                    ]
                )
                for i, its in enumerate(LISTS)
                for one in [kernels.Members([its])]
            ]
        )
    for column in kernels.columns():
        for threads in (1, 2, 3):
            with computing(column, threads):
                got = bits(kernels.add_pairs(x, y, made.pairs, kernels.Members(LISTS)))
                assert np.array_equal(got, alone), (column, threads)


@pytest.mark.parametrize("rows", [1, 3, 32, 33, 100])
def test_a_product_with_pairs_has_the_bits_of_both_one_behind_the_other(rows: int) -> None:
    """Few rows and many go other ways, and so do gates and what is added to something else."""
    layer = packed(KINDS[0](), 3)
    stacks = AdapterStacks([an_adapter([layer], seed) for seed in (1, 2)])
    adapters = RowAdapters(stacks, [((stacks.adapters[1], 0.5), (stacks.adapters[0], 2.0))])
    step = Step((0,), (rows,), adapters=adapters)
    x = mx.array(normal(1, rows, 64, seed=6))
    with ops.using("cpu"):
        wanted = bits(one_by_one([layer], x, step, memory([layer])))
        assert np.array_equal(bits(CPU.layers([layer], x, step, memory([layer]))), wanted)
        plain = Step((0,), (rows,))
        assert not np.array_equal(bits(CPU.layers([layer], x, plain, memory([layer]))), wanted)


def an_adapter(
    layers: Sequence[nn.Module], seed: int, rank: int = 5, kind: mx.Dtype = mx.bfloat16
) -> Adapter:
    network = nn.Module()
    network.layers = list(layers)
    pairs: dict[str, LowRank] = {}
    for i, (name, module) in enumerate(network.named_modules()):
        if type(module) in (nn.Linear, nn.QuantizedLinear):
            out = module.weight.shape[0]
            width = module.weight.shape[1] * (32 // module.bits if "scales" in module else 1)
            down, up = normal(width, rank, seed=seed + i), normal(rank, out, seed=100 + seed + i)
            pairs[name] = LowRank(mx.array(down).astype(kind), mx.array(up).astype(kind) * 0.02, 2.0)
    return Adapter(network, LowRanks(pairs), mx.float32)


@pytest.mark.parametrize("name", ["shared, gated", "corrected", None])
def test_layers_of_rows_with_adapters_are_one_node(name: str | None, tmp_path: Any) -> None:
    layers = [packed(kind(), 5 * i) for i, kind in enumerate(KINDS)]
    if name is not None:
        layers[1].mlp = packed(MIXTURES[name](), 4)
    stacks = AdapterStacks([an_adapter(layers, seed, rank) for seed, rank in ((1, 5), (2, 16), (3, 8))])
    one, two, three = stacks.adapters
    rows: list[Members] = [((one, 1.0),), (), ((three, -0.5), (two, 1.0)), ((one, 1.0),)]
    given = mx.array(normal(4, 40, 64, seed=3))
    with ops.using("cpu"):
        for through in (one_by_one, CPU.layers):
            caches, at, answers = memory_of_four(layers), 0, []
            for width in (2, 1, 36, 1):
                step = Step((at,) * 4, (width,) * 4, adapters=RowAdapters(stacks, rows))
                answers.append(through(layers, given[:, at : at + width], step, caches))
                mx.eval(answers)
                for cache in caches:
                    cache.commit(step, step.counts)
                at += width
            if through is one_by_one:
                wanted = [bits(answer) for answer in answers]
        assert all(np.array_equal(bits(a), b) for a, b in zip(answers, wanted, strict=True))
        step = Step((0,) * 4, (1,) * 4, adapters=RowAdapters(stacks, rows))
        lazy = CPU.layers(layers, given[:, :1], step, memory_of_four(layers))
        path = tmp_path / "graph.dot"
        mx.export_to_dot(str(path), lazy)
        assert path.read_text().count("ModelkitSublayers") == 1, "all layers"
        assert "AddPairs" not in path.read_text()


def memory_of_four(layers: Sequence[Any]) -> list[Any]:
    return [KVCache(Full(2, 32), rows=4, slack=2, grain=8) for _ in layers]


@pytest.mark.parametrize("rank", [5, 8])
def test_zeros_behind_an_adapters_rank_change_nothing(rank: int) -> None:
    """Another adapter's arrival must not change what rows say that had begun."""
    layer = packed(KINDS[3](), 3)
    first = an_adapter([layer], 1, rank)
    x = mx.array(normal(2, 3, 64, seed=6))

    def answer(stacks: AdapterStacks) -> np.ndarray:
        step = Step((0, 0), (3, 3), adapters=RowAdapters(stacks, [((first, 1.0),)] * 2))
        with ops.using("cpu"):
            return bits(CPU.layers([layer], x, step, memory([layer])))

    alone = AdapterStacks([first])
    before = answer(alone)
    assert np.array_equal(answer(alone.having(an_adapter([layer], 2, 30))), before)


def test_an_adapter_in_16_bits_stays_so_where_that_is_exact() -> None:
    layer = packed(KINDS[0](), 3)
    with ops.using("cpu"):
        adapter = an_adapter([layer], 1)
        assert {part.down.dtype for part in adapter.parts.values() if part.down is not None} == {mx.bfloat16}
        with ops.using("blas"):
            wide = an_adapter([layer], 1)
        assert {part.down.dtype for part in wide.parts.values() if part.down is not None} == {mx.float32}
        assert adapter.nbytes * 2 == wide.nbytes


def test_what_does_not_fit_is_refused() -> None:
    made = Made(64, 32, 4, mx.float32, False)
    members = kernels.Members([[(0, 1.0)], []])
    x, y = mx.zeros((2, 64)), mx.zeros((2, 32))
    kernels.add_pairs(x, y, made.pairs, members)
    with pytest.raises(ValueError, match="as many rows"):
        kernels.add_pairs(x[:1], y[:1], made.pairs, members)
    with pytest.raises(ValueError, match="as wide as x"):
        kernels.add_pairs(mx.zeros((2, 32)), y, made.pairs, members)
    with pytest.raises(ValueError, match="float32"):
        kernels.add_pairs(x.astype(mx.bfloat16), y, made.pairs, members)
    up = mx.contiguous(in_strips(made.up))
    mx.eval(up)
    with pytest.raises(ValueError, match="place"):
        kernels.Pairs(64, 32, made.down, up, None, None, None, [0, 2])
    with pytest.raises(ValueError, match="as wide as their matrix"):
        kernels.Pairs(63, 32, made.down, up, None, None, None, [0, 1])
    with pytest.raises(ValueError, match="as many numbers as their matrix"):
        kernels.Pairs(64, 33, made.down, up, None, None, None, [0, 1])
    matrix = kernels.Matrix(mx.zeros((31, 64)), None, None, None)
    with pytest.raises(ValueError, match="as wide as a single matrix"):
        matrix.paired(made.pairs)
