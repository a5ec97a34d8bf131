"""Tensors -> modules. Names and shapes are compared before anything is allocated.

MLX arrays are lazy: a network built from a config, a checkpoint opened by name, and every rename or cast
between them cost no memory until evaluated. So one and the same path checks (with placeholders) and loads
(with files). What is made of the tensors then is `runtime.holding`'s.

Callers hand over only files whose headers have been validated: MLX itself reads out of bounds on hostile
ones.
"""

from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from runtime.errors import UnsupportedModel, WeightMismatch
from runtime.quoting import quoted
from runtime.records import dataclass

# safetensors' dtype names -> MLX dtypes; F8 types travel as bytes. MLX reads no F64.
DTYPES: dict[str, mx.Dtype] = {
    "F32": mx.float32,
    "F16": mx.float16,
    "BF16": mx.bfloat16,
    "I64": mx.int64,
    "I32": mx.int32,
    "I16": mx.int16,
    "I8": mx.int8,
    "U64": mx.uint64,
    "U32": mx.uint32,
    "U16": mx.uint16,
    "U8": mx.uint8,
    "BOOL": mx.bool_,
    "F8_E4M3": mx.uint8,
    "F8_E8M0": mx.uint8,
}

_MICROSCALED = {(4, 32): "mxfp4", (8, 32): "mxfp8", (4, 16): "nvfp4"}  # by bits and group size
_MODES = ("affine", *_MICROSCALED.values(), "gguf")


@dataclass(frozen=True, slots=True)
class Packing:
    """How one quantized module is stored."""

    bits: int
    """Per code."""
    group_size: int
    """Elements of a row that share a scale."""
    mode: str
    """MLX's quantization mode."""


def is_utf8(path: Path) -> bool:
    """Do MLX and the kernels take a file's name? They want text, and a name may have bytes that are none."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def load_file(path: Path) -> dict[str, mx.array]:
    """The tensors of a safetensors file, not read yet where its name `is_utf8`."""
    if is_utf8(path):
        loaded = mx.load(str(path), format="safetensors")  # lazy: what is mapped is not read
    else:
        with path.open("rb") as file:
            loaded = mx.load(file, format="safetensors")
    assert isinstance(loaded, dict)
    return loaded


def dtype_problems(tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> list[str]:
    """A sentence for each tensor of a type that MLX does not read; tensors: name -> (type, shape)."""
    odd = ((name, dtype) for name, (dtype, _) in sorted(tensors.items()) if dtype not in DTYPES)
    return [f"{name} has dtype {dtype}, which is not read" for name, dtype in odd]


def fit(network: nn.Module, weights: Mapping[str, mx.array], config: Mapping[str, Any]) -> None:
    """Make the network's modules quantized where the tensors are, then compare every name and shape.

    weights: under the network's own names; lazy arrays or placeholders, nothing is read. Raises
    WeightMismatch.
    """
    _check_quantization(config)
    problems = _quantize_modules(network, weights) + _compare(network, weights)
    if problems:
        raise WeightMismatch(sorted(problems))


def stored_packing(width: int, weight: mx.array, scales: mx.array, biases: mx.array | None) -> Packing | None:
    """How a matrix of `width` columns is packed, told by its tensors' shapes; None: no way that MLX has.

    The shapes say it all, and names in config.json's `quantization` block may be those of a wrapper.
    """
    if not weight.shape or not scales.shape or not scales.shape[-1]:
        return None
    if width % scales.shape[-1] or weight.shape[-1] * 32 % width:
        return None
    bits, group = weight.shape[-1] * 32 // width, width // scales.shape[-1]
    if biases is not None:
        good = bits in (1, 2, 3, 4, 5, 6, 8) and group in (32, 64, 128) and scales.dtype != mx.uint8
        return Packing(bits, group, "affine") if good else None
    mode = _MICROSCALED.get((bits, group)) if scales.dtype == mx.uint8 else None
    return Packing(bits, group, mode) if mode else None


def unpacked(
    codes: mx.array,
    scales: mx.array,
    biases: mx.array | None,
    packing: Packing,
    dtype: mx.Dtype | None,
    order: mx.array | None = None,
) -> mx.array:
    """The matrix that packed tensors stand for, in `dtype` (None: that of affine scales). order: that in
    which its columns are packed (`runtime.nn.weights.act_order`); they come out in that of its inputs.

    Affine: code * scale + bias is computed in the type of the scales, so they are widened first. What
    microscaled codes stand for needs no such care: at most 6 significant bits (a 2-bit code times a 4-bit
    scale in nvfp4; a power of two elsewhere) fit any float.
    """
    if dtype is not None and biases is not None:
        scales, biases = scales.astype(dtype), biases.astype(dtype)
    bits, group, mode = packing.bits, packing.group_size, packing.mode
    found = mx.dequantize(codes, scales, biases, group_size=group, bits=bits, mode=mode, dtype=dtype)
    return found if order is None else as_they_come(found, order)


def as_they_come(numbers: mx.array, order: mx.array) -> mx.array:
    """[..., out, in] whose columns lie in an order [..., in], with columns where their inputs are."""
    back = mx.argsort(order, axis=-1)[..., None, :]
    return mx.take_along_axis(numbers, mx.broadcast_to(back, numbers.shape), axis=-1)


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
        if isinstance(entry, Mapping) and entry.get("mode", "affine") not in _MODES:
            raise UnsupportedModel(
                f"config.json: the quantization mode {quoted(entry['mode'])} is none of {', '.join(_MODES)}"
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


def _flat(network: nn.Module) -> list[tuple[str, mx.array]]:
    return tree_flatten(network.parameters())  # pyright: ignore[reportReturnType] -- pairs unless a destination is given


def _compare(network: nn.Module, fitted: Mapping[str, mx.array]) -> list[str]:
    expected = dict(_flat(network))
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
