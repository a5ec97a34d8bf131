"""Stacked experts: every way to gather rows gives what a loop over tokens gives; routing picks the best."""

from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.cpu import blocks
from runtime.nn.feed_forward.experts import Experts
from runtime.nn.feed_forward.router import CorrectedRouter, choose, open_groups, top_then_softmax
from runtime.nn.operations import gpu, ops, signatures
from runtime.parts.feed_forward import Routing
from runtime.step import Step
from runtime.tensors.experts import split_gate_up
from runtime.weights.fit import fit
from runtime.weights.holding import Holding, fill, held_bytes, weight_bytes

HIDDEN, INNER, COUNT = 32, 64, 5
TWO = Routing("softmax", 2, normalize=True)


def experts(*, gated: bool = True, bias: bool = False) -> Experts:
    mx.random.seed(3)
    made = Experts(HIDDEN, INNER, COUNT, gated=gated, bias=bias)
    for _, module in made.named_modules():
        for name, array in module.items():
            if isinstance(array, mx.array):
                module[name] = mx.random.normal(array.shape) * HIDDEN**-0.5
    return made


def one_by_one(made: Experts, x: mx.array, chosen: mx.array, weights: mx.array) -> np.ndarray:
    """The definition: every token, every one of its experts."""

    def linear(part: str, expert: int, row: mx.array) -> mx.array:
        stack = made[part]
        y = stack.weight[expert] @ row
        return y + stack.bias[expert] if "bias" in stack else y

    out = np.zeros(x.shape, np.float32)
    for place in np.ndindex(x.shape[:-1]):
        for expert, weight in zip(np.array(chosen)[place], np.array(weights)[place], strict=True):
            inner = nn.silu(linear("gate_proj", int(expert), x[place])) * linear(
                "up_proj", int(expert), x[place]
            )
            out[place] += weight * np.array(linear("down_proj", int(expert), inner))
    return out


@settings(max_examples=25, deadline=None)
@given(width=st.integers(1, 70), k=st.integers(1, 4), bias=st.booleans(), seed=st.integers(0, 999))
def test_any_number_of_rows_gives_what_one_by_one_gives(width: int, k: int, bias: bool, seed: int) -> None:
    made = experts(bias=bias)
    mx.random.seed(seed)
    x = mx.random.normal((2, width, HIDDEN))
    chosen, weights = choose(Routing("softmax", k, normalize=True), mx.random.normal((2, width, COUNT)) * 3)
    wanted = one_by_one(made, x, chosen, weights)
    assert np.abs(np.array(made(x, (chosen, weights))) - wanted).max() < 1e-4


@pytest.mark.parametrize("name", signatures.NAMES)
@pytest.mark.parametrize("experts", [None, COUNT])
def test_rows_come_back_in_their_places(experts: int | None, name: signatures.Name) -> None:
    x = mx.arange(90, dtype=mx.float32).reshape(1, 90, 1)
    chosen = mx.array(np.random.default_rng(1).integers(0, COUNT, (1, 90, 2)))

    def answer(rows: mx.array, expert: mx.array, _ordered: bool) -> mx.array:
        return rows * 10 + expert.reshape(*expert.shape, 1, 1)

    got = ops.COLUMNS[name].ask(x, chosen, answer, experts)
    assert mx.array_equal(got[..., 0], x * 10 + chosen)


def lying(array: mx.array) -> memoryview:
    return memoryview(cast("Any", array))  # MLX's stubs do not say that arrays are buffers


@pytest.mark.parametrize("bias", [False, True])
def test_sorted_rows_lie_as_their_shape_says(bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA's product goes by that; elsewhere strides make no difference, so they are looked at themselves."""
    strides: list[tuple[int, ...]] = []
    product = mx.gather_mm

    def seen(x: mx.array, *rest: mx.array, **more: Any) -> mx.array:
        if more.get("sorted_indices"):
            mx.eval(x)
            strides.append(lying(x).strides)
        return product(x, *rest, **more)

    monkeypatch.setattr(mx, "gather_mm", seen)
    x = mx.random.normal((2, 70, HIDDEN))
    with ops.using("gpu"):
        mx.eval(experts(bias=bias)(x, choose(TWO, mx.random.normal((2, 70, COUNT)))))
    assert strides == [(HIDDEN * 4, HIDDEN * 4, 4)] * 2 + [(INNER * 4, INNER * 4, 4)]


def test_halves_of_one_stack_lie_apart_once_they_are_loaded() -> None:
    """Files have gate and up in one tensor, and CUDA takes a stack's strides from its shape."""
    made = experts()
    opening = mx.concatenate([made.gate_proj.weight, made.up_proj.weight], axis=1)
    stored = split_gate_up({"x.gate_up_proj.weight": opening, "x.down_proj.weight": made.down_proj.weight})
    fill(made, {name.removeprefix("x."): stack for name, stack in stored.items()}, Holding(mx.float32))
    stacks = (made.gate_proj, made.up_proj, made.down_proj)
    assert all(lying(stack.weight).c_contiguous for stack in stacks)


@pytest.mark.parametrize(
    ("width", "memory", "unpacked"), [(20, 1 << 40, False), (32, 1 << 40, True), (32, 1 << 10, False)]
)
def test_packed_stacks_are_unpacked_first_where_cuda_would_read_them_for_every_row(
    width: int, memory: int, unpacked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From twelve rows per expert on, and where there is room for a stack."""
    made = experts(bias=True)
    for name in ("gate_proj", "up_proj", "down_proj"):
        made[name] = made[name].to_quantized(32, 8)
    x, (chosen, weights) = (
        mx.random.normal((1, width, HIDDEN)),
        choose(TWO, mx.random.normal((1, width, COUNT))),
    )
    with ops.using("plain"):
        wanted = made(x, (chosen, weights))
    monkeypatch.setattr(gpu, "CUDA", True)
    monkeypatch.setattr(gpu, "_unserved", lambda *_: False)  # the stacks here are small
    monkeypatch.setattr(gpu, "_total_memory", lambda: memory)
    stacks: list[str] = []
    gathered = mx.gather_mm

    def seen(*given: Any, **more: Any) -> mx.array:
        stacks.append("unpacked")
        return gathered(*given, **more)

    monkeypatch.setattr(mx, "gather_mm", seen)
    with ops.using("gpu"):
        got = made(x, (chosen, weights))
    assert float(mx.abs(got - wanted).max()) < 1e-3
    assert stacks == ["unpacked"] * (3 if unpacked else 0)


def test_blocks_hold_when_one_expert_gets_every_row() -> None:
    made = experts()
    x = mx.random.normal((1, 100, HIDDEN))
    chosen, weights = mx.full((1, 100, 1), COUNT - 1), mx.ones((1, 100, 1))
    assert chosen.size >= COUNT * blocks.BLOCK // 2
    wanted = one_by_one(made, x, chosen, weights)
    assert np.abs(np.array(made(x, (chosen, weights))) - wanted).max() < 1e-4


MODES = [("affine", 8, 32), ("affine", 4, 64), ("mxfp8", 8, 32), ("mxfp4", 4, 32), ("nvfp4", 4, 16)]


@pytest.mark.parametrize(("mode", "bits", "group"), MODES)
@pytest.mark.parametrize("expand", [False, True])
def test_packed_stacks_compute_what_their_unpacked_weights_do(
    mode: str, bits: int, group: int, expand: bool
) -> None:
    plain, packed = experts(bias=True), experts(bias=True)
    stored: dict[str, mx.array] = {}
    for part in ("gate_proj", "up_proj", "down_proj"):
        # affine stacks want groups that divide both widths
        size = min(group, HIDDEN) if part != "down_proj" else group
        codes, scales, *offsets = mx.quantize(plain[part].weight, size, bits, mode=mode)
        plain[part].weight = mx.dequantize(codes, scales, *offsets, group_size=size, bits=bits, mode=mode)
        stored |= {f"{part}.weight": codes, f"{part}.scales": scales, f"{part}.bias": plain[part].bias}
        stored |= {f"{part}.biases": offset for offset in offsets}
    fit(packed, stored, {"quantization": {"mode": mode}})
    holding = Holding(mx.float32 if expand else None, expands=lambda _module: expand)
    predicted = held_bytes(packed, stored, holding)
    fill(packed, stored, holding)
    assert predicted == weight_bytes(packed)
    x = mx.random.normal((1, 40, HIDDEN))
    choice = choose(TWO, mx.random.normal((1, 40, COUNT)))
    assert float(mx.abs(packed(x, choice) - plain(x, choice)).max()) < 1e-3


def test_softmax_before_the_choice_and_after_it_differ_by_a_factor_only() -> None:
    scores = mx.random.normal((6, COUNT))
    before, shares = choose(Routing("softmax", 3, normalize=True), scores)
    after, others = top_then_softmax(scores, 3)
    assert np.array_equal(np.sort(np.array(before)), np.sort(np.array(after)))
    assert np.allclose(np.sort(np.array(shares)), np.sort(np.array(others)), atol=1e-6)
    _, raw = choose(Routing("softmax", 3), scores)
    assert float(raw.sum(axis=-1).max()) < 1


def test_a_correction_moves_the_choice_and_not_the_weights() -> None:
    scores = mx.array([[0.0, 1.0, 2.0, 3.0]])
    chosen, weights = choose(Routing("sigmoid", 1, mx.array([5.0, 0, 0, 0]), scale=2.0), scores)
    assert chosen.tolist() == [[0]]
    assert weights.item() == pytest.approx(1.0)


@pytest.mark.parametrize(("judges", "kept"), [(2, [0, 1]), (1, [2, 3])])
def test_groups_are_judged_by_their_best(judges: int, kept: list[int]) -> None:
    ranked = mx.array([[0.5, 0.5, 0.9, -1.0]])
    left = open_groups(ranked, 2, 1, judges=judges)
    assert np.flatnonzero(np.isfinite(np.array(left[0]))).tolist() == kept


@pytest.mark.parametrize("better", [0, 1])
def test_a_router_tells_scores_apart_that_16_bits_do_not(better: int) -> None:
    router = CorrectedRouter(2, 2, 1)
    rows = [[1.0, 0.0], [1.0, 0.0]]
    rows[better][1] = 2.0**-9
    router.weight = mx.array(rows, dtype=mx.bfloat16)
    chosen, _ = router(mx.array([[1.0, 1.0]], dtype=mx.bfloat16), Step((0,), (1,)))
    assert chosen.item() == better
