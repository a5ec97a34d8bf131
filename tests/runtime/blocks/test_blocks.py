"""Blocks of GGUF are the numbers that ggml makes of them, as floats and in the packed form of MLX."""

import subprocess
import sys
from typing import Any

import gguf
import mlx.core as mx
import numpy as np
import pytest

from runtime.blocks.decode import decoded, packed
from runtime.blocks.finite import first_not_finite
from runtime.blocks.forms import EXACT_IN_F32, REPACKED, Form
from runtime.blocks.repack import NotFinite, repacked
from runtime.blocks.types import BLOCK_TYPES, BlockType
from runtime.weights.packing import Packing, unpacked
from tests.support import block_table
from tests.support.blocks import PACKED, random_rows

ALL = pytest.mark.parametrize("kind", PACKED, ids=lambda kind: kind.name)
ROWS, WIDTH = 6, 512


def _plain(rows: np.ndarray, kind: BlockType) -> np.ndarray:
    """The two types that gguf-py cannot read yet, as ggml's C code says them."""
    found = []
    for block in rows.reshape(-1, kind.nbytes):
        d = block[:2].view(np.float16).astype(np.float32)[0]
        for item in range(kind.weights):
            if kind.name == "q1_0":
                found.append(d if block[2 + item // 8] >> item % 8 & 1 else -d)
            else:
                found.append((int(block[2 + item // 4] >> 2 * (item % 4) & 3) - 1) * d)
    return np.array(found, np.float32).reshape(len(rows), -1)


def reference(rows: np.ndarray, kind: BlockType) -> np.ndarray:
    with np.errstate(all="ignore"):
        return _reference(rows, kind)


def _reference(rows: np.ndarray, kind: BlockType) -> np.ndarray:
    if kind.name in ("q1_0", "q2_0"):
        return _plain(rows, kind)
    number = getattr(gguf.GGMLQuantizationType, kind.name.upper())
    return gguf.quants.dequantize(rows, number).astype(np.float32)


def expanded(codes: Any, scales: Any, biases: Any, form: Form) -> np.ndarray:
    """What MLX makes of its packed form, in float32."""
    packing = Packing(form.bits, form.group_size, form.mode)
    offsets = None if biases is None else mx.array(biases)
    return np.array(unpacked(mx.array(codes), mx.array(scales), offsets, packing, mx.float32))


@ALL
def test_blocks_are_the_numbers_that_ggml_computes(kind: BlockType) -> None:
    rows = random_rows(kind, ROWS, WIDTH)
    wanted = reference(rows, kind)
    assert np.isfinite(wanted).all()
    assert len(np.unique(wanted)) > 8
    assert np.array_equal(np.array(decoded(mx.array(rows), kind)), wanted)
    stack = mx.array(rows.reshape(2, 3, -1))
    assert np.array_equal(np.array(decoded(stack, kind)), wanted.reshape(2, 3, -1))


@pytest.mark.parametrize("name", REPACKED)
def test_what_mlx_has_too_is_repacked_exactly(name: str) -> None:
    kind, form = BLOCK_TYPES[name], REPACKED[name]
    rows = random_rows(kind, ROWS, WIDTH)
    found = repacked(rows.tobytes(), kind)
    groups = (ROWS, WIDTH // form.group_size)
    assert found.codes.size == ROWS * WIDTH * form.bits // 8
    codes = found.codes.view(np.uint32).reshape(ROWS, -1)
    biases = None if found.biases is None else found.biases.reshape(groups)
    numbers = expanded(codes, found.scales.reshape(groups), biases, form)
    assert np.array_equal(numbers, reference(rows, kind))


AFFINE = {**EXACT_IN_F32, **{name: form for name, form in REPACKED.items() if form.mode == "affine"}}


@pytest.mark.parametrize("name", AFFINE)
def test_affine_form_with_wide_scales_is_exact(name: str) -> None:
    kind = BLOCK_TYPES[name]
    form = AFFINE[name]
    rows = random_rows(kind, ROWS, WIDTH)
    found = packed(mx.array(rows), kind)
    numbers = expanded(found.codes, found.scales, found.biases, form)
    assert np.array_equal(numbers, reference(rows, kind))


def test_the_documentation_has_the_table_of_these_types() -> None:
    page = block_table.PAGE.read_text(encoding="utf-8")
    assert block_table.section(page) == block_table.table(), "run python -m tests.support.block_table"


def test_nvfp4_scales_are_read_without_sign() -> None:
    kind = BLOCK_TYPES["nvfp4"]
    every = np.arange(255, dtype=np.uint8)
    rows = random_rows(kind, 1, 64 * 64)
    blocks = rows.reshape(-1, kind.nbytes)
    blocks[:, :4] = np.append(every, 0).reshape(64, 4)
    found = repacked(rows.tobytes(), kind)
    numbers = expanded(
        found.codes.view(np.uint32).reshape(1, -1), found.scales.reshape(1, -1), None, REPACKED["nvfp4"]
    )
    assert np.array_equal(numbers, reference(rows, kind))


@ALL
@pytest.mark.parametrize("bits", [0x7C00, 0xFC00, 0x7E01])
def test_a_scale_that_is_no_number_is_found(kind: BlockType, bits: int) -> None:
    rows = random_rows(kind, 1, 20 * kind.weights)
    assert first_not_finite(rows.tobytes(), kind) is None
    block = rows.reshape(-1, kind.nbytes)[13]
    raw = np.array([bits], np.uint16).view(np.uint8)
    if kind.name == "iq1_m":
        for place in range(4):
            block[49 + 2 * place] = block[49 + 2 * place] & 15 | (bits >> 4 * place & 15) << 4
    elif kind.name in ("mxfp4", "nvfp4"):
        block[0] = 255
    else:
        at = next(at for at in range(0, kind.nbytes - 1, 2) if _is_scale(rows, kind, at))
        block[at : at + 2] = raw
    assert not np.isfinite(reference(rows, kind)).all() or kind.name in ("mxfp4", "nvfp4")
    assert first_not_finite(rows.tobytes(), kind) == 13
    if kind.name in REPACKED:
        with pytest.raises(NotFinite) as caught:
            repacked(rows.tobytes(), kind)
        assert caught.value.block == 13


def _is_scale(rows: np.ndarray, kind: BlockType, at: int) -> bool:
    """Does the block's value become no number when these two bytes are infinity?"""
    block = rows.reshape(-1, kind.nbytes)[:1].copy()
    block[0, at : at + 2] = np.array([0x7C00], np.uint16).view(np.uint8)
    return not np.isfinite(reference(block, kind)).all()


def test_a_scale_that_outgrows_the_form_is_refused() -> None:
    kind = BLOCK_TYPES["q8_0"]
    rows = random_rows(kind, 1, 64, size=0.0)
    rows.reshape(-1, kind.nbytes)[1, :2] = np.array([600], np.float16).view(np.uint8)
    with pytest.raises(NotFinite) as caught:
        repacked(rows.tobytes(), kind)
    assert caught.value.block == 1


def test_another_thread_than_the_importing_one_decodes() -> None:
    """As a model's own does. In a process of its own: what once was computed hides where it was made."""
    code = """
import threading, mlx.core as mx
from runtime.blocks.decode import decoded, packed
from runtime.blocks.types import BLOCK_TYPES

def decode():
    for kind in BLOCK_TYPES.values():
        if kind.packed:
            mx.eval(decoded(mx.zeros((2, 512 // kind.weights * kind.nbytes), mx.uint8), kind))
    print("done")

thread = threading.Thread(target=decode)
thread.start()
thread.join()
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stdout == "done\n", ran.stderr
