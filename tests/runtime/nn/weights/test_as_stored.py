"""Where products read weights as they are stored, nothing else reads those weights.

Every family's 16-bit checkpoint is loaded for such a device, and then the matrices that stay as they are
stored become NaN: only a column of operations that was told their numbers beforehand can compute with them.
So the answers are those of float32 weights, or something read a matrix by itself.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten

from runtime.loaded import LoadedModel
from runtime.loading.forecast import foresee
from runtime.nn.operations import ops, signatures
from runtime.nn.weights.as_stored import read_as_stored
from runtime.nn.weights.embedding_types import set_embedding_types
from runtime.weights.fit import fit
from runtime.weights.holding import Holding, fill, held_bytes, weight_bytes
from tests.support.half import WIDE, Half
from tests.support.parity import Reference, full_logits

DEVICE = replace(WIDE, fast_quantized=True, as_stored=True)
FLOATS = (mx.float32, mx.bfloat16, mx.float16)


class Told:
    """A column of operations that computes with the float32 twins of some modules."""

    def __init__(self) -> None:
        self._known = ops.COLUMNS["blas"]
        self._twins: dict[int, Any] = {}

    def column(self) -> signatures.Operations:
        def read(name: str) -> Callable[..., mx.array]:
            known = getattr(self._known, name)
            return lambda module, *rest: known(self._twins.get(id(module), module), *rest)

        products = {name: read(name) for name in ("linear", "embed", "gather", "by_heads")}
        return ops.changed(self._known, name="cpu", **products)

    def hide(self, network: nn.Module) -> int:
        """Tell the numbers of the matrices that stay as they are stored, and put NaN in their place. Returns
        how many there were.
        """
        hidden = 0
        for module in network.modules():
            if not read_as_stored(module) or id(module) in self._twins:  # one may stand in two places
                continue
            twin: Any = nn.Module.__new__(type(module))
            vars(twin).update(vars(module))
            for name, array in module.items():
                twin[name] = array.astype(mx.float32) if array.dtype in FLOATS else array
            self._twins[id(module)] = twin
            name = "scales" if "scales" in module else "weight"
            stored = module[name]
            wrong = mx.full(stored.shape, 255, mx.uint8) if stored.dtype == mx.uint8 else None
            module[name] = mx.full(stored.shape, float("nan"), stored.dtype) if wrong is None else wrong
            hidden += 1
        return hidden


@contextmanager
def told() -> Generator[Told]:
    column = Told()
    with ops.using(column.column()):
        yield column


BUILDS = ("deepseek_v3", "gemma3n", "gpt_oss", "llama", "qwen3_5_moe", "t5", "zamba2")
"""Latent attention, tables of every layer, biased experts, ties, states, an encoder, shared blocks."""


def one_of_each_type() -> Iterator[Any]:
    """One entry of each model type; all of them, where slow tests run too."""
    seen: set[str] = set()
    for name in Reference.names():
        kind = Reference(name).record["config"]["model_type"]
        yield pytest.param(name, marks=[pytest.mark.slow] if kind in seen else [])
        seen.add(kind)


def one_of_each_build() -> Iterator[Any]:
    """Of families that are put together alike, one; all of them, where slow tests run too."""
    for name in Reference.names():
        yield pytest.param(name, marks=[] if name in BUILDS else [pytest.mark.slow])


def check_types(network: nn.Module) -> None:
    """Nothing is 16 bits wide but what products read."""
    for path, module in network.named_modules():
        for name, array in module.items():
            if isinstance(array, mx.array) and array.dtype in FLOATS:
                kept = read_as_stored(module) and name in ("weight", "scales", "biases")
                assert kept or array.dtype == mx.float32, f"{path}.{name} is {array.dtype}"


@pytest.mark.parametrize("name", list(one_of_each_type()))
def test_sixteen_bits_are_read_by_products_alone(name: str, tmp_path: Path) -> None:
    half = Half(name, "bf16")
    with ops.using("blas"):
        wanted = full_logits(half.load(tmp_path), half.ids)
    with told() as column:
        model = half.read(tmp_path, on=DEVICE)
        check_types(model.network)
        record = half.reference.record
        tensors = {name: ("BF16", tuple(shape)) for name, shape in record["tensors"].items()}
        assert foresee(record["config"], tensors, on=DEVICE).weight_bytes == model.weight_bytes
        assert column.hide(model.network)
        got = full_logits(model, half.ids)
    assert np.allclose(got, wanted, rtol=0, atol=1e-4 * float(np.abs(wanted).max()))


@pytest.mark.parametrize("name", list(one_of_each_build()))
def test_packed_matrices_are_read_by_products_alone(name: str, tmp_path: Path) -> None:
    half = Half(name, "bf16")
    model = half.load(tmp_path)
    tensors = packed(model.network)
    with ops.using("blas"):
        plain = filled(name, model, dict(tensors), Holding(mx.float32, expands=lambda _: True))
        wanted = full_logits(plain, half.ids)
    with told() as column:
        holding = Holding(
            mx.float32, as_stored=read_as_stored, expands=lambda module: not read_as_stored(module)
        )
        kept = filled(name, model, dict(tensors), holding)
        check_types(kept.network)
        column.hide(kept.network)
        got = full_logits(kept, half.ids)
    # A product of packed and one of expanded weights round differently.
    assert np.abs(got - wanted).max() < 1e-3 * max(1.0, float(np.abs(wanted).max()))


def packed(network: nn.Module) -> dict[str, mx.array]:
    """The parameters of a network, matrices packed where their rows are whole groups."""
    tensors: dict[str, mx.array] = dict(tree_flatten(network.parameters()))
    for path, module in network.named_modules():
        name = f"{path}.weight"
        if hasattr(module, "to_quantized") and name in tensors and tensors[name].shape[-1] % 32 == 0:
            stored = tensors.pop(name).astype(mx.bfloat16)
            names = (f"{path}.{leaf}" for leaf in ("weight", "scales", "biases"))
            tensors |= dict(zip(names, mx.quantize(stored, 32, 8), strict=True))
    return tensors


def filled(name: str, model: LoadedModel, tensors: dict[str, mx.array], holding: Holding) -> LoadedModel:
    """The same model with these tensors in its network."""
    network = model.described.family.build(model.described.config)
    fit(network, tensors, {})
    foreseen = held_bytes(network, tensors, holding)
    fill(network, tensors, holding)
    network.eval()
    assert foreseen == weight_bytes(network)
    set_embedding_types(network)
    return Reference(name).reading(replace(model, network=network))


def test_without_kernels_nothing_stays(tmp_path: Path) -> None:
    half = Half("llama", "bf16")
    for column in ("blas", "plain"):
        with ops.using(column):
            model = half.load(tmp_path, on=DEVICE)
            held: dict[str, mx.array] = dict(tree_flatten(model.network.parameters()))
            assert {array.dtype for array in held.values()} == {mx.float32}
