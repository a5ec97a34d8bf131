"""Recurrent layers, and those that attend under a gate, as parts of one node have the bits of the same layers
called one by one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.cache.attention import KVCache
from runtime.cache.layout import Full, Recurrent, State
from runtime.cache.recurrent import RecurrentCache
from runtime.cpu import native

if native.kernels is None:
    pytest.skip(f"no kernels: {native.status.reason}", allow_module_level=True)

from runtime.models.lfm2 import ShortConv
from runtime.nn.attention.gated_attention import GatedAttention
from runtime.nn.feed_forward.mlp import GatedMLP
from runtime.nn.norm import LayerNorm, RMSNorm
from runtime.nn.operations import ops
from runtime.nn.recurrent.delta_net import DeltaSpec, GatedDeltaNet
from runtime.nn.recurrent.kimi_delta import KimiDelta, KimiDeltaSpec
from runtime.nn.recurrent.mamba1 import Mamba1, Mamba1Spec
from runtime.nn.recurrent.mamba2 import Mamba2, Mamba2Spec
from runtime.nn.recurrent.rg_lru import RecurrentBlock, rg_lru_memory
from runtime.nn.residual.block import PostNorm, PreNorm
from runtime.step import Inputs, Step
from tests.runtime.cpu.native.rows import bits, computing
from tests.runtime.cpu.native.test_attention_nodes import ROPE, Shape, packed

CPU = ops.COLUMNS["cpu"]
ROWS, WIDTH, SLACK = 3, 64, 4

DELTA = DeltaSpec(key_heads=2, value_heads=4, key_dim=24, value_dim=40, taps=4, eps=1e-5)
STRONG = DeltaSpec(key_heads=2, value_heads=2, key_dim=24, value_dim=16, taps=2, eps=1e-5, strength=2.0)
BY_CHANNEL = KimiDeltaSpec(heads=2, size=32, taps=4, eps=1e-5)
SPACE = Mamba2Spec(WIDTH, heads=4, head_dim=24, groups=2, state=20, taps=4, eps=1e-5)
PARTS = Mamba2Spec(
    WIDTH, 4, 24, 2, 20, 3, 1e-5, in_bias=True, norm="norm first", norm_groups=2, steps=(0.1, 2.0)
)
FIRST = Mamba1Spec(WIDTH, inner=96, state=16, taps=4, rank=32, eps=1e-5)
NORMED = Mamba1Spec(WIDTH, 96, 12, 3, 64, 1e-5, conv_bias=False, bias=True, norms="weighted")
PLAINLY = Mamba1Spec(WIDTH, 64, 16, 4, 32, 1e-5, norms="plain")
BARE = Mamba2Spec(WIDTH, 2, 32, 1, 16, 4, 1e-5, conv_bias=False, out_bias=True, norm=None)


def layer(mixer: Any, kind: Any = PreNorm, norm: Any = RMSNorm) -> Any:
    return kind(mixer, GatedMLP(WIDTH, 96), lambda: norm(WIDTH))


def attending() -> Any:
    return layer(GatedAttention(Shape(), ROPE, lambda _heads: RMSNorm(32)))


KINDS: dict[str, tuple[Callable[[], Any], Any]] = {
    "delta": (lambda: layer(GatedDeltaNet(WIDTH, DELTA)), DELTA.memory),
    "strong delta": (lambda: layer(GatedDeltaNet(WIDTH, STRONG), PostNorm), STRONG.memory),
    "delta by channel": (lambda: layer(KimiDelta(WIDTH, BY_CHANNEL)), BY_CHANNEL.memory),
    "gated attention": (attending, Full(2, 32)),
    "ssd": (lambda: layer(Mamba2(SPACE), norm=LayerNorm), SPACE.memory),
    "ssd in parts": (lambda: layer(Mamba2(PARTS)), PARTS.memory),
    "selective": (lambda: layer(Mamba1(FIRST)), FIRST.memory),
    "selective, normed": (lambda: layer(Mamba1(NORMED), norm=LayerNorm), NORMED.memory),
    "selective, plainly normed": (lambda: layer(Mamba1(PLAINLY), PostNorm), PLAINLY.memory),
    "rg_lru": (lambda: layer(RecurrentBlock(WIDTH, 96, 4, 4, "gelu_pytorch_tanh")), rg_lru_memory(96, 4)),
    "ssd without a norm": (lambda: layer(Mamba2(BARE)), BARE.memory),
}


@dataclass(frozen=True)
class Convolved:
    hidden_size: int = WIDTH
    taps: int = 3
    conv_bias: bool = True


KINDS["short convolution"] = (
    lambda: layer(ShortConv(Convolved())),  # type: ignore[arg-type]
    Recurrent({"conv": State((2, WIDTH))}),
)


@pytest.fixture(autouse=True)
def _by_kernels() -> Iterator[None]:
    with ops.using("cpu"):
        yield


def trunk(names: Sequence[str]) -> list[Any]:
    return [packed(KINDS[name][0](), 20 * i) for i, name in enumerate(names)]


def memory(names: Sequence[str], dtype: mx.Dtype = mx.float32) -> list[Any]:
    specs = [KINDS[name][1] for name in names]
    return [
        KVCache(spec, rows=ROWS, dtype=dtype, slack=SLACK, grain=8)
        if isinstance(spec, Full)
        else RecurrentCache(spec, rows=ROWS, dtype=dtype, slack=SLACK)
        for spec in specs
    ]


def one_by_one(layers: Sequence[Any], x: mx.array, step: Step, caches: Sequence[Any]) -> mx.array:
    for each, cache in zip(layers, caches, strict=True):
        x = each(x, step, cache)
    return x


STEPS: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = [
    # The first row, what each brings, and what is kept of it.
    (0, (9, 30, 17), (9, 30, 17)),
    (0, (1, 1, 1), (1, 1, 1)),
    (0, (3, 3, 3), (2, 0, 3)),
    (1, (4, 2), (1, 2)),
    (1, (1,), (1,)),
    (0, (2, 2, 2), (2, 2, 2)),
    (0, (1, 1, 1), (0, 1, 0)),
    (0, (1, 1, 1), (1, 1, 1)),
]


def read(through: Any, layers: Sequence[Any], caches: Sequence[Any]) -> list[np.ndarray]:
    given, lengths = mx.random.normal((ROWS, 64, WIDTH), key=mx.random.key(3)), [0] * ROWS
    answers: list[np.ndarray] = []
    for first, counts, kept in STEPS:
        starts = tuple(lengths[first : first + len(counts)])
        step = Step(starts, counts, first)
        x = mx.stack([given[first + b, start : start + step.width] for b, start in enumerate(starts)])
        y = through(layers, x, step, caches)
        answers += [bits(y[b, :count]) for b, count in enumerate(counts)]
        for cache in caches:
            cache.commit(step, kept)
        for b, count in enumerate(kept):
            lengths[first + b] += count
    return [
        *answers,
        *(
            bits(state.astype(mx.float32))
            for cache in caches[:-1]
            for state in cache.arrays
            if state.ndim != 4
        ),
    ]


@pytest.mark.parametrize("name", KINDS)
def test_as_one_by_one(name: str) -> None:
    names = [name, "delta", name]
    layers = trunk(names)
    with computing("plain", 1):
        wanted = read(one_by_one, layers, memory(names))
    for column in native.kernels.columns():
        for threads in (1, 3):
            with computing(column, threads):
                got = read(CPU.layers, layers, memory(names))
            assert all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True)), (column, threads)


def nodes(layers: Sequence[Any], caches: Sequence[Any], path: Any) -> int:
    mx.eval([each.parameters() for each in layers])
    mx.export_to_dot(
        str(path), CPU.layers(layers, mx.ones((ROWS, 2, WIDTH)), Step((0,) * ROWS, (2,) * ROWS), caches)
    )
    return path.read_text().count("Modelkit")


def test_layers_of_many_kinds_are_one_node(tmp_path: Any) -> None:
    names = [*KINDS, "delta"]
    # All but the last, the two of that, and a table of turns.
    assert nodes(trunk(names), memory(names), tmp_path / "graph.dot") == 4


def test_states_of_another_type_are_read_step_by_step(tmp_path: Any) -> None:
    names = ["delta", "ssd"]
    layers = trunk(names)
    assert nodes(layers, memory(names, mx.bfloat16), tmp_path / "graph.dot") > 4
    wanted = read(one_by_one, layers, memory(names, mx.bfloat16))
    got = read(CPU.layers, layers, memory(names, mx.bfloat16))
    assert all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True))


def test_parameters_that_are_replaced_are_noticed() -> None:
    names = ["delta", "ssd", "delta"]
    layers = trunk(names)
    read(CPU.layers, layers, memory(names))
    layers[0].self_attn.A_log = layers[0].self_attn.A_log + 1
    layers[1].self_attn.conv1d.weight = layers[1].self_attn.conv1d.weight * 2
    layers[2].self_attn.norm.weight = layers[2].self_attn.norm.weight * 2
    wanted = read(one_by_one, layers, memory(names))
    got = read(CPU.layers, layers, memory(names))
    assert all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True))


def test_positions_that_a_step_brings_are_gone_by() -> None:
    layers, x = trunk(["rg_lru"]), mx.random.normal((ROWS, 4, WIDTH), key=mx.random.key(3))
    answers: dict[tuple[Any, int], np.ndarray] = {}
    for through in (one_by_one, CPU.layers):
        for first in (0, 5):
            positions = mx.broadcast_to(mx.arange(first, first + 4, dtype=mx.int32), (ROWS, 4))
            step = Step((0,) * ROWS, (4,) * ROWS, inputs=Inputs(positions=positions))
            answers[through, first] = bits(through(layers, x, step, memory(["rg_lru"])))
    for first in (0, 5):
        assert np.array_equal(answers[CPU.layers, first], answers[one_by_one, first])
    assert not np.array_equal(answers[CPU.layers, 0], answers[CPU.layers, 5])


def test_what_a_fold_must_have() -> None:
    kernels: Any = native.kernels

    def matrix(rows: int) -> Any:
        return kernels.Matrix(mx.zeros((rows, 64)), None, None, None)

    def rule(heads: int = 2) -> Any:
        return kernels.DeltaRule(mx.zeros(heads), mx.zeros(heads), 1, heads, 16, 32, 1.0)

    def selective(opening: Any, widen: Any, states: int = 16, norms: int = 3) -> Any:
        return kernels.SelectiveRule(opening, [None] * norms, widen, mx.zeros((states, 64)), mx.zeros(64))

    selective(matrix(96), matrix(64))
    filters, two = mx.zeros((4, 96)), [matrix(96), matrix(64), matrix(2), matrix(2)]
    rest: tuple[Any, ...] = (None, 1e-5, 2, False, False, matrix(64), None)

    def fold(
        opening: Any = two,
        filters: mx.array = filters,
        by: Any = None,
        rest: Any = rest,
        scales: mx.array | None = None,
    ) -> Any:
        return kernels.recurrent(None, opening, scales, filters, None, by or rule(), *rest)

    def widened(by: Any) -> Any:
        return kernels.recurrent(None, two, None, filters, None, rule(), *rest, 0, by)

    widened([])
    widened([None] * 4)
    with pytest.raises(ValueError, match="part"):
        widened([None, kernels.Matrix(mx.zeros((64, 63)), None, None, None), None, None])
    with pytest.raises(ValueError, match="part"):
        widened([None] * 3)

    def unit(inputs: mx.array, keep_bias: int = 96) -> Any:
        gates = inputs, mx.zeros((4, 24)), inputs, mx.zeros(keep_bias)
        return kernels.LruRule(*gates, mx.zeros(96))

    unit(mx.zeros((4, 24, 24)))
    for wrong in (
        lambda: unit(mx.zeros((4, 24, 25))),
        lambda: unit(mx.zeros((4, 12, 12))),
        lambda: unit(mx.zeros((4, 24, 24)), 95),
        lambda: fold(two[:3]),
        lambda: fold([matrix(163)]),
        lambda: fold(scales=mx.zeros(164)),
        lambda: fold([matrix(164)], scales=mx.zeros(163)),
        lambda: fold(filters=mx.zeros((4, 95))),
        lambda: fold(rest=(mx.zeros(7), *rest[1:])),
        lambda: fold(rest=(None, 1e-5, 3, *rest[3:])),
        lambda: kernels.DeltaRule(mx.zeros(2), mx.zeros(3), 1, 2, 16, 32, 1.0),
        lambda: kernels.SsdRule(mx.zeros(2), mx.zeros(2), mx.zeros(3), 2, 16, 1, 16, (0.0, 1.0)),
        lambda: selective(matrix(97), matrix(64)),
        lambda: selective(matrix(96), matrix(65)),
        lambda: selective(matrix(576), matrix(64), states=257),
        lambda: selective(matrix(96), matrix(64), norms=2),
    ):
        with pytest.raises(
            ValueError, match=r"fold|scale|convolution|matrix|parts|bias|skip|long|step|states|norm|rate"
        ):
            wrong()
    chain, x = kernels.Chain([fold()]), mx.zeros((1, 2, 64))
    states = [mx.zeros((1, 3, 96)), mx.zeros((1, 2, 16, 32))]
    assert len(chain(x, [0], [2], 0, [(states, True, True)])) == 7
    short = kernels.short_conv(None, matrix(192), mx.zeros((3, 64)), None, matrix(64), None)
    kernels.Chain([short])(x, [0], [2], 0, [([mx.zeros((1, 2, 64))], False, True)])
    for wrong in (
        lambda: kernels.short_conv(None, matrix(190), mx.zeros((3, 64)), None, matrix(64), None),
        lambda: kernels.short_conv(None, matrix(192), mx.zeros((3, 64)), mx.zeros(3), matrix(64), None),
        lambda: kernels.Chain([short])(x, [0], [2], 0, [(states, False, True)]),
    ):
        with pytest.raises(ValueError, match=r"must|bias"):
            wrong()
    for given in (
        [],
        [(states[:1], False, True)],
        [(states[::-1], False, True)],
        [(None, None, states, [0], False)],
    ):
        with pytest.raises(ValueError, match=r"must"):
            chain(x, [0], [2], 0, given)
    with pytest.raises(ValueError, match="tokens"):
        chain(x, [0], [3], 0, [(states, False, True)])
