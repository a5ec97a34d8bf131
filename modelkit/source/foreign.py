"""Quantized checkpoints of other tools: recognised so that they can be refused by name.

Copied or converted as if they were plain numbers, these give a model that talks nonsense. A row per mark that
a tool leaves in the names of its tensors; what has no mark of its own is told by dtype, or by what
config.json claims.
"""

from collections.abc import Mapping
from typing import Any

from modelkit.errors import SourceError, UnsupportedSource
from modelkit.source.claims import claimed_method, quantization_blocks
from modelkit.source.inventory import Inventory
from modelkit.source.tensor import TensorInfo
from runtime.quoting import quoted, shown

FLOAT_HINT = (
    "Use the repository with the original 16-bit weights; modelkit quantizes them itself (--quantize)."
)

_METHODS = {
    "gptq": "GPTQ",
    "awq": "AWQ",
    "hqq": "HQQ",
    "aqlm": "AQLM",
    "eetq": "EETQ",
    "modelopt": "NVIDIA ModelOpt",
    "quanto": "Quanto",
    "vptq": "VPTQ",
    "higgs": "HIGGS",
    "spqr": "SpQR",
    "bitnet": "BitNet",
    "auto-round": "AutoRound",
    "fbgemm_fp8": "FBGEMM FP8",
    "quark": "AMD Quark",
    "sinq": "SINQ",
}

_MARKS = (
    (".g_idx", "GPTQ"),
    (".weight.absmax", "bitsandbytes 4-bit"),
    (".weight.quant_map", "bitsandbytes 4-bit"),
    (".SCB", "bitsandbytes 8-bit"),
    (".W_q", "HQQ"),
    (".codebooks", "AQLM"),
    (".q_invperm", "EXL2"),
    (".trellis", "EXL3"),
    (".weight._data", "Quanto"),
    ("_weight_qdata", "torchao"),
    (".weight_scale_2", "NVIDIA ModelOpt NVFP4"),
)

_PACKED = ("U8", "I8", "U16", "I16", "U32", "I32", "F4", "F6_E2M3", "F6_E3M2", "F8_E8M0")


def refuse_foreign(inventory: Inventory) -> None:
    """Raise UnsupportedSource when a tensor bears the mark of another tool's quantization."""
    for name, tensor in inventory.tensors.items():
        kind = _kind(name, tensor, inventory.tensors, inventory.config)
        if kind is not None:
            raise UnsupportedSource(
                f"{inventory.origin} is quantized with {kind} (`{name}`)", hint=FLOAT_HINT
            )


def check_floats(inventory: Inventory) -> None:
    """Where no quantization was found: the matrices are floats, and config.json does not say otherwise.

    Raises UnsupportedSource for packed matrices, SourceError for a config that says they are quantized.
    """
    refuse_packed(inventory)
    for where, block in quantization_blocks(inventory.config):
        claim = block.get("quant_method") or block.get("bits") or block.get("mode")
        if claim:
            raise SourceError(
                f"{inventory.origin}/config.json says that the weights are quantized (`{where}`: "
                f"{quoted(claim)}); they are plain floats",
                hint=f"If they were dequantized, remove `{where}` from config.json.",
            )


def refuse_packed(inventory: Inventory) -> None:
    """Raise UnsupportedSource for matrices that are no floats."""
    method = claimed_method(inventory.config)
    for name, tensor in inventory.tensors.items():
        if name.endswith(".weight") and tensor.dtype in _PACKED:
            kind = f"with {_title(method)}" if method else "in a way that modelkit does not know"
            raise UnsupportedSource(
                f"{inventory.origin} is quantized {kind} (`{name}` is {tensor.dtype})", hint=FLOAT_HINT
            )


def _kind(
    name: str, tensor: TensorInfo, tensors: Mapping[str, TensorInfo], config: Mapping[str, Any]
) -> str | None:
    if name.endswith(".qweight"):
        return _packed_rows(name, tensor, tensors, config)
    if name.endswith(".weight_packed"):
        return _title(claimed_method(config) or "compressed-tensors", _stated_format(config))
    if name.endswith(".weight") and f"{name}_scale" in tensors and tensor.dtype in ("I8", "U8"):
        method = claimed_method(config)
        return _title(method, _stated_format(config)) if method else f"scaled {tensor.dtype} weights"
    marked = next((kind for mark, kind in _MARKS if name.endswith(mark)), None)
    if marked is None:
        return None
    method = claimed_method(config)
    if method is None or method in marked.lower():
        return marked
    return _title(method)  # other tools write tensors of the same name


def _packed_rows(
    name: str, tensor: TensorInfo, tensors: Mapping[str, TensorInfo], config: Mapping[str, Any]
) -> str:
    """GPTQ packs codes along the input, AWQ along the output; their tensors have the same names."""
    method = claimed_method(config)
    if method:
        return _title(method)
    scales = tensors.get(f"{name.removesuffix('.qweight')}.scales")
    if scales is None or not scales.shape or not tensor.shape:
        return "GPTQ or AWQ"
    return "GPTQ" if scales.shape[-1] == tensor.shape[-1] else "AWQ"


def _stated_format(config: Mapping[str, Any]) -> str | None:
    stated = (block.get("format", block.get("quant_algo")) for _, block in quantization_blocks(config))
    return next((text for text in stated if isinstance(text, str)), None)


def _title(method: str, detail: str | None = None) -> str:
    title = _METHODS.get(method, shown(method))
    return f"{title} ({shown(detail)})" if detail else title
