"""FP8 weights with one scale per block of 128 x 128, as DeepSeek and Qwen publish them. Every other FP8 is
refused.

A weight `X` (F8_E4M3) has its scales in `X_scale_inv`, or `X_scale`: one number per block, the last blocks of
a row or column possibly smaller. The block size stands in config.json only; weights without it cannot be told
apart from other schemes, so it must be there.
"""

from collections.abc import Mapping
from typing import Any

from modelkit.errors import MalformedFile, UnsupportedSource
from modelkit.source.claims import quantization_blocks
from modelkit.source.display import shown
from modelkit.source.foreign import FLOAT_HINT
from modelkit.source.inventory import Inventory
from modelkit.source.tensor import TensorInfo
from runtime.records import dataclass

BLOCK = (128, 128)
_SCALE_DTYPES = ("F32", "BF16", "F16")
_NOT_E4M3 = {"F8_E5M2": "FP8 E5M2", "F8_E5M2FNUZ": "FP8 E5M2FNUZ", "F8_E4M3FNUZ": "FP8 E4M3FNUZ"}


@dataclass(frozen=True, slots=True)
class BlockFp8Weights:
    """F8_E4M3 weights, one scale for each block."""

    block: tuple[int, int]
    """Its rows and columns."""
    scales: Mapping[str, str]
    """From a weight's name to the name of its scales."""


def read_fp8_weights(inventory: Inventory) -> BlockFp8Weights | None:
    """None when no tensor is FP8.

    Raises UnsupportedSource for other kinds of FP8, MalformedFile when scales do not fit their weight.
    """
    tensors, origin = inventory.tensors, inventory.origin
    for tensor in tensors.values():
        if tensor.dtype in _NOT_E4M3:
            raise UnsupportedSource(
                f"{origin}: `{tensor.name}` is {_NOT_E4M3[tensor.dtype]}", hint=FLOAT_HINT
            )
    weights = [tensor for tensor in tensors.values() if tensor.dtype == "F8_E4M3"]
    if not weights:
        return None
    scales = {weight.name: _scales_of(weight, tensors, origin) for weight in weights}
    _check_block(inventory.config, origin)
    for weight in weights:
        _check_scales(weight, scales[weight.name], origin)
    return BlockFp8Weights(BLOCK, {name: tensor.name for name, tensor in scales.items()})


def _scales_of(weight: TensorInfo, tensors: Mapping[str, TensorInfo], origin: str) -> TensorInfo:
    """The scales of one weight; a weight scaled as a whole, by row, or not at all is another kind of FP8."""
    scales = tensors.get(f"{weight.name}_scale_inv") or tensors.get(f"{weight.name}_scale")
    if scales is None:
        raise UnsupportedSource(
            f"{origin}: `{weight.name}` is FP8 without scales of its own", hint=FLOAT_HINT
        )
    if len(weight.shape) >= 2 and scales.shape != _blocks(weight.shape):
        kind = _coarser(weight.shape, scales.shape)
        if kind:
            raise UnsupportedSource(
                f"{origin}: `{weight.name}` is FP8 with one scale per {kind}; blocks of 128 x 128 are read",
                hint=FLOAT_HINT,
            )
    return scales


def _blocks(shape: tuple[int, ...]) -> tuple[int, ...]:
    rows, columns = shape[-2:]
    return (*shape[:-2], -(-rows // BLOCK[0]), -(-columns // BLOCK[1]))


def _coarser(weight: tuple[int, ...], scales: tuple[int, ...]) -> str | None:
    if all(size == 1 for size in scales):
        return "tensor"
    if scales in (weight[:-1], (*weight[:-1], 1)):
        return "row"
    if scales in (weight[:-2], (*weight[:-2], 1), (*weight[:-2], 1, 1)):
        return "expert"
    return None


def _check_block(config: Mapping[str, Any], origin: str) -> None:
    sizes = [size for _, block in quantization_blocks(config) for size in _block_sizes(block)]
    if not sizes:
        raise UnsupportedSource(
            f"{origin}: the weights are FP8, and config.json gives no block size for their scales",
            hint=FLOAT_HINT,
        )
    for size in sizes:
        if size != list(BLOCK):
            raise UnsupportedSource(
                f"{origin}: FP8 weights in blocks of {shown(repr(size))}; [128, 128] was expected",
                hint=FLOAT_HINT,
            )


def _block_sizes(block: Mapping[str, Any]) -> list[object]:
    """Every block size that one quantization block states (compressed-tensors: one per group of layers)."""
    groups = block.get("config_groups")
    inner = groups.values() if isinstance(groups, Mapping) else ()
    weights = [group.get("weights") for group in inner if isinstance(group, Mapping)]
    stated = [args.get("block_structure") for args in weights if isinstance(args, Mapping)]
    return [size for size in (block.get("weight_block_size"), *stated) if size is not None]


def _check_scales(weight: TensorInfo, scales: TensorInfo, origin: str) -> None:
    if len(weight.shape) not in (2, 3):
        raise UnsupportedSource(
            f"{origin}: `{weight.name}` is FP8 with {len(weight.shape)} dimensions; 2 or 3 are read"
        )
    if scales.dtype not in _SCALE_DTYPES:
        raise UnsupportedSource(
            f"{origin}: `{scales.name}` is {scales.dtype}; {', '.join(_SCALE_DTYPES)} are read"
        )
    if scales.shape != _blocks(weight.shape):
        raise MalformedFile(
            f"{origin}: `{scales.name}` has shape {list(scales.shape)}; `{weight.name}` {list(weight.shape)} "
            f"in blocks of 128 x 128 takes {list(_blocks(weight.shape))}"
        )
