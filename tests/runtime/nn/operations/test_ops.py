"""Every column of the table of operations says the same as the plain one."""

from collections.abc import Iterator
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from runtime import cpu
from runtime.cache.protocol import Mask
from runtime.cpu import native
from runtime.nn import activation
from runtime.nn.feed_forward.experts import QuantizedSwitchLinear, SwitchLinear
from runtime.nn.norm import LayerNorm, RMSNorm
from runtime.nn.operations import ops
from runtime.nn.operations.ops import COLUMNS
from runtime.nn.operations.signatures import Operations
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec
from runtime.step import Inputs, Step

TOLERANCE = 2e-5
"""Of answers that are about one large."""

PLAIN = COLUMNS["plain"]
FAST = [COLUMNS["cpu"], COLUMNS["gpu"]]
SHAPES = [(1, 1, 64), (1, 5, 64), (3, 2, 64), (4, 64), (64, 64, 64)]
MODES = [("affine", 4, 64), ("affine", 8, 32), ("mxfp4", 4, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16)]

column = pytest.mark.parametrize("column", FAST, ids=lambda column: column.name)


def normal(*shape: int, seed: int = 0) -> mx.array:
    return mx.random.normal(shape, key=mx.random.key(seed))


def filled(module: nn.Module) -> Any:
    for name, array in list(module.items()):
        if isinstance(array, mx.array):
            module[name] = normal(*array.shape, seed=len(name)) * 0.3
    return module


def alike(got: mx.array, wanted: mx.array, tolerance: float = TOLERANCE) -> None:
    assert got.dtype == wanted.dtype
    assert float(mx.abs(got.reshape(wanted.shape) - wanted).max()) < tolerance * max(
        1.0, float(mx.abs(wanted).max())
    )


@column
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_linear(column: Operations, shape: tuple[int, ...], bias: bool) -> None:
    module = filled(nn.Linear(64, 32, bias=bias))
    alike(column.linear(module, normal(*shape)), PLAIN.linear(module, normal(*shape)))


@column
@pytest.mark.parametrize(("mode", "bits", "group"), MODES)
@pytest.mark.parametrize("bias", [False, True])
def test_packed_linear(column: Operations, mode: str, bits: int, group: int, bias: bool) -> None:
    module = filled(nn.Linear(64, 32, bias=bias)).to_quantized(group, bits, mode)
    alike(column.linear(module, normal(2, 3, 64)), PLAIN.linear(module, normal(2, 3, 64)), 1e-3)


@column
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_table_as_the_output_head(column: Operations, shape: tuple[int, ...]) -> None:
    module = filled(nn.Embedding(32, 64))
    alike(column.linear(module, normal(*shape)), PLAIN.linear(module, normal(*shape)))


@column
@pytest.mark.parametrize(("mode", "bits", "group"), [*MODES, ("", 0, 0)])
def test_embed(column: Operations, mode: str, bits: int, group: int) -> None:
    module, ids = filled(nn.Embedding(9, 64)), mx.array([[3, 0], [8, 8]])
    module = module.to_quantized(group, bits, mode) if mode else module
    assert mx.array_equal(column.embed(module, ids), PLAIN.embed(module, ids))


@column
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_gather(column: Operations, packed: bool, bias: bool) -> None:
    module = filled(SwitchLinear(64, 32, 5, bias=bias))
    module = QuantizedSwitchLinear(module, 32, 8, "affine") if packed else module
    x, chosen = normal(2, 3, 1, 1, 64), mx.array([[[4, 0], [1, 1], [2, 4]]] * 2)
    alike(column.gather(module, x, chosen, False), PLAIN.gather(module, x, chosen, False), 1e-4)
    rows, ordered = normal(6, 2, 64), mx.array([0, 0, 1, 3, 3, 4])
    alike(column.gather(module, rows, ordered, True), PLAIN.gather(module, rows, ordered, True), 1e-4)


@column
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=str)
def test_norms(column: Operations, shape: tuple[int, ...], dtype: mx.Dtype) -> None:
    x, near = (normal(*shape) * 5).astype(dtype), TOLERANCE if dtype == mx.float32 else 2e-2
    for weight in {mx.float32, dtype}:
        for module in (RMSNorm(64, eps=1e-5), LayerNorm(64), LayerNorm(64, bias=False)):
            filled(module).set_dtype(weight)
            name = "rms_norm" if isinstance(module, RMSNorm) else "layer_norm"
            alike(getattr(column, name)(module, x), getattr(PLAIN, name)(module, x), near)
            if name == "rms_norm":
                to = normal(*shape, seed=9).astype(dtype)
                alike(column.add_rms_norm(module, x, to), PLAIN.add_rms_norm(module, x, to), near)
    alike(column.rms(x, 1e-5), PLAIN.rms(x, 1e-5), near)
    alike(column.standardize(x, 1e-5), PLAIN.standardize(x, 1e-5), near)


STEPS = [
    Step((900,), (1,)),
    Step((5,), (7,)),
    Step((3, 700), (1, 1)),
    Step((0, 9, 40), (2, 7, 3)),
    Step((3, 5), (2, 2), long=(False, True)),
    Step((3, 5), (2, 2), inputs=Inputs(positions=mx.array([[1, 1], [90, 7]]))),
]


@column
@pytest.mark.parametrize("step", STEPS, ids=range(len(STEPS)))
@pytest.mark.parametrize("traditional", [False, True], ids=["halves", "neighbours"])
@pytest.mark.parametrize("dims", [8, 16], ids=["part of a head", "whole head"])
@pytest.mark.parametrize("long", [False, True])
def test_rotate(column: Operations, step: Step, traditional: bool, dims: int, long: bool) -> None:
    waves = tuple(3.0**i for i in range(dims // 2))
    others = tuple(4.0**i for i in range(dims // 2)) if long else None
    rope = Rope(RopeSpec(dims, waves, 1.2, traditional, others, 16 if long else 0))
    x = normal(len(step.starts), 4, step.width, 16)
    alike(column.rotate(rope, x, step), PLAIN.rotate(rope, x, step), 1e-4)
    narrow = x.astype(mx.bfloat16)
    alike(column.rotate(rope, narrow, step), PLAIN.rotate(rope, narrow, step), 2e-2)


def masks(width: int, seen: int) -> list[Mask]:
    visible = normal(2, 1, width, seen) > -0.3
    visible[..., -1] = True
    return [None, visible, mx.where(visible, 0.0, -1e30), *(["causal"] if width > 1 else [])]


@column
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize(("width", "seen"), [(1, 1), (1, 33), (5, 33), (200, 210)])
@pytest.mark.parametrize("softcap", [None, 3.0])
def test_attend(column: Operations, groups: int, width: int, seen: int, softcap: float | None) -> None:
    queries, keys, values = (
        normal(2, 4, width, 16),
        normal(2, groups, seen, 16, seed=1),
        normal(2, groups, seen, 16, seed=2),
    )
    for mask in masks(width, seen):
        for sinks in (None, normal(4, seed=3)):
            for step in (None, Step((seen - width,) * 2, (width,) * 2)):
                given = (step, queries, keys, values, mask)
                options: dict[str, Any] = {"scale": 0.3, "softcap": softcap, "sinks": sinks}
                if sinks is not None and softcap is not None:
                    continue
                alike(column.attend(*given, **options), PLAIN.attend(*given, **options), 1e-4)


@column
@pytest.mark.parametrize("name", ["softmax", "silu", "gelu", "gelu_tanh", "relu2", "softplus", "sigmoid"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_activations(column: Operations, name: str, shape: tuple[int, ...]) -> None:
    x = normal(*shape) * 6
    alike(getattr(column, name)(x), getattr(PLAIN, name)(x))
    assert mx.array_equal(column.likeliest(x), PLAIN.likeliest(x))


@column
def test_gates(column: Operations) -> None:
    for shape in SHAPES:
        gate, up = normal(*shape) * 6, normal(*shape, seed=1) * 6
        for name in activation.NAMES.values():
            alike(column.gated(name, gate, up), PLAIN.gated(name, gate, up))
        alike(column.clipped_gate(gate, up, 2.0, 1.7), PLAIN.clipped_gate(gate, up, 2.0, 1.7))
        alike(column.softcap(gate, 5.0), PLAIN.softcap(gate, 5.0))
        alike(column.cut(gate, 0.5), PLAIN.cut(gate, 0.5))
        alike(column.bend(activation.XIELU(), gate), PLAIN.bend(activation.XIELU(), gate))


@column
def test_streams(column: Operations) -> None:
    for shape in SHAPES:
        streams, answer = normal(*shape[:-1], 3 * shape[-1]), normal(*shape, seed=1)
        by, shares = normal(*shape[:-1], 9, seed=2), normal(*shape[:-1], 3, seed=3)
        alike(column.mix_streams(streams, by), PLAIN.mix_streams(streams, by))
        wanted = PLAIN.correct_streams(streams, answer, shares, 1)
        alike(column.correct_streams(streams, answer, shares, 1), wanted)
        alike(column.join_streams(streams, answer), PLAIN.join_streams(streams, answer))


def test_every_operation_of_the_processor_is_one_of_the_table() -> None:
    assert set(cpu.table(COLUMNS["gpu"])) <= {field.name for field in fields(Operations)}


@pytest.fixture
def chosen_again() -> Iterator[None]:
    yield
    ops.use(None)


@pytest.mark.usefixtures("chosen_again")
def test_the_device_chooses_unless_somebody_names_a_column() -> None:
    here = "cpu" if mx.default_device().type == mx.DeviceType.cpu else "gpu"
    assert ops.table.name == here
    ops.use("plain")
    ops.settle()
    assert ops.table.name == "plain"
    ops.use(None)
    assert ops.table.name == here


def test_numbers_are_said_to_be_made_with_kernels_and_activations_or_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    with ops.using("cpu"):
        for kernels in (None, *(SimpleNamespace(activations=lambda its=its: its) for its in ("i16", "f32"))):
            monkeypatch.setattr(native, "kernels", kernels)
            said.append(ops.numbers())
    with ops.using("plain"):
        said.append(ops.numbers())
    monkeypatch.setattr(native, "on_processor", lambda: False)
    with ops.using("gpu"):
        said.append(ops.numbers())
    assert said == [
        "MLX on the processor (cpu)",
        "kernels (i16)",
        "kernels (f32)",
        "MLX on the processor (plain)",
        "MLX on its GPU (gpu)",
    ]


def test_modules_look_the_column_up_when_they_compute() -> None:
    norm, x = RMSNorm(8), normal(1, 1, 8)
    with ops.using(replace(PLAIN, rms_norm=lambda _module, x: x * 0)):
        assert not mx.any(norm(x))
    assert mx.any(norm(x))


def test_what_is_kept_of_a_weight_goes_with_it() -> None:
    linear, norm, x = filled(nn.Linear(64, 32)), filled(RMSNorm(64)), normal(1, 1, 64)
    column = COLUMNS["cpu"]
    before = column.linear(linear, x), column.rms_norm(norm, x)
    linear.weight, linear.bias, norm.weight = linear.weight * 2, linear.bias * 2, norm.weight * 2
    assert np.allclose(column.linear(linear, x), before[0] * 2, atol=1e-5)
    assert np.allclose(column.rms_norm(norm, x), before[1] * 2, atol=1e-5)
    norm.eps = 10.0
    alike(column.rms_norm(norm, x), PLAIN.rms_norm(norm, x))
