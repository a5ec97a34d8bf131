"""FP8 weights with scales: one per block, as DeepSeek and Qwen publish them; one per row, group of a row or
matrix, as compressed-tensors, FBGEMM, ModelOpt, Quark and AutoRound write them. Every other FP8 is refused.

A weight `X` (F8_E4M3) has its scales in `X_scale_inv`, or `X_scale`; `Y.weight` may have them in `Y.scale`
(DeepSeek V4). The number of a code is what it says times its scale. Tensors alone do not tell what a scale
means, so config.json has to say which tool has made them, or the size of their blocks; where it does not say
that, it is 128 x 128.

Beside FP8 there may be weights in MXFP4: two codes in a byte, the first in its lower half, with a power of
two for each 32 of a row (F8_E8M0), as the experts of DeepSeek V4.

Where MiMo V2.5 has queries, keys and values in one matrix, that is several, one below the other, and the
blocks of each begin anew.

Such files may say, too, by how much activations, keys and values are scaled before they are rounded to FP8.
Nothing is rounded so here, so these scales are of no use.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from modelkit.errors import MalformedFile, UnsupportedSource
from modelkit.source.claims import claimed_method, quantization_blocks
from modelkit.source.foreign import FLOAT_HINT
from modelkit.source.inventory import Inventory
from modelkit.source.tensor import TensorInfo
from runtime.quoting import quoted, shown
from runtime.records import dataclass

Block = tuple[int, int]
BLOCK: Block = (128, 128)
_SCALE_DTYPES = ("F32", "BF16", "F16", "F8_E8M0")
_GROUP = 32
_NOT_E4M3 = {"F8_E5M2": "FP8 E5M2", "F8_E5M2FNUZ": "FP8 E5M2FNUZ", "F8_E4M3FNUZ": "FP8 E4M3FNUZ"}
_METHODS = ("fp8", "compressed-tensors", "fbgemm_fp8", "modelopt", "quark", "auto-round")
_FUSED = ".qkv_proj.weight"
_UNUSED = re.compile(r".*\.(?:(?:input|output|activation|[qkv])_scale|input_scale_ub)")
"""Names of scales that are no weight's."""


@dataclass(frozen=True, slots=True)
class Scales:
    """Of one weight."""

    name: str
    """Of their tensor."""
    block: Block
    """Rows and columns of a matrix that share one; the last ones may be fewer."""
    shares: int = 1
    """Matrices in the tensor, one below the other, whose blocks begin anew."""


@dataclass(frozen=True, slots=True)
class Fp8Weights:
    """F8_E4M3 weights."""

    scales: Mapping[str, Scales]
    """By the weight's name."""
    unused: frozenset[str] = frozenset()
    """Names of the scales of activations, keys and values."""
    packed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Weights in MXFP4, by name, and the names of their scales."""


def read_fp8_weights(inventory: Inventory) -> Fp8Weights | None:
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
    sizes = _sizes(inventory.config, origin)
    shares = _shares(inventory.config)
    scales = {weight.name: _scales_of(weight, tensors, sizes, shares, origin) for weight in weights}
    packed = {name: found for name in tensors if (found := _powers_of(name, tensors, origin)) is not None}
    return Fp8Weights(scales, frozenset(filter(_UNUSED.fullmatch, tensors)), packed)


def _powers_of(name: str, tensors: Mapping[str, TensorInfo], origin: str) -> str | None:
    """The scales of a weight in MXFP4; None where it is none."""
    codes, scales = tensors[name], tensors.get(_beside(name))
    if codes.dtype not in ("I8", "U8") or scales is None or scales.dtype != "F8_E8M0":
        return None
    rows, columns = codes.shape if len(codes.shape) == 2 else (0, 0)
    if not rows or 2 * columns % _GROUP or scales.shape != (rows, 2 * columns // _GROUP):
        raise MalformedFile(
            f"{origin}: `{scales.name}` has shape {list(scales.shape)}; codes of four bits of shape "
            f"{list(codes.shape)} have one scale for each {_GROUP} of a row"
        )
    return scales.name


def _beside(name: str) -> str:
    return f"{name.removesuffix('.weight')}.scale"


def _shares(config: Mapping[str, Any]) -> int:
    """Of a matrix of queries, keys and values: one for each key head of full layers, where a file says so."""
    heads = config.get("num_key_value_heads")
    fused = config.get("attention_projection_layout") == "fused_qkv"
    return heads if fused and type(heads) is int and heads > 0 else 1


def _scales_of(
    weight: TensorInfo, tensors: Mapping[str, TensorInfo], sizes: Sequence[Block], shares: int, origin: str
) -> Scales:
    """shares: of a matrix of queries, keys and values."""
    names = f"{weight.name}_scale_inv", f"{weight.name}_scale", _beside(weight.name)
    scales = next((tensors[name] for name in names if name in tensors), None)
    if scales is None:
        raise UnsupportedSource(
            f"{origin}: `{weight.name}` is FP8 without scales of its own", hint=FLOAT_HINT
        )
    if len(weight.shape) not in (2, 3):
        raise UnsupportedSource(
            f"{origin}: `{weight.name}` is FP8 with {len(weight.shape)} dimensions; 2 or 3 are read"
        )
    if scales.dtype not in _SCALE_DTYPES:
        raise UnsupportedSource(
            f"{origin}: `{scales.name}` is {scales.dtype}; {', '.join(_SCALE_DTYPES)} are read"
        )
    if shares > 1 and weight.name.endswith(_FUSED):
        block = _block(_apart(weight.shape, shares), _apart(scales.shape, shares), sizes)
        if block is not None:
            return Scales(scales.name, block, shares)
    block = _block(weight.shape, scales.shape, sizes)
    if block is None:
        *stack, rows, _ = weight.shape
        blocks = (f"{list(_blocks(weight.shape, one))} in blocks of {one[0]} x {one[1]}" for one in sizes)
        raise MalformedFile(
            f"{origin}: `{scales.name}` has shape {list(scales.shape)}; `{weight.name}` {list(weight.shape)} "
            f"takes {', '.join(blocks)}, {[*stack, rows, 1]} by rows, {[*stack, 1, 1]} as a whole"
        )
    return Scales(scales.name, block)


def _apart(shape: tuple[int, ...], shares: int) -> tuple[int, ...]:
    """Of a tensor whose rows are so many matrices; as it is where they do not divide."""
    return shape if not shape or shape[0] % shares else (shares, shape[0] // shares, *shape[1:])


def _block(weight: tuple[int, ...], scales: tuple[int, ...], sizes: Sequence[Block]) -> Block | None:
    """What of a matrix shares a scale; None where the scales have no such form."""
    stack, (rows, columns) = weight[:-2], weight[-2:]
    for size in sizes:
        down, across = _blocks(weight, size)[-2:]
        if scales in ((*stack, down, across), (*stack, down, 1, across, 1)):  # the latter of ModelOpt
            return size
    if scales in (weight[:-1], (*weight[:-1], 1)):
        return 1, columns
    if scales == (*stack, 1, columns):
        return rows, 1
    if scales in (stack, (*stack, 1), (*stack, 1, 1)):
        return rows, columns
    if scales[:-1] == weight[:-1] and scales[-1] > 0 and columns % scales[-1] == 0:
        return 1, columns // scales[-1]
    return None


def _blocks(shape: tuple[int, ...], size: Block) -> tuple[int, ...]:
    rows, columns = shape[-2:]
    return (*shape[:-2], -(-rows // size[0]), -(-columns // size[1]))


def _sizes(config: Mapping[str, Any], origin: str) -> tuple[Block, ...]:
    """Of blocks, as config.json has them. Raises UnsupportedSource where it says too little."""
    sizes = [size for _, block in quantization_blocks(config) for size in _block_sizes(block)]
    for size in sizes:
        if not isinstance(size, list) or len(size) != 2 or any(type(n) is not int or n < 1 for n in size):
            raise UnsupportedSource(
                f"{origin}: FP8 weights in blocks of {quoted(size)}; two sizes were expected",
                hint=FLOAT_HINT,
            )
    method = claimed_method(config)
    if method not in _METHODS and not sizes:  # a block of a stated size has one meaning, whoever made it
        made = "does not say which tool has made them" if method is None else f"says `{shown(method)}`"
        raise UnsupportedSource(
            f"{origin}: the weights are FP8, and config.json {made}; {', '.join(_METHODS)} are read",
            hint=FLOAT_HINT,
        )
    return tuple(dict.fromkeys((size[0], size[1]) for size in sizes)) or (BLOCK,)


def _block_sizes(block: Mapping[str, Any]) -> list[Any]:
    """Every block size that one quantization block states (compressed-tensors: one per group of layers)."""
    groups = block.get("config_groups")
    inner = groups.values() if isinstance(groups, Mapping) else ()
    weights = [group.get("weights") for group in inner if isinstance(group, Mapping)]
    stated = [args.get("block_structure") for args in weights if isinstance(args, Mapping)]
    return [size for size in (block.get("weight_block_size"), *stated) if size is not None]
