"""Products of packed matrices: near the exact ones, and the same bits however they are asked for."""

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from runtime.cpu import native
from runtime.cpu.native.activations import KINDS
from runtime.nn.operations import ops

kernels = native.kernels
if kernels is None:
    pytest.skip(f"no kernels: {native.status.reason}", allow_module_level=True)

AFFINE = [("affine", bits, group) for bits in (1, 2, 3, 4, 5, 6, 8) for group in (32, 64, 128)]
FORMATS = [*AFFINE, ("mxfp4", 4, 32), ("nvfp4", 4, 16)]
ROWS = 19  # two tiles of eight, one of two, one of one


def packed(mode, bits, group, outputs, width, dtype=mx.float32, seed=0):
    """(codes, scales, biases or None) and the float64 matrix that they stand for."""
    weights = mx.random.normal((outputs, width), key=mx.random.key(seed)) * 0.05
    codes, scales, *biases = mx.quantize(weights.astype(dtype), group, bits, mode=mode)
    widened = [array.astype(mx.float32) if biases else array for array in (scales, *biases)]
    exact = mx.dequantize(codes, *widened, group_size=group, bits=bits, mode=mode, dtype=mx.float32)
    return (codes, scales, biases[0] if biases else None), np.array(exact, np.float64)


def matrix(mode, bits, group, outputs, width, bias=None, **how):
    arrays, exact = packed(mode, bits, group, outputs, width, **how)
    return kernels.Matrix(*arrays, bias, group, bits, mode), exact


def rows(count, width, seed=0):
    return np.random.default_rng(seed).standard_normal((count, width), dtype=np.float32)


def product(x, w, **more):
    return np.array(kernels.product(mx.array(x), w, **more))


def same(a, b):
    return a.tobytes() == b.tobytes()


def bound(x, exact, block):
    """Rounding a block of x to whole numbers moves each element by half a step at most; and a float's
    rounding for each block.
    """
    sizes = np.abs(x).reshape(len(x), -1, block).max(-1)
    steps = np.repeat(sizes / 32639, block, axis=-1).astype(np.float64)
    return 0.5 * steps @ np.abs(exact).T + 1e-5 * np.abs(x).astype(np.float64) @ np.abs(exact).T


@pytest.mark.parametrize(("mode", "bits", "group"), FORMATS)
def test_product_is_near_the_exact_one_and_rows_stand_alone(mode, bits, group):
    width = 128 * 5  # two slabs
    w, exact = matrix(mode, bits, group, 53, width)
    x = rows(ROWS, width)
    kernels.set_threads(1)
    together = product(x, w)
    assert (np.abs(together - x.astype(np.float64) @ exact.T) <= bound(x, exact, min(group, 64))).all()
    for column in kernels.columns():
        kernels.use_column(column)
        for threads in (1, 2, 3):
            kernels.set_threads(threads)
            assert same(product(x, w), together), (column, threads)
            for first, stop in ((0, 1), (1, 3), (2, 5), (3, 7), (10, 15), (1, 7), (9, 16), (7, 15), (18, 19)):
                assert same(product(x[first:stop], w), together[first:stop]), (column, threads, first)


@pytest.mark.parametrize(
    ("mode", "bits", "group"),
    [
        *(("affine", bits, group) for bits in (3, 4, 8) for group in (32, 64)),
        ("mxfp4", 4, 32),
        ("nvfp4", 4, 16),
    ],
)
@pytest.mark.parametrize("blocks", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("outputs", [1, 16, 33])
def test_sizes_that_fill_no_register(mode, bits, group, outputs, blocks):
    width = max(group, 32) * blocks
    w, exact = matrix(mode, bits, group, outputs, width)
    x = rows(7, width)
    together = product(x, w)
    assert (np.abs(together - x @ exact.T) <= bound(x, exact, min(group, 64))).all()
    for column in kernels.columns():
        kernels.use_column(column)
        for count in (1, 2, 3, 4, 7):
            assert same(product(x[:count], w), together[:count])


def test_row_of_one_block_and_a_half():
    """nvfp4 has groups of 16, and codes are unpacked by 32."""
    (codes, scales, _), exact = packed("nvfp4", 4, 16, 20, 64)
    w = kernels.Matrix(codes[:, :6], scales[:, :3], None, None, 16, 4, "nvfp4")
    x, exact = rows(2, 48), exact[:, :48]
    assert (np.abs(product(x, w) - x @ exact.T) <= bound(x, exact, 16)).all()


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
@pytest.mark.parametrize("width", [192, 576])
def test_scales_of_every_type(dtype, width):
    w, exact = matrix("affine", 4, 64, 40, width, dtype=dtype)
    x = rows(2, width)
    expected = product(x, w)
    assert (np.abs(expected - x @ exact.T) <= bound(x, exact, 64)).all()
    for column in kernels.columns():
        kernels.use_column(column)
        assert same(product(x, w), expected)


def test_more_rows_than_are_taken_at_a_time():
    w, _ = matrix("affine", 4, 64, 70, 128)
    x = rows(1100, 128)
    kernels.set_threads(3)
    together = product(x, w)
    for r in (0, 511, 512, 1023, 1024, 1099):
        assert same(product(x[r : r + 1], w), together[r : r + 1])


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
@pytest.mark.parametrize("outputs", [5, 40])
def test_bias_and_residual(dtype, outputs):
    bias = mx.random.normal((outputs,), key=mx.random.key(1)).astype(dtype)
    plain, _ = matrix("affine", 4, 64, outputs, 128)
    with_bias, _ = matrix("affine", 4, 64, outputs, 128, bias=bias)
    x, residual = rows(3, 128), rows(3, outputs, seed=1)
    expected = product(x, plain) + np.array(bias.astype(mx.float32)) + residual
    for column in kernels.columns():
        kernels.use_column(column)
        assert same(product(x, with_bias, residual=mx.array(residual)), expected)


def test_several_matrices_of_different_formats():
    formats = [("affine", 4, 64, 40), ("affine", 6, 64, 7), ("mxfp4", 4, 32, 100), ("affine", 4, 64, 1)]
    several = [matrix(mode, bits, group, n, 128)[0] for mode, bits, group, n in formats]
    x = rows(5, 128)
    for answer, w in zip(kernels.products(mx.array(x), several), several, strict=True):
        assert same(np.array(answer), product(x, w))


def test_strided_inputs_are_read_as_seen():
    w, _ = matrix("affine", 4, 64, 8, 64)
    x = rows(64, 6)
    assert same(np.array(kernels.product(mx.array(x).T, w)), product(np.ascontiguousarray(x.T), w))


def test_no_rows():
    w, _ = matrix("affine", 4, 64, 8, 64)
    assert kernels.product(mx.zeros((0, 64)), w).shape == (0, 8)


def test_zeros_and_what_is_no_number():
    w, _ = matrix("affine", 4, 64, 8, 64)
    x = rows(4, 64)
    x[0], x[1, 3], x[2, 5] = 0, np.nan, np.inf
    expected = product(x[3:], w)
    for column in kernels.columns():
        kernels.use_column(column)
        y = product(x, w)
        assert not y[0].any()
        assert np.isnan(y[1:3]).all()
        assert same(y[3:], expected)


@pytest.mark.parametrize("kind", ["linear", "head"])
@pytest.mark.parametrize("mode", ["affine", "mxfp4", "mxfp8"])
def test_linear_of_the_table(kind, mode):
    module = nn.Linear(64, 24, bias=True) if kind == "linear" else nn.Embedding(24, 64)
    module = module.to_quantized(64 if mode == "affine" else 32, 8 if mode == "mxfp8" else 4, mode=mode)
    x = mx.array(rows(6, 64)).reshape(2, 3, 64)
    with ops.using("cpu"):
        got = ops.table.linear(module, x)
    with ops.using("gpu"):
        assert mx.allclose(got, ops.table.linear(module, x), atol=1e-3)


def test_replaced_weight_is_noticed():
    module = nn.Linear(64, 8, bias=False).to_quantized(64, 4)
    x = mx.ones((1, 64))
    with ops.using("cpu"):
        before = ops.table.linear(module, x)
        module["scales"], module["biases"] = module["scales"] * 2, module["biases"] * 2
        assert mx.allclose(ops.table.linear(module, x), before * 2)


def test_what_does_not_fit_is_refused():
    (codes, scales, biases), _ = packed("affine", 4, 64, 8, 128)
    with pytest.raises(ValueError, match="codes must be uint32"):
        kernels.Matrix(codes[:, :8], scales, biases, None, 64, 4, "affine")
    with pytest.raises(ValueError, match="bias must have one element"):
        kernels.Matrix(codes, scales, biases, mx.zeros((7,)), 64, 4, "affine")
    with pytest.raises(ValueError, match="affine codes have"):
        kernels.Matrix(codes, scales, biases, None, 64, 7, "affine")
    w = kernels.Matrix(codes, scales, biases, None, 64, 4, "affine")
    with pytest.raises(ValueError, match="last dimension"):
        kernels.product(mx.zeros((1, 64)), w)
    with pytest.raises(ValueError, match="shape of the answer"):
        kernels.product(mx.zeros((1, 128)), w, mx.zeros((2, 8)))


@pytest.mark.parametrize("formats", [(4, 4), (4, 6)])
@pytest.mark.parametrize("name", ["silu", "gelu_tanh", "relu2"])
@pytest.mark.parametrize("outputs", [9, 70])
def test_gate_of_two_products(name, formats, outputs):
    bias = mx.random.normal((outputs,), key=mx.random.key(1))
    gate, up = (matrix("affine", bits, 64, outputs, 128, bias=bias, seed=bits)[0] for bits in formats)
    x = rows(11, 128)
    act = KINDS[name]
    for column in kernels.columns():
        kernels.use_column(column)
        expected = kernels.gate(act, mx.array(product(x, gate)), mx.array(product(x, up)))
        assert same(np.array(kernels.gated_products(mx.array(x), gate, up, act)), np.array(expected))


def test_clipped_gate_of_two_products():
    gate, up = (matrix("mxfp4", 4, 32, 40, 128, seed=seed)[0] for seed in (1, 2))
    x = rows(3, 128) * 20
    expected = kernels.clipped_gate(7.0, 1.702, mx.array(product(x, gate)), mx.array(product(x, up)))
    got = kernels.gated_products(mx.array(x), gate, up, 0, limit=7.0, slope=1.702)
    assert same(np.array(got), np.array(expected))


def test_gate_and_what_it_gates_have_one_shape():
    gate, up = (matrix("affine", 4, 64, outputs, 128)[0] for outputs in (8, 9))
    with pytest.raises(ValueError, match="one shape"):
        kernels.gated_products(mx.zeros((1, 128)), gate, up, 0)
    with pytest.raises(ValueError, match="no such activation"):
        kernels.gated_products(mx.zeros((1, 128)), gate, gate, 99)
    with pytest.raises(ValueError, match="last dimension"):
        kernels.gated_products(mx.zeros((1, 64)), gate, gate, 0)
