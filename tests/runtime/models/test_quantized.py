"""Every family runs from 8-bit weights in MLX's layout, and answers as from the same weights unpacked."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.cpu import native
from runtime.loading.load import load_model
from runtime.models.registry.described import find_family
from runtime.models.registry.names import module_name
from tests.support.checkpoints import random_state
from tests.support.parity import Reference, full_logits

GROUP = 32
BAR = 1e-3  # of the logits' spread
TIMES_SENSITIVITY = 250
"""Kernels round activations to 16 bits, which moves answers as far as a network's conditioning has it: 35 to
130 times as far as weights do that move by their last bit."""
NEAR_TIES = ("jamba",)
"""Two experts of one token are closer than that, and all that follows it remembers."""


def one_of_each() -> list[str]:
    """The first reference of every architecture file."""
    found: dict[str, str] = {}
    for name in Reference.names():
        found.setdefault(str(module_name(Reference(name).record["config"])), name)
    return sorted(found.values())


def packed_and_plain(reference: Reference) -> tuple[dict[str, mx.array], dict[str, mx.array]]:
    """The checkpoint with its plain matrices packed, and with the same values unpacked.

    Packed are matrices that `adapt` hands on as they are, to modules that can be quantized; not routers,
    which `create` never packs.
    """
    config = reference.record["config"]
    family = find_family(config)
    parsed = family.parse(config)
    modules = dict(family.build(parsed).named_modules())
    plain = {name: mx.array(array) for name, array in random_state(reference.record["tensors"]).items()}
    paths = {id(array): name for name, array in family.adapt(parsed, dict(plain)).items()}
    packed: dict[str, mx.array] = {}
    for name, array in list(plain.items()):
        module = modules.get(paths.get(id(array), "").removesuffix(".weight"))
        fits = array.ndim == 2 and array.shape[-1] % GROUP == 0 and ".router." not in name
        if not (name.endswith(".weight") and fits and hasattr(module, "to_quantized")):
            packed[name] = array
            continue
        weight, scales, biases = mx.quantize(array, GROUP, 8)
        stem = name.removesuffix("weight")
        packed |= {name: weight, f"{stem}scales": scales, f"{stem}biases": biases}
        plain[name] = mx.dequantize(weight, scales, biases, GROUP, 8)
    return packed, plain


@contextmanager
def float_activations() -> Generator[None]:
    before = native.kernels.activations()
    native.kernels.use_activations("f32")
    try:
        yield
    finally:  # a test that fails in it would leave them to all behind it
        native.kernels.use_activations(before)


@pytest.mark.parametrize("name", one_of_each())
def test_eight_bits(name: str, tmp_path: Path) -> None:
    reference = Reference(name)
    packed, plain = packed_and_plain(reference)
    assert any(key.endswith(".scales") for key in packed)
    config: dict[str, Any] = reference.record["config"]
    quantized = {**config, "quantization": {"group_size": GROUP, "bits": 8, "mode": "affine"}}

    def logits(tensors: dict[str, mx.array], config: dict[str, Any]) -> np.ndarray:
        path = tmp_path / "model.safetensors"
        mx.save_safetensors(str(path), tensors)
        model = reference.reading(load_model(config, [path]))
        return full_logits(model, reference.answers["ids"])

    wanted, got = logits(plain, config), logits(packed, quantized)
    if name not in NEAR_TIES:
        bar = max(BAR, TIMES_SENSITIVITY * reference.record["sensitivity"])
        assert abs(got - wanted).max() < bar * reference.answers["std"]
    if native.kernels is not None:
        with float_activations():
            assert (logits(packed, quantized) == wanted).all()
