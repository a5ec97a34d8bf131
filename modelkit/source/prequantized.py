"""What the weights of a source already are: floats, MLX's own packing, FP8, codes, GPT-OSS blocks, BitNet's
ternary ones, or refused by name.

Decided from tensor names and dtypes and from config.json together; where the two contradict each other the
source is refused, since a guess would be a model that answers nonsense. Whoever gets a value from `recognise`
can rely on every scale having the shape and dtype that its weight takes.
"""

from dataclasses import replace

from modelkit.errors import MalformedFile, UnsupportedSource
from modelkit.source.bitnet import BitNetWeights, read_bitnet_weights
from modelkit.source.codes import CodeWeights, read_code_weights
from modelkit.source.foreign import FLOAT_HINT, check_floats, refuse_foreign, refuse_packed
from modelkit.source.fp8 import Fp8Weights, read_fp8_weights
from modelkit.source.gguf.checkpoint import GgufWeights
from modelkit.source.inventory import Inventory
from modelkit.source.mlx_block import MlxQuantization, Packing
from modelkit.source.mlx_layout import MlxWeights, read_mlx_weights
from runtime.records import dataclass

__all__ = [
    "BitNetWeights",
    "CodeWeights",
    "FloatWeights",
    "Fp8Weights",
    "GgufWeights",
    "MlxQuantization",
    "MlxWeights",
    "Mxfp4Blocks",
    "Packing",
    "SourceKind",
    "recognise",
]

_BLOCK_BYTES = 16  # 32 four-bit codes share one scale


@dataclass(frozen=True, slots=True)
class FloatWeights:
    """Plain floats."""


@dataclass(frozen=True, slots=True)
class Mxfp4Blocks:
    """GPT-OSS's experts."""

    bases: tuple[str, ...]
    """The X of its `X_blocks`, U8 [..., groups, 16], and `X_scales`, U8 [..., groups]."""


SourceKind = FloatWeights | MlxWeights | Fp8Weights | Mxfp4Blocks | GgufWeights | CodeWeights | BitNetWeights


def recognise(inventory: Inventory) -> SourceKind:
    """What the weights already are.

    Raises UnsupportedSource for what is not imported (the message names the tool or the mixture), SourceError
    when config.json and tensors contradict each other, MalformedFile when a scale does not fit its weight.
    """
    ternary = read_bitnet_weights(inventory)
    if ternary is not None:
        return ternary
    codes = read_code_weights(inventory)
    if codes is not None:
        inventory = codes.as_floats(inventory)
    refuse_foreign(inventory)
    readers = (read_mlx_weights, read_fp8_weights, _read_mxfp4_blocks)
    found: list[SourceKind] = [kind for kind in (reader(inventory) for reader in readers) if kind is not None]
    if codes is not None:
        refuse_packed(inventory)
        if len(found) == 1 and isinstance(found[0], Fp8Weights):
            codes = replace(codes, fp8=found.pop())
        found.append(codes)
    if len(found) > 1:
        raise UnsupportedSource(f"{inventory.origin} mixes several kinds of quantization", hint=FLOAT_HINT)
    if found:
        return found[0]
    check_floats(inventory)
    return FloatWeights()


def _read_mxfp4_blocks(inventory: Inventory) -> Mxfp4Blocks | None:
    tensors, origin = inventory.tensors, inventory.origin
    blocks = [tensor for name, tensor in tensors.items() if name.endswith("_blocks") and tensor.dtype == "U8"]
    for tensor in blocks:
        name = f"{tensor.name.removesuffix('_blocks')}_scales"
        scales = tensors.get(name)
        if scales is None:
            raise MalformedFile(f"{origin}: `{tensor.name}` has no `{name}`")
        if scales.dtype != "U8" or tensor.shape != (*scales.shape, _BLOCK_BYTES):
            raise MalformedFile(
                f"{origin}: `{tensor.name}` is U8 {list(tensor.shape)} and `{name}` {scales.dtype} "
                f"{list(scales.shape)}; U8 [..., groups, {_BLOCK_BYTES}] and U8 [..., groups] were expected"
            )
    return Mxfp4Blocks(tuple(tensor.name.removesuffix("_blocks") for tensor in blocks)) if blocks else None
