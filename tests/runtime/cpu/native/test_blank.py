"""Memory that is zero and that nobody wrote takes no pages, and what was written is kept as it grows."""

import resource
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.cpu import native
from runtime.device import give_back

pytestmark = pytest.mark.skipif(native.kernels is None, reason=f"no kernels: {native.status.reason}")
kernels: Any = native.kernels
MB = 1 << 20


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def dirty(nbytes: int) -> None:
    """Memory of this size that the allocator gets back full of ones."""
    some = mx.full((nbytes // 4,), 1.5)
    mx.eval(some)


@pytest.mark.parametrize("slots", [1, 7, 300, 5000, 40_000])
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.uint8])
def test_it_is_zero_whatever_was_there(slots: int, dtype: mx.Dtype) -> None:
    shape = (2, 3, slots, 16)
    dirty(2 * 3 * slots * 16 * dtype.size)
    made = kernels.blank(shape, dtype)
    assert made.shape == shape
    assert made.dtype == dtype
    assert not mx.any(made != 0).item()


@pytest.mark.parametrize(("rows", "slots"), [(5, 9000), (2, 9000), (5, 3000), (1, 100), (3, 4096)])
def test_what_is_used_and_fits_is_kept(rows: int, slots: int) -> None:
    lane = np.zeros((3, 2, 4096, 8), np.float32)
    lane[:, :, ::3] = np.random.default_rng(0).normal(size=lane[:, :, ::3].shape)
    dirty(rows * 2 * slots * 8 * 4)
    used = [4096, 17, 2500]
    made = np.array(kernels.refitted(mx.array(lane), rows, slots, used))
    expected = np.zeros((rows, 2, slots, 8), np.float32)
    for row, most in zip(range(rows), used, strict=False):
        kept = lane[row, :, : min(most, slots)]
        expected[row, :, : kept.shape[1]] = kept
    assert np.array_equal(made, expected)


def test_a_part_of_a_lane_is_kept_as_it_is_seen() -> None:
    lane = mx.arange(4 * 2 * 6 * 3, dtype=mx.float32).reshape(4, 2, 6, 3)
    made = kernels.refitted(lane[1:3], 2, 8, [6, 6])
    assert np.array_equal(np.array(made)[:, :, :6], np.array(lane)[1:3])


@pytest.mark.skipif(sys.platform != "linux", reason="pages are given back on Linux")
def test_what_nobody_writes_takes_no_pages() -> None:
    mx.eval(kernels.blank((1, 1, 16, 16), mx.float32))
    before = resident_bytes()
    lane = kernels.blank((8, 4, 32_768, 64), mx.float32)  # 256 MB
    mx.eval(lane)
    lane[0, :, :64] = 1.0
    mx.eval(lane)
    wider = kernels.refitted(lane, 8, 65_536, [64] * 8)
    mx.eval(wider)
    assert resident_bytes() - before < 32 * MB
    assert mx.sum(wider[0, :, :80]).item() == 4 * 64 * 64


def test_a_lane_has_four_axes() -> None:
    with pytest.raises(ValueError, match=r"\[R, H, S, W\]"):
        kernels.refitted(mx.zeros((2, 3)), 1, 1, [])


@pytest.mark.skipif(native.kernels is None or not native.by_pages(), reason="no pages by themselves here")
def test_a_row_gives_its_pages_back_and_others_stay_as_they_are() -> None:
    lane = mx.full((2, 4, 65_536, 32), 1.5)  # 64 MB
    mx.eval(lane)
    before = resident_bytes()
    lane = kernels.emptied(lane, 1, 128)
    mx.eval(lane)
    assert resident_bytes() < before - 28 * MB
    assert mx.all(lane[0] == 1.5).item()
    assert mx.all(lane[1, :, :128] == 1.5).item()
    assert mx.all(mx.logical_or(lane[1] == 0, lane[1] == 1.5)).item()
    give_back()  # what the looking took
    assert resident_bytes() < before + 8 * MB


def test_what_somebody_else_holds_keeps_its_pages() -> None:
    lane = mx.full((1, 1, 65_536, 32), 1.5)
    mx.eval(lane)
    mx.eval(kernels.emptied(lane, 0, 0))
    assert mx.all(lane == 1.5).item()
