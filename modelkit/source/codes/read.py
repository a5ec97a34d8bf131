"""Which matrices of a checkpoint are codes; their tensors fit each other and what config.json says."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from modelkit.errors import MalformedFile
from modelkit.source.claims import claimed_method
from modelkit.source.codes import by_columns, by_rows, micro
from modelkit.source.codes.config_claims import (
    Stated,
    refuse_rotated,
    stated_block,
    stated_by_auto_round,
    stated_by_awq,
    stated_by_compressed_tensors,
    stated_by_gptq,
)
from modelkit.source.codes.value import CodeMatrix, CodeWeights, Layout
from modelkit.source.inventory import Inventory

_TOOLS = {
    "gptq": "GPTQ",
    "awq": "AWQ",
    "auto-round": "AutoRound",
    "compressed-tensors": "compressed-tensors",
    "modelopt": "ModelOpt",
    "quark": "Quark",
    "fp8": "FP8",
    "mxfp8": "MXFP8",
    "": "microscaling",
}
_ALSO_SMALL = ("compressed-tensors", "modelopt", "quark", "fp8", "mxfp8")
_SMALL_FLOATS = ("mx_fp", "nv_fp")
"""How AutoRound's `data_type` begins then. Its others have other scales in tensors of these types."""
_UNUSED = re.compile(
    r".*(?:\.(?:weight_shape|original_shape|(?:input|output|activation|[qkv])_(?:scale|zero_point|global_scale))"
    r"|_input_scale|\.input_amax)"
)
"""Names of tensors that are no weight's."""


def is_code(name: str, dtype: str, method: str | None) -> bool:
    """Is this the name of a tensor of codes of such a checkpoint?"""
    match method:
        case "gptq" | "auto-round":
            return name.endswith((by_columns.CODES, ".g_idx"))
        case "awq":
            return name.endswith(by_columns.CODES)
        case "compressed-tensors":
            bytewise = name.endswith(".weight") and dtype == "I8"
            return bytewise or name.endswith(by_rows.CODES)
        case _:
            return False


def read_code_weights(inventory: Inventory) -> CodeWeights | None:
    """None when nothing is stored so.

    Raises UnsupportedSource for ways that are not read, MalformedFile for tensors that fit no other.
    """
    method, tensors, origin = claimed_method(inventory.config), inventory.tensors, inventory.origin
    if method is None:  # ModelOpt's older files say it in hf_quant_config.json alone, stacks by themselves
        method = "modelopt" if any(name.endswith(micro.TIMES) for name in tensors) else ""
    if method not in _TOOLS:
        return None
    refuse_rotated(stated_block(inventory.config), _TOOLS[method], origin)
    found = {one.name: one for one in _matrices(inventory, method)}
    if not found:
        return None  # FP8, or floats whose config.json claims more than there is
    for name in found:
        if name in tensors and found[name].codes is not tensors[name]:
            raise MalformedFile(f"{origin}: `{name}` is there as codes and as floats")
    return CodeWeights(_TOOLS[method], found, frozenset(filter(_UNUSED.fullmatch, tensors)))


def _matrices(inventory: Inventory, method: str) -> Iterator[CodeMatrix]:
    tensors, origin, block = inventory.tensors, inventory.origin, stated_block(inventory.config)
    small = method in _ALSO_SMALL or str(block.get("data_type")).startswith(_SMALL_FLOATS)
    others: list[str] = []
    for name, tensor in tensors.items():
        known = small or (not method and len(tensor.shape) == 3)
        found = micro.matrix_of(name, tensors, origin) if known else None
        if found is not None:
            yield found
        elif is_code(name, tensor.dtype, method):
            others.append(name)
    if method == "compressed-tensors":
        ways = stated_by_compressed_tensors(block, origin)
        for name in others:
            module = name.removesuffix(by_rows.CODES).removesuffix(".weight")
            yield by_rows.matrix_of(module, ways, tensors, origin)
    elif others:
        layout, stated = _by_columns(method, block, origin)
        for name in others:
            if name.endswith(by_columns.CODES):
                module = name.removesuffix(by_columns.CODES)
                yield by_columns.matrix_among(module, layout, stated.get(module, stated[""]), tensors, origin)


def _by_columns(
    method: str, block: Mapping[str, Any], origin: str
) -> tuple[Layout, Mapping[str, tuple[Stated, ...]]]:
    """How tensors lie, and the ways that a module's may be stored in, "" for all that are not named."""
    match method:
        case "gptq":
            return "gptq", {"": stated_by_gptq(block, origin)}
        case "awq":
            return "awq", {"": (stated_by_awq(block, origin),)}
        case _:
            return stated_by_auto_round(block, origin)
