"""The quantizer gives MLX's bits: packages are the same wherever they are made."""

from collections.abc import Iterator

import mlx.core as mx
import numpy as np
import pytest

from runtime.cpu import native
from runtime.cpu.native.quantize import quantize

pytestmark = pytest.mark.skipif(native.kernels is None, reason=f"no kernels: {native.status.reason}")

RNG = np.random.default_rng(4)
ROWS = {
    "as weights are": 0.05 * RNG.standard_normal((40, 256)),
    "zeros": np.zeros((2, 256)),
    "minus zeros": -np.zeros((2, 256)),
    "zeros of both signs": np.where(RNG.random((16, 256)) < 0.5, -0.0, RNG.integers(0, 2, (16, 256))),
    "all alike": np.full((2, 256), 3.25),
    "above zero": np.abs(RNG.standard_normal((4, 256))),
    "below zero": -np.abs(RNG.standard_normal((4, 256))),
    "whole numbers": np.round(3 * RNG.standard_normal((16, 256))),
    "tiny": 1e-7 * RNG.standard_normal((8, 256)),
    "ends of equal size": np.tile([-2.0, 2.0, 0.0, 1.0], (2, 64)),
    "large": 1e4 * RNG.standard_normal((8, 256)),
    "with infinities": np.where(RNG.random((4, 256)) < 0.02, np.inf, RNG.standard_normal((4, 256))),
    "not numbers": np.where(RNG.random((4, 256)) < 0.02, np.nan, RNG.standard_normal((4, 256))),
}
TYPES = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}


@pytest.fixture(params=native.status.columns)
def column(request: pytest.FixtureRequest) -> Iterator[str]:
    native.kernels.use_column(request.param)
    yield request.param
    native.kernels.use_column(native.status.column)


def words(array: mx.array) -> np.ndarray:
    return np.array(array.view(mx.uint16 if array.dtype.size == 2 else mx.uint32))


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("word", TYPES)
def test_the_same_bits_as_mlx(word: str, bits: int, column: str) -> None:
    for what, rows in ROWS.items():
        if what == "not numbers":
            continue
        x = mx.array(rows.astype(np.float32)).astype(TYPES[word])
        for group in (32, 64, 128):
            got, wanted = native.kernels.quantize(x, group, bits), mx.quantize(x, group, bits)
            for mine, theirs in zip(got, wanted, strict=True):
                finite = np.isfinite(np.array(theirs.astype(mx.float32)))
                same = words(mine) == words(theirs)
                assert (same | ~finite).all(), (what, group, column)


def test_what_is_not_a_number_is_read_within_bounds(column: str) -> None:
    x = mx.array(ROWS["not numbers"].astype(np.float32))
    mx.eval(native.kernels.quantize(x, 32, 3))


@pytest.mark.parametrize("shape", [(1, 64), (3, 5, 64), (0, 64)])
def test_any_shape(shape: tuple[int, ...]) -> None:
    x = mx.random.normal(shape)
    for mine, theirs in zip(quantize(x, 32, 4, "affine"), mx.quantize(x, 32, 4), strict=True):
        assert mine.shape == theirs.shape
        assert mx.array_equal(mine, theirs).item()


def test_seen_through_strides() -> None:
    x = mx.random.normal((64, 96)).T
    for mine, theirs in zip(quantize(x, 32, 4, "affine"), mx.quantize(x, 32, 4), strict=True):
        assert mx.array_equal(mine, theirs).item()


@pytest.mark.parametrize(
    ("shape", "group", "bits", "what"),
    [
        ((2, 48), 32, 4, "whole groups"),
        ((2, 64), 16, 4, "groups must be of"),
        ((2, 64), 64, 7, "codes must have"),
        ((), 64, 4, "whole groups"),
    ],
)
def test_what_cannot_be_is_refused(shape: tuple[int, ...], group: int, bits: int, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        native.kernels.quantize(mx.zeros(shape), group, bits)


def test_whole_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="float"):
        native.kernels.quantize(mx.zeros((2, 64), mx.int32), 64, 4)
