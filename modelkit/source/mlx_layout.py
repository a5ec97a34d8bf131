"""Weights that are quantized in MLX's own layout: codes in `X.weight`, `X.scales`, `X.biases`; in packages of
ours perhaps the order in which its inputs lie, `X.order`.

The tensors say which modules are packed, config.json's `quantization` block says how. MLX multiplies
without looking at the shapes of scales and biases, so a triplet that does not fit reads foreign memory.
Invariant: every module in `MlxWeights.packed` has tensors of exactly the dtypes and shapes its packing takes.
"""

import math
from collections.abc import Mapping
from dataclasses import field, replace

from modelkit.errors import MalformedFile, SourceError
from modelkit.source.codes.value import CodeMatrix
from modelkit.source.inventory import Inventory
from modelkit.source.mlx_block import FACTOR, MlxQuantization, Packing, read_mlx_block
from modelkit.source.tensor import FLOATS, TensorInfo
from runtime.blocks.types import BlockType
from runtime.records import dataclass

_LARGEST = 6.0 * 448.0
"""Of a code times a scale."""


@dataclass(frozen=True, slots=True)
class MlxWeights:
    """Weights as MLX packs them."""

    quantization: MlxQuantization
    packed: Mapping[str, Packing]
    """How each quantized module (the X of `X.weight`) is packed."""
    blocks: Mapping[str, BlockType] = field(default_factory=dict)
    """The modules that are kept in GGUF's blocks, uint8 [..., rows, bytes of a row]."""
    factored: Mapping[str, CodeMatrix] = field(default_factory=dict)
    """The modules of NVFP4 with a factor for each matrix, which are none of the packed ones."""
    ordered: frozenset[str] = frozenset()
    """Those of the packed modules whose inputs lie in an order (`runtime.nn.weights.act_order`)."""


def read_mlx_weights(inventory: Inventory) -> MlxWeights | None:
    """None when nothing is packed this way.

    Raises SourceError when config and tensors disagree, MalformedFile when a tensor of a triplet is missing
    or does not fit the others, UnsupportedSource for bits, groups or modes that MLX has not.
    """
    tensors, origin = inventory.tensors, inventory.origin
    modules = _packed_modules(tensors)
    bytewise = [name for name, tensor in tensors.items() if name.endswith(".weight") and tensor.dtype == "U8"]
    if not modules and not bytewise:
        return None
    quantization = read_mlx_block(inventory.config, origin)
    if quantization is None and not modules:
        return None  # `foreign` knows who else packs into bytes
    if quantization is None:
        raise SourceError(
            f"{origin}: `{modules[0]}.weight` is packed, and no `quantization` block in config.json says how",
            hint="Take config.json from where the weights came from.",
        )
    packed = {module: _stated(quantization, module, origin) for module in modules}
    for module, packing in packed.items():
        _check_triplet(module, packing, tensors, origin)
    factored = {
        module: _with_factor(module, packing, tensors, origin)
        for module, packing in packed.items()
        if f"{module}.{FACTOR}" in tensors
    }
    blocks = {name.removesuffix(".weight"): tensors[name] for name in bytewise}
    for module, tensor in blocks.items():
        _check_blocks(tensor, quantization.blocks.get(module), origin)
    _check_rest(quantization, packed, tensors, origin)
    ordered = frozenset(module for module in packed if f"{module}.order" in tensors)
    kept = {module: quantization.blocks[module] for module in blocks}
    plain = {module: packing for module, packing in packed.items() if module not in factored}
    return MlxWeights(quantization, plain, kept, factored, ordered)


def _with_factor(module: str, packing: Packing, tensors: Mapping[str, TensorInfo], origin: str) -> CodeMatrix:
    """MLX says of each matrix what its largest number is: that of the largest code and scale."""
    weight, scales, factor = (tensors[f"{module}.{part}"] for part in ("weight", "scales", FACTOR))
    shape = (*weight.shape[:-1], weight.shape[-1] * 32 // packing.bits)
    wanted = math.prod(weight.shape[:-2])
    if packing.mode != "nvfp4" or factor.dtype != "F32" or math.prod(factor.shape) != wanted:
        raise MalformedFile(
            f"{origin}: `{factor.name}` is {factor.dtype} {list(factor.shape)}; beside {packing.mode} "
            f"{list(weight.shape)} "
            + (f"F32 [{wanted}] was expected" if packing.mode == "nvfp4" else "there is none")
        )
    codes = replace(weight, dtype="U8", shape=(*weight.shape[:-1], 4 * weight.shape[-1]))
    return CodeMatrix(
        weight.name,
        shape,
        "nvfp4",
        packing.bits,
        packing.group_size,
        codes,
        scales,
        factor=factor,
        largest=_LARGEST,
    )


def _check_blocks(weight: TensorInfo, kind: BlockType | None, origin: str) -> None:
    if kind is None:
        raise SourceError(f"{origin}: `{weight.name}` is packed, and config.json does not say how")
    if len(weight.shape) < 2 or 0 in weight.shape or weight.shape[-1] % kind.nbytes:
        raise MalformedFile(
            f"{origin}: `{weight.name}` has shape {list(weight.shape)}; rows of whole {kind.name.upper()} "
            f"blocks of {kind.nbytes:,} bytes were expected"
        )


def _packed_modules(tensors: Mapping[str, TensorInfo]) -> list[str]:
    """The modules with 32-bit codes in `.weight` and a `.scales` beside it."""
    modules = (name.removesuffix(".scales") for name in tensors if name.endswith(".scales"))
    weights = ((module, tensors.get(f"{module}.weight")) for module in modules)
    return [module for module, weight in weights if weight is not None and weight.dtype == "U32"]


def _stated(quantization: MlxQuantization, module: str, origin: str) -> Packing:
    packing = quantization.module_format(module)
    if packing is None:
        raise SourceError(f"{origin}: config.json says that `{module}` is not quantized, and it has scales")
    return packing


def _check_triplet(module: str, packing: Packing, tensors: Mapping[str, TensorInfo], origin: str) -> None:
    weight, scales, biases, order = (
        tensors.get(f"{module}.{part}") for part in ("weight", "scales", "biases", "order")
    )
    assert weight is not None
    assert scales is not None
    expected = _scales_shape(weight, packing, origin)
    affine = packing.mode == "affine"
    _check_companion(scales, expected, FLOATS if affine else ("U8",), weight, packing, origin)
    if biases is not None and affine:
        _check_companion(biases, expected, (scales.dtype,), weight, packing, origin)
    elif affine:
        raise MalformedFile(f"{origin}: `{weight.name}` is packed as affine and has no `{module}.biases`")
    elif biases is not None:
        raise MalformedFile(f"{origin}: `{weight.name}` is packed as {packing.mode}, and has `{biases.name}`")
    if order is not None:
        inputs = (*weight.shape[:-2], expected[-1] * packing.group_size)
        _check_companion(order, inputs, ("U32",), weight, packing, origin)


def _scales_shape(weight: TensorInfo, packing: Packing, origin: str) -> tuple[int, ...]:
    """The shape that scales (and biases) of `weight` must have: one number per group of codes of a row."""
    row_bits = 32 * weight.shape[-1] if len(weight.shape) >= 2 else 0
    groups, rest = divmod(row_bits, packing.bits * packing.group_size)
    if groups == 0 or rest:
        raise MalformedFile(
            f"{origin}: `{weight.name}` has shape {list(weight.shape)}; rows of 32-bit words that hold whole "
            f"groups of {packing.group_size} codes of {packing.bits} bits were expected"
        )
    return (*weight.shape[:-1], groups)


def _check_companion(
    found: TensorInfo,
    shape: tuple[int, ...],
    dtypes: tuple[str, ...],
    weight: TensorInfo,
    packing: Packing,
    origin: str,
) -> None:
    if found.shape != shape or found.dtype not in dtypes:
        raise MalformedFile(
            f"{origin}: `{found.name}` is {found.dtype} {list(found.shape)}; `{weight.name}` "
            f"{list(weight.shape)} at {packing.bits} bits in groups of {packing.group_size} takes "
            f"{' or '.join(dtypes)} {list(shape)}"
        )


def _check_rest(
    quantization: MlxQuantization,
    packed: Mapping[str, Packing],
    tensors: Mapping[str, TensorInfo],
    origin: str,
) -> None:
    """No module is half quantized: stated but not packed, or packed without scales."""
    for module in quantization.blocks:
        if f"{module}.weight" in tensors and tensors[f"{module}.weight"].dtype != "U8":
            raise SourceError(
                f"{origin}: config.json says that `{module}` is kept in GGUF's blocks, and it is "
                f"{tensors[f'{module}.weight'].dtype}"
            )
    for module, packing in quantization.per_module.items():
        if packing is not None and module not in packed and f"{module}.weight" in tensors:
            raise SourceError(
                f"{origin}: config.json says that `{module}` is quantized, and it has no scales"
            )
    for name, tensor in tensors.items():
        if name.endswith(".weight") and tensor.dtype == "U32" and name.removesuffix(".weight") not in packed:
            raise MalformedFile(f"{origin}: `{name}` holds packed codes (U32) and has no scales beside it")
