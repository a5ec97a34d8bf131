"""Gathered products: each row by its expert, with the bits that the expert's matrix alone gives it."""

import mlx.core as mx
import numpy as np
import pytest

from runtime.cpu import native
from runtime.nn.feed_forward.experts import Experts, SwitchLinear
from runtime.nn.operations import ops

kernels = native.kernels
if kernels is None:
    pytest.skip(f"no kernels: {native.status.reason}", allow_module_level=True)

EXPERTS, OUTPUTS, WIDTH = 5, 39, 128
FORMATS = [mx.float32, mx.bfloat16, ("affine", 4, 64), ("affine", 3, 32), ("mxfp4", 4, 32), ("mxfp8", 8, 32)]


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def stack(form, *, bias=False):
    """The stack, and each of its matrices alone."""
    weight = mx.array(random(EXPERTS, OUTPUTS, WIDTH))
    added = mx.array(random(EXPERTS, OUTPUTS, seed=1)) if bias else None
    if isinstance(form, tuple):
        mode, bits, group = form
        codes, scales, *biases = mx.quantize(weight, group, bits, mode=mode)
        arrays, how = [codes, scales, biases[0] if biases else None], (group, bits, mode)
    else:
        arrays, how = [weight.astype(form), None, None], ()
    singles = [
        kernels.Matrix(*(None if a is None else a[e] for a in [*arrays, added]), *how) for e in range(EXPERTS)
    ]
    return kernels.Matrix(*arrays, added, *how), singles


@pytest.mark.parametrize("form", FORMATS, ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_rows_have_the_bits_of_their_expert_alone(form, bias):
    together, singles = stack(form, bias=bias)
    tokens, chosen = random(29, WIDTH), np.random.default_rng(2).integers(0, EXPERTS, (29, 2))
    x = mx.array(tokens)[:, None, None, :]
    expected = np.stack(
        [
            [np.array(kernels.product(mx.array(t[None]), singles[e]))[0] for e in asked]
            for t, asked in zip(tokens, chosen, strict=True)
        ]
    )
    for column in kernels.columns():
        kernels.use_column(column)
        for threads in (1, 3):
            kernels.set_threads(threads)
            got = np.array(kernels.gather(x, mx.array(chosen), together))[:, :, 0]
            assert got.tobytes() == expected.tobytes(), (column, threads)


def test_more_rows_of_one_expert_than_are_taken_at_a_time():
    together, singles = stack(mx.bfloat16)
    x = random(700, WIDTH)
    got = kernels.gather(mx.array(x)[:, None], mx.full((700,), 3, mx.uint32), together)
    assert mx.array_equal(got[:, 0], kernels.product(mx.array(x), singles[3]))


def test_rows_of_a_group_share_their_expert():
    together, singles = stack(("affine", 4, 64))
    x = mx.array(random(3, 4, WIDTH))
    got = kernels.gather(x, mx.array([4, 0, 4]), together)
    for i, e in enumerate((4, 0, 4)):
        assert mx.array_equal(got[i], kernels.product(x[i], singles[e]))


def test_numbers_of_no_expert_get_the_nearest_one():
    together, _ = stack(mx.float32)
    x = mx.array(random(6, 1, WIDTH))
    got = kernels.gather(x, mx.array([-1, -5, -6, 5, 2**31 - 1, -(2**31)]), together)
    assert mx.array_equal(got, kernels.gather(x, mx.array([4, 0, 0, 4, 4, 0]), together))


def test_no_rows_and_what_does_not_fit():
    together, singles = stack(mx.float32)
    assert kernels.gather(mx.zeros((0, 1, WIDTH)), mx.zeros((0,), mx.int32), together).shape == (
        0,
        1,
        OUTPUTS,
    )
    with pytest.raises(ValueError, match="x must be"):
        kernels.gather(mx.zeros((2, 1, 7)), mx.array([0, 1]), together)
    with pytest.raises(ValueError, match="whole numbers"):
        kernels.gather(mx.zeros((2, 1, WIDTH)), mx.array([0.0, 1.0]), together)
    with pytest.raises(ValueError, match="single matrices"):
        kernels.product(mx.zeros((2, WIDTH)), together)
    assert singles


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("tokens", [1, 40])
def test_experts_of_the_table_answer_as_mlx_does(packed, tokens):
    layer = Experts(64, 32 if not packed else 64, EXPERTS)
    for name, module in list(layer.items()):
        if isinstance(module, SwitchLinear):
            module.weight = mx.array(random(*module.weight.shape)) * 0.1
            layer[name] = module.to_quantized(64, 8) if packed else module
    x = mx.array(random(1, tokens, 64))
    chosen = mx.array(np.random.default_rng(3).integers(0, EXPERTS, (1, tokens, 2)))
    choice = chosen, mx.full((1, tokens, 2), 0.5)
    with ops.using("plain"):
        expected = layer(x, choice)
    with ops.using("cpu"):
        got = layer(x, choice)
    assert mx.abs(got - expected).max() < 1e-3 * mx.abs(expected).max()


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.float16])
@pytest.mark.parametrize(
    ("x", "w"), [((3, 70), (70, 20)), ((2, 4, 3, 33), (4, 33, 17)), ((2, 1, 5, 8), (2, 6, 8, 40))]
)
def test_products_of_arrays(x, w, dtype, transposed):
    left, right = mx.array(random(*x)), mx.array(random(*w, seed=1)).astype(dtype)
    exact = np.array(left, np.float64) @ np.array(right.astype(mx.float32), np.float64)
    right = right.swapaxes(-1, -2) if transposed else right  # seen through strides
    expected = None
    for column in kernels.columns():
        kernels.use_column(column)
        got = np.array(kernels.matmul(left, right, transposed))
        assert np.abs(got - exact).max() < 1e-4
        assert expected is None or got.tobytes() == expected
        expected = got.tobytes()
        for row in range(x[-2]):
            alone = np.array(kernels.matmul(left[..., row : row + 1, :], right, transposed))
            assert alone.tobytes() == got[..., row : row + 1, :].tobytes()


def test_arrays_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="summed over"):
        kernels.matmul(mx.zeros((2, 3)), mx.zeros((4, 3)))
    with pytest.raises(ValueError, match="two dimensions"):
        kernels.matmul(mx.zeros((3,)), mx.zeros((3, 3)))
