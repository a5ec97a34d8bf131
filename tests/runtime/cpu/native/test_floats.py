"""Products in float32: of floats, of mxfp8, of packed integers where that is asked for; and tables."""

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from runtime.cpu import native
from runtime.nn.operations import ops

kernels = native.kernels
if kernels is None:
    pytest.skip(f"no kernels: {native.status.reason}", allow_module_level=True)

FLOATS = [mx.float32, mx.bfloat16, mx.float16]
AFFINE = [("affine", bits, group) for bits in (1, 2, 3, 4, 5, 6, 8) for group in (32, 64, 128)]
PACKED = [*AFFINE, ("mxfp4", 4, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16)]
ROWS = 27  # more than two tiles of any column


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def floats(outputs, width, dtype):
    weight = mx.array(random(outputs, width)).astype(dtype)
    return kernels.Matrix(weight, None, None, None), np.array(weight.astype(mx.float32), np.float64)


def packed(mode, bits, group, outputs, width):
    """A matrix and the one that MLX makes of it, of scales in float32."""
    codes, scales, *biases = mx.quantize(mx.array(random(outputs, width)), group, bits, mode=mode)
    exact = mx.dequantize(codes, scales, *biases, group_size=group, bits=bits, mode=mode, dtype=mx.float32)
    return kernels.Matrix(codes, scales, biases[0] if biases else None, None, group, bits, mode), exact


def product(x, w):
    return np.array(kernels.product(mx.array(x), w))


def same(a, b):
    return a.tobytes() == b.tobytes()


def bound(x, exact):
    """A chain of 64 products rounds each time, and so does each sum of a block."""
    steps = 64 + x.shape[-1] / 64 + 2
    return steps * 2.0**-24 * np.abs(x).astype(np.float64) @ np.abs(exact).T


def alone_and_together(x, w):
    """The answer, equal in bits for rows alone, in blocks and together, on any threads and columns."""
    kernels.set_threads(1)
    together = product(x, w)
    for column in kernels.columns():
        kernels.use_column(column)
        for threads in (1, 2, 3):
            kernels.set_threads(threads)
            assert same(product(x, w), together), (column, threads)
            for first, stop in ((0, 1), (1, 3), (3, 14), (14, 27)):
                assert same(product(x[first:stop], w), together[first:stop]), (column, threads, first)
    return together


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("outputs", "width"), [(1, 1), (16, 64), (17, 33), (50, 333), (70, 576)])
def test_matrices_of_floats(dtype, outputs, width):
    w, exact = floats(outputs, width, dtype)
    x = random(ROWS, width, seed=1)
    assert (np.abs(alone_and_together(x, w) - x @ exact.T) <= bound(x, exact)).all()


@pytest.mark.parametrize(("mode", "bits", "group"), PACKED)
def test_packed_matrices_by_float32_rows(mode, bits, group):
    kernels.use_activations("f32")
    w, exact = packed(mode, bits, group, 39, 384)
    exact = np.array(exact, np.float64)
    x = random(ROWS, 384, seed=1)
    assert (np.abs(alone_and_together(x, w) - x @ exact.T) <= bound(x, exact)).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("outputs", "width"), [(16, 64), (50, 160)])
def test_every_number_of_rows(dtype, outputs, width):
    w, _ = floats(outputs, width, dtype)
    x = random(40, width)
    kernels.set_threads(1)
    alone = np.concatenate([product(row[None], w) for row in x])
    for column in kernels.columns():
        kernels.use_column(column)
        for rows in range(1, 41):
            assert same(product(x[-rows:], w), alone[-rows:]), (column, rows)


def test_rows_of_several_batches_and_pieces():
    w, _ = floats(20, 100, mx.bfloat16)
    x = random(1100, 100)
    kernels.set_threads(3)
    together = product(x, w)
    for r in (0, 11, 12, 365, 366, 367, 512, 734, 1099):
        assert same(product(x[r : r + 1], w), together[r : r + 1])


@pytest.mark.parametrize("count", [1, 4, 7])
@pytest.mark.parametrize("width", [2, 64, 100])
@pytest.mark.parametrize("dtype", FLOATS)
def test_infinite_weights_stay_so(dtype, width, count):
    weight = np.zeros((4, width), np.float32)
    weight[:, :2] = [[np.inf, 1.0], [-np.inf, 1.0], [np.nan, 1.0], [1e-7, 0.0]]
    weight = mx.array(np.roll(weight, width // 3, axis=1)).astype(dtype)
    expected = np.array(weight.astype(mx.float32)).sum(-1)
    for column in kernels.columns():
        kernels.use_column(column)
        got = product(np.ones((count, width), np.float32), kernels.Matrix(weight, None, None, None))
        assert np.array_equal(got, [expected] * count, equal_nan=True)


@pytest.mark.parametrize("seven", range(8))
def test_every_float_of_16_bits_is_what_it_is(seven):
    """An eighth of them each time, one in a row of zeros each."""
    numbers = np.arange(seven, 1 << 16, 8, dtype=np.uint16).view(np.float16)
    weight = np.zeros((len(numbers), 64), np.float16)
    weight[:, 9] = numbers
    x, w = np.zeros((1, 64), np.float32), kernels.Matrix(mx.array(weight), None, None, None)
    x[0, 9] = 1
    for column in kernels.columns():
        kernels.use_column(column)
        assert np.array_equal(product(x, w)[0], numbers.astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS)
def test_linear_and_tied_head_of_the_table(dtype):
    linear, table = nn.Linear(40, 24), nn.Embedding(24, 40)
    for module in (linear, table):
        module.set_dtype(dtype)
    x = mx.array(random(2, 3, 40))
    for module in (linear, table):
        weight = module["weight"].astype(mx.float32)
        bias = module["bias"].astype(mx.float32) if "bias" in module else 0
        with ops.using("cpu"):
            got = ops.table.linear(module, x)
        assert got.dtype == mx.float32
        assert mx.allclose(got, x @ weight.T + bias, atol=1e-5)


@pytest.mark.parametrize(("mode", "bits", "group"), PACKED)
def test_rows_of_packed_tables_are_what_mlx_unpacks(mode, bits, group):
    w, exact = packed(mode, bits, group, 20, 256)
    ids = mx.array([[3, 19, 0], [7, 7, 1]])
    for column in kernels.columns():
        kernels.use_column(column)
        assert same(np.array(kernels.table_rows(ids, w)), np.array(exact[ids]))


def test_every_float_of_8_bits_is_read_as_mlx_reads_it():
    codes = mx.array(np.arange(256, dtype=np.uint8)).view(mx.uint32).reshape(1, 64)
    scales = mx.array([[0, 1, 100, 127, 128, 200, 254, 120]], mx.uint8)
    expected = mx.dequantize(codes, scales, group_size=32, bits=8, mode="mxfp8", dtype=mx.float32)
    w = kernels.Matrix(codes, scales, None, None, 32, 8, "mxfp8")
    assert np.array_equal(np.array(kernels.table_rows(mx.array([0]), w)), np.array(expected), equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("width", [5, 48])
def test_rows_of_tables_of_floats(dtype, width):
    module = nn.Embedding(60, width)
    module.set_dtype(dtype)
    for kind in (mx.int32, mx.uint32, mx.int64, mx.uint8):
        ids = mx.array([[3, 59, 0] * 20], kind)
        with ops.using("cpu"):
            got = ops.table.embed(module, ids)
        assert got.dtype == mx.float32
        assert mx.array_equal(got, module["weight"].astype(mx.float32)[ids])


def test_ids_of_no_row_get_the_nearest_one():
    w, exact = floats(4, 8, mx.float32)
    got = np.array(kernels.table_rows(mx.array([-1, -4, -5, 4, 10**6, -(10**6)]), w))
    assert np.array_equal(got, exact[[3, 0, 0, 3, 3, 0]])
    assert kernels.table_rows(mx.zeros((0,), mx.int32), w).shape == (0, 8)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="weight must be"):
        kernels.Matrix(mx.zeros((4, 8), mx.int32), None, None, None)
    with pytest.raises(ValueError, match="less than 2\\^24"):
        kernels.Matrix(mx.zeros((4, 0)), None, None, None)
    with pytest.raises(ValueError, match="two dimensions"):
        kernels.Matrix(mx.zeros((8,)), None, None, None)
    w, _ = floats(4, 8, mx.float32)
    with pytest.raises(ValueError, match="whole numbers"):
        kernels.table_rows(mx.zeros((3,)), w)
    with pytest.raises(ValueError, match="i16 or f32"):
        kernels.use_activations("f64")
