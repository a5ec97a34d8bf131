"""Tensors -> modules. Names and shapes are compared before anything is allocated.

MLX arrays are lazy: a network built from a config, a checkpoint opened by name, and every rename or cast
between them cost no memory until evaluated. So one and the same path checks (with placeholders) and loads
(with files). What is made of the tensors then is `holding`'s.
"""

from collections.abc import Mapping
from copy import copy
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from runtime.errors import UnsupportedModel, WeightMismatch
from runtime.quoting import quoted
from runtime.weights.packing import MODES, Packing, stored_packing


def fit(network: nn.Module, weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> None:
    """Make the network's modules quantized where the tensors are, then compare every name and shape.

    weights: under the network's own names; lazy arrays or placeholders, nothing is read. Raises
    WeightMismatch.
    """
    _check_quantization(config)
    problems = _quantize_modules(network, weights) + _compare(network, weights)
    if problems:
        raise WeightMismatch(sorted(problems))


def _check_quantization(config: Mapping[str, Any]) -> None:
    """Raise UnsupportedModel for a mode that MLX does not have, whose tensors could look like another's, and
    for what matrices read rounded to their own mode (mlx-lm's `QQLinear`), which gives other numbers.
    """
    if config.get("quantize_activations"):
        raise UnsupportedModel(
            "config.json: quantize_activations is set, and activations are not rounded here. Without it the "
            "same weights run with activations as they are"
        )
    block = config.get("quantization") or config.get("quantization_config")
    entries = [block, *block.values()] if isinstance(block, Mapping) else []
    for entry in entries:
        if isinstance(entry, Mapping) and entry.get("mode", "affine") not in MODES:
            raise UnsupportedModel(
                f"config.json: the quantization mode {quoted(entry['mode'])} is not one of {', '.join(MODES)}"
            )


def _quantize_modules(network: nn.Module, fitted: Mapping[str, mx.array]) -> list[str]:
    """Replace the modules that have scales by quantized ones of the right shapes. Returns problems."""
    modules = dict(network.named_modules())
    alike: dict[Any, nn.Module] = {}
    problems: list[str] = []
    for path in [name.removesuffix(".scales") for name in fitted if name.endswith(".scales")]:
        module, weight = modules.get(path), fitted.get(f"{path}.weight")
        if module is None or weight is None or not hasattr(module, "to_quantized"):
            continue  # reported as a surplus tensor
        width = module["weight"].shape[-1]
        scales, biases = fitted[f"{path}.scales"], fitted.get(f"{path}.biases")
        packing = stored_packing(width, weight, scales, biases)
        if packing is None:
            problems.append(
                f"{path} has rows of {width} elements, which no mode packs into {_show(weight)} codes "
                f"and {_show(scales)} scales of {scales.dtype}"
            )
        else:
            replace_module(network, path, _quantized(module, packing, alike))
    return problems


def width_problems(network: nn.Module, widths: Mapping[str, int]) -> list[str]:
    """A sentence for each packed matrix whose rows have another length than somebody believes. widths: by the
    names of their codes; those that the network has under other names are passed over.
    """
    modules: dict[str, Any] = {f"{path}.weight": module for path, module in network.named_modules()}
    packed = {path: modules[path] for path in widths if getattr(modules.get(path), "bits", None)}
    found = {path: module["weight"].shape[-1] * 32 // module.bits for path, module in packed.items()}
    return [
        f"{path} is packed in {packed[path].bits} bits in groups of {packed[path].group_size}, and "
        f"config.json says otherwise: its rows would have {widths[path]} numbers, and have {width}"
        for path, width in found.items()
        if width != widths[path]
    ]


def _quantized(module: Any, packing: Packing, alike: dict[Any, nn.Module]) -> nn.Module:
    """The module that takes tensors packed so. alike: those made before. MLX's own makes numbers and packs
    them first, ten times what a copy of one for a matrix of the same shape takes.
    """
    key = type(module), module["weight"].shape, "bias" in module, packing
    made = alike.get(key)
    if made is None:
        made = module.to_quantized(packing.group_size, packing.bits, mode=packing.mode)
        if type(module) in (nn.Linear, nn.Embedding):  # others may hold what belongs to one place
            alike[key] = made
        return made
    twin = type(made).__new__(type(made))
    dict.update(twin, made)
    vars(twin).update({name: copy(value) for name, value in vars(made).items()})
    return twin


def replace_module(network: nn.Module, path: str, module: nn.Module) -> None:
    """Put a module in the place of the one at `path`."""
    *parents, last = path.split(".")
    holder: Any = network
    for part in parents:
        holder = holder[int(part)] if part.isdigit() else holder[part]
    if last.isdigit():
        holder[int(last)] = module
    else:
        holder[last] = module


def parameters_of(network: nn.Module) -> dict[str, mx.array]:
    """All that it holds, by name."""
    return dict(tree_flatten(network.parameters()))  # pyright: ignore[reportCallIssue, reportArgumentType] -- pairs unless a destination is given


def _compare(network: nn.Module, fitted: Mapping[str, mx.array]) -> list[str]:
    expected = parameters_of(network)
    problems = [
        f"{name} is missing, expected shape {_show(array)}"
        for name, array in expected.items()
        if name not in fitted
    ]
    for name, array in fitted.items():
        wanted = expected.get(name)
        if wanted is None:
            problems.append(f"{name} belongs to no module of this architecture")
        elif wanted.shape != array.shape:
            problems.append(f"{name} has shape {_show(array)}, expected {_show(wanted)}")
        elif _kind(wanted) != _kind(array):
            problems.append(f"{name} has dtype {_kind(array)}, expected {_kind(wanted)}")
    return problems


def _kind(array: mx.array) -> str:
    """All floats are one kind: whole numbers and truth values are no weights."""
    return "float" if mx.issubdtype(array.dtype, mx.floating) else str(array.dtype).removeprefix("mlx.core.")


def _show(array: mx.array) -> str:
    return "×".join(str(dim) for dim in array.shape) or "scalar"
