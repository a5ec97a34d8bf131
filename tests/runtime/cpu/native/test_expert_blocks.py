"""A block of experts in one node has the bits of its products, gates and sum one after the other."""

import mlx.core as mx
import numpy as np
import pytest

from runtime.cpu import native
from runtime.cpu.native.activations import KINDS
from runtime.nn.feed_forward.experts import Experts, SwitchLinear
from runtime.nn.operations import ops, signatures

kernels = native.kernels
if kernels is None:
    pytest.skip(f"no kernels: {native.status.reason}", allow_module_level=True)

EXPERTS, WIDTH, INNER = 7, 128, 192
FORMATS = [mx.float32, mx.bfloat16, ("affine", 4, 64), ("affine", 6, 64), ("mxfp4", 4, 32), ("mxfp8", 8, 32)]
CLIP = (2.0, 1.702)


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def stack(outputs, width, form, *, bias=False, seed=0):
    weight = mx.array(random(EXPERTS, outputs, width, seed=seed)) * 0.1
    added = mx.array(random(EXPERTS, outputs, seed=seed + 1)) if bias else None
    if not isinstance(form, tuple):
        return kernels.Matrix(weight.astype(form), None, None, added)
    mode, bits, group = form
    codes, scales, *biases = mx.quantize(weight, group, bits, mode=mode)
    return kernels.Matrix(codes, scales, biases[0] if biases else None, added, group, bits, mode)


def asked(rows, each, seed=2):
    rng = np.random.default_rng(seed)
    chosen = (
        np.stack([rng.permutation(EXPERTS)[:each] for _ in range(rows)]) if rows else np.zeros((0, each), int)
    )
    return mx.array(chosen), mx.array(rng.random((rows, each), dtype=np.float32))


def one_after_the_other(x, chosen, weights, opening, act, clip, close):
    """[rows, D] by the nodes that there are for each part."""
    parts = [kernels.gather(x[:, None, None, :], chosen, part) for part in opening]
    if clip is not None:
        inner = kernels.clipped_gate(*clip, *parts)
    else:
        inner = kernels.act(act, parts[0]) if len(parts) == 1 else kernels.gate(act, *parts)
    answers = kernels.gather(inner, chosen, close).squeeze(-2)
    return kernels.matmul(weights[:, None, :], answers).squeeze(-2)


@pytest.mark.parametrize("form", FORMATS, ids=str)
@pytest.mark.parametrize(("opens", "clip"), [(2, None), (2, CLIP), (1, None)])
def test_the_bits_are_those_of_its_parts_and_of_a_row_alone(form, opens, clip):
    bias = clip is not None
    opening = [stack(INNER, WIDTH, form, bias=bias, seed=seed) for seed in (1, 3)[:opens]]
    close, act = stack(WIDTH, INNER, form, bias=bias, seed=5), KINDS["silu" if opens == 2 else "relu2"]
    block = kernels.ExpertBlock(opening, act, *(clip or (0.0, 0.0)), close)
    x = mx.array(random(23, WIDTH, seed=9))
    chosen, weights = asked(23, 3)
    expected = np.array(one_after_the_other(x, chosen, weights, opening, act, clip, close))
    for column in kernels.columns():
        kernels.use_column(column)
        for threads in (1, 3):
            kernels.set_threads(threads)
            got = np.array(block(x, chosen, weights))
            assert got.tobytes() == expected.tobytes(), (column, threads)
        for first, stop in ((0, 1), (4, 9)):
            some = np.array(block(x[first:stop], chosen[first:stop], weights[first:stop]))
            assert some.tobytes() == expected[first:stop].tobytes(), (column, first)


def test_stacks_of_different_formats():
    opening = [stack(INNER, WIDTH, ("affine", 4, 64)), stack(INNER, WIDTH, ("affine", 8, 32), seed=3)]
    close = stack(WIDTH, INNER, mx.bfloat16, seed=5)
    x, (chosen, weights) = mx.array(random(5, WIDTH)), asked(5, 2)
    block = kernels.ExpertBlock(opening, KINDS["silu"], 0, 0, close)
    expected = one_after_the_other(x, chosen, weights, opening, KINDS["silu"], None, close)
    assert mx.array_equal(block(x, chosen, weights), expected)


def test_more_rows_of_one_expert_than_are_taken_at_a_time():
    opening, close = [stack(INNER, WIDTH, ("affine", 4, 64))], stack(WIDTH, INNER, ("affine", 4, 64))
    block = kernels.ExpertBlock(opening, KINDS["relu2"], 0, 0, close)
    x, chosen, weights = mx.array(random(400, WIDTH)), mx.full((400, 1), 3, mx.uint32), mx.ones((400, 1))
    together = block(x, chosen, weights)
    for row in (0, 123, 124, 399):
        assert mx.array_equal(block(x[row : row + 1], chosen[:1], weights[:1])[0], together[row])


def test_an_expert_that_is_asked_twice_counts_twice_and_none_beyond_the_ends():
    opening, close = [stack(INNER, WIDTH, mx.float32)], stack(WIDTH, INNER, mx.float32)
    block = kernels.ExpertBlock(opening, KINDS["silu"], 0, 0, close)
    x, weights = mx.array(random(2, WIDTH)), mx.full((2, 2), 0.5)
    once = block(x, mx.array([[6], [0]]), mx.ones((2, 1)))
    assert mx.array_equal(block(x, mx.array([[6, 6], [0, 0]]), weights), once)
    assert mx.array_equal(block(x, mx.array([[2**31 - 1, -1], [-(2**31), -7]]), weights), once)


def test_no_rows_and_what_does_not_fit():
    opening, close = [stack(INNER, WIDTH, mx.float32)], stack(WIDTH, INNER, mx.float32)
    block = kernels.ExpertBlock(opening, KINDS["silu"], 0, 0, close)
    chosen, weights = asked(2, 2)
    assert block(mx.zeros((1, 0, WIDTH)), mx.zeros((1, 0, 2), mx.int32), mx.zeros((1, 0, 2))).shape == (
        1,
        0,
        WIDTH,
    )
    for x, numbers, by, said in (
        (mx.zeros((2, 7)), chosen, weights, "as wide"),
        (mx.zeros((2, WIDTH)), weights, weights, "whole numbers"),
        (mx.zeros((3, WIDTH)), chosen, weights, "every row"),
        (mx.zeros((2, WIDTH)), chosen[:, :1], weights, "every row"),
        (mx.zeros((2, WIDTH)), chosen[:, :0], weights[:, :0], "one expert"),
    ):
        with pytest.raises(ValueError, match=said):
            block(x, numbers, by)
    with pytest.raises(ValueError, match="sizes that fit"):
        kernels.ExpertBlock(opening, KINDS["silu"], 0, 0, stack(WIDTH, WIDTH, mx.float32))
    with pytest.raises(ValueError, match="limit"):
        kernels.ExpertBlock(opening, KINDS["silu"], 1.0, 1.0, close)


@pytest.mark.parametrize(("gated", "clip"), [(True, None), (True, CLIP), (False, None)])
def test_the_table_computes_it_alike_in_every_column(gated, clip):
    layer = Experts(
        WIDTH, INNER, EXPERTS, activation="silu" if gated else "relu2", gated=gated, bias=True, clip=clip
    )
    for seed, module in enumerate(module for module in layer.values() if isinstance(module, SwitchLinear)):
        module.weight = mx.array(random(*module.weight.shape, seed=seed)) * 0.1
        module.bias = mx.array(random(*module.bias.shape, seed=seed + 10)) * 0.1
    x, (chosen, weights) = mx.array(random(1, 9, WIDTH)), asked(9, 3)
    choice = chosen[None], weights[None]
    answers = {}
    for name in signatures.NAMES:
        with ops.using(name):
            answers[name] = layer(x, choice)
    for name, answer in answers.items():
        assert mx.abs(answer - answers["plain"]).max() < 1e-4 * mx.abs(answers["plain"]).max(), name
