"""The one-row switch agrees with its plain routines for every shape, transposition and stride it can meet."""

import ctypes
import platform
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.cpu.bind import openblas_path
from runtime.cpu.gemv import NO_TRANS, ROW_MAJOR, TRANS, switch

INT, FLOAT, POINTER = ctypes.c_int, ctypes.c_float, ctypes.c_void_p
SGEMM = ctypes.CFUNCTYPE(
    None, INT, INT, INT, INT, INT, INT, FLOAT, POINTER, INT, POINTER, INT, FLOAT, POINTER, INT
)

path = openblas_path()
pytestmark = pytest.mark.skipif(
    path is None or platform.machine() != "x86_64", reason="needs scipy-openblas32 on x86-64"
)


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    return ctypes.CDLL(str(path))


def address(library: ctypes.CDLL, name: str) -> int:
    found = ctypes.cast(library[name], ctypes.c_void_p).value
    assert found
    return found


@pytest.fixture(scope="module")
def one_row(library: ctypes.CDLL) -> Callable[..., None]:
    at = switch(address(library, "scipy_cblas_sgemm"), address(library, "scipy_cblas_sgemv"))
    if at is None:
        pytest.skip("this host refuses executable memory")
    return SGEMM(at)


@settings(max_examples=200)
@given(
    rows=st.sampled_from([1, 1, 1, 2, 5]),
    cols=st.integers(1, 70),
    inner=st.integers(1, 70),
    transposed=st.tuples(st.booleans(), st.booleans()),
    slack=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    scale=st.tuples(st.sampled_from([1, 2]), st.sampled_from([0, 1, 3])),
)
def test_equals_numpy(
    one_row: Callable[..., None],
    rows: int,
    cols: int,
    inner: int,
    transposed: tuple[bool, bool],
    slack: tuple[int, int],
    scale: tuple[int, int],
) -> None:
    def stored(shape: tuple[int, int], flipped: bool, extra: int) -> np.ndarray:
        height, width = reversed(shape) if flipped else shape
        return (np.arange(height * (width + extra)) * 37 % 11 - 5).astype(np.float32).reshape(height, -1)

    a = stored((rows, inner), transposed[0], slack[0])
    b = stored((inner, cols), transposed[1], slack[1])
    c = (np.arange(rows * cols) % 7 - 3).astype(np.float32).reshape(rows, cols)
    left = a.T[:rows] if transposed[0] else a[:, :inner]
    right = b.T[:inner] if transposed[1] else b[:, :cols]
    left = left[:, :inner] if transposed[0] else left
    right = right[:, :cols] if transposed[1] else right
    expected = scale[0] * (left @ right) + scale[1] * c
    flags = [TRANS if flag else NO_TRANS for flag in transposed]
    one_row(
        ROW_MAJOR, *flags, rows, cols, inner, scale[0], a.ctypes.data, a.shape[1],
        b.ctypes.data, b.shape[1], scale[1], c.ctypes.data, cols,
    )  # fmt: skip
    np.testing.assert_array_equal(c, expected)


def test_column_major_goes_to_sgemm(one_row: Callable[..., None]) -> None:
    """M = 1 in column-major order means another stride for C; the switch must not touch it."""
    a, b = np.array([2.0], np.float32), np.array([3.0, 5.0], np.float32)
    c = np.full(4, -1, np.float32)
    one_row(102, NO_TRANS, NO_TRANS, 1, 2, 1, 1.0, a.ctypes.data, 1, b.ctypes.data, 1, 0.0, c.ctypes.data, 2)
    assert c.tolist() == [6.0, -1.0, 10.0, -1.0]
