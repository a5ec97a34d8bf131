"""Weights that are GGUF's blocks: of every family, kernels compute with them what they stand for."""

import re
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.blocks.decode import decoded
from runtime.blocks.types import BLOCK_TYPES
from runtime.cpu import native
from runtime.device import Device
from runtime.loading.load import load_model
from runtime.nn.operations import ops
from runtime.trunks.pruned import NEVER
from tests.support.checkpoints import random_state
from tests.support.kinds import variants_later
from tests.support.parity import Reference, scales_head
from tests.support.same_bits import one_by_one

pytestmark = pytest.mark.skipif(native.kernels is None, reason=f"no kernels: {native.status.reason}")
KERNELS = Device("cpu", "made up", 0, 1 << 40, "float32", fast_quantized=True, cores=1, as_stored=True)
KIND = BLOCK_TYPES["iq4_nl"]  # blocks of 32: the matrices of small networks have them, too
VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])
BORDERS = ((VALUES[1:] + VALUES[:-1]) / 2).astype(np.float32)
LENGTH = 10
INPUT_FIRST = re.compile(r"\.c_(attn|proj|fc)\.").search  # of GPT-2: GGUF has them turned round


def blocks(weight: np.ndarray) -> np.ndarray:
    """The nearest blocks, roughly."""
    parts = weight.reshape(-1, 32).astype(np.float32)
    scales = (np.abs(parts).max(1, keepdims=True) / 120).astype(np.float16)
    codes = np.searchsorted(BORDERS, parts / np.maximum(scales, 1e-7)).astype(np.uint8)
    packed = np.concatenate([scales.view(np.uint8), codes[:, :16] | codes[:, 16:] << 4], 1)
    return packed.reshape(*weight.shape[:-1], -1)


_EXPERT = re.compile(r"\.(?:chunk_)?experts\.\d+\.")
"""One of a stack."""


@pytest.mark.parametrize("name", variants_later(Reference.names()))
def test_logits_are_those_of_the_numbers(name: str) -> None:
    reference = Reference(name)
    config = dict(reference.record["config"])
    stored = {key: mx.array(array) for key, array in random_state(reference.record["tensors"]).items()}
    floats, entries = dict(stored), dict[str, Any]()
    for key, array in floats.items():
        if key == "lm_head.weight" and scales_head(config):
            continue
        if key.endswith(".weight") and array.ndim > 1 and not array.shape[-1] % 32 and not INPUT_FIRST(key):
            stored[key] = mx.array(blocks(np.array(array, np.float32)))
            floats[key] = decoded(stored[key], KIND).astype(array.dtype)
            entries[key.removesuffix(".weight")] = {"mode": "gguf", "type": KIND.name}
    assert entries
    row = [int(token) for token in reference.answers["ids"][:LENGTH]]
    with ops.using("cpu"):
        wanted = one_by_one(reference.reading(load_model(config, floats)), row)
        model = reference.reading(load_model({**config, "quantization": entries}, stored, on=KERNELS))
        got = one_by_one(model, row)
    kept = [module for module in model.network.modules() if "blocks" in vars(module)]
    apart = {_EXPERT.sub(".", entry) for entry in entries}
    assert len(kept) >= len(apart) / 2, "most stay as they are"
    known = wanted > NEVER
    assert np.abs(got - wanted).max() < 1e-2 * wanted[known].std()
