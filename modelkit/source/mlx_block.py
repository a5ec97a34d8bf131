"""How MLX packs matrices, and config.json's `quantization` block, which says so for each module.

Source: `mlx.core.quantize`, `mlx.nn.quantize`, and how mlx-lm reads its configs.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, NamedTuple

from modelkit.errors import UnsupportedSource
from modelkit.source.claims import quantization_blocks
from runtime.blocks.types import BLOCK_TYPES, BlockType
from runtime.quoting import quoted, shown
from runtime.records import dataclass


class Packing(NamedTuple):
    """One way MLX packs a matrix."""

    bits: int
    """Of each code."""
    group_size: int
    """So many codes of a row have one scale."""
    mode: str
    """"affine", or the name of a float format."""


GGUF_MODE = "gguf"
"""Of modules that are kept in the blocks of a GGUF file; `type` names them. No mode of MLX's own."""
FACTOR = "global_scale"
"""Of NVFP4: the tensor beside the scales that says what the largest number of a matrix is, and its key."""
AFFINE_BITS = (1, 2, 3, 4, 5, 6, 8)
AFFINE_GROUPS = (32, 64, 128)
_DEFAULTS = {
    "affine": Packing(4, 64, "affine"),
    "mxfp4": Packing(4, 32, "mxfp4"),
    "mxfp8": Packing(8, 32, "mxfp8"),
    "nvfp4": Packing(4, 16, "nvfp4"),
}


@dataclass(frozen=True, slots=True)
class MlxQuantization:
    """config.json's `quantization` block."""

    default: Packing
    per_module: Mapping[str, Packing | None]
    """What differs from the default; None: stored unquantized."""
    blocks: Mapping[str, BlockType] = field(default_factory=dict)
    """Modules that are kept in GGUF's blocks."""

    def module_format(self, module: str) -> Packing | None:
        """How the block says that `module` (the X of `X.weight`) is packed."""
        return self.per_module.get(module, self.default)


def read_mlx_block(config: Mapping[str, Any], origin: str) -> MlxQuantization | None:
    """The first quantization block in MLX's terms, or None.

    Per module a block holds an object of the same keys (what it leaves out is the mode's default, not the
    block's own value, as in `mlx.nn.quantize`), false for unquantized, or true. Other entries do not bear on
    how tensors are read.
    """
    for where, block in quantization_blocks(config):
        if "quant_method" in block or not block.keys() & {"bits", "mode"}:
            continue
        where = f"{origin}/config.json: {where}"
        default = _packing({key: block[key] for key in Packing._fields if key in block}, where)
        per_module: dict[str, Packing | None] = {}
        blocks: dict[str, BlockType] = {}
        for module, entry in block.items():
            if isinstance(entry, Mapping) and entry.get("mode") == GGUF_MODE:
                blocks[module] = _block_type(entry, f"{where}, `{shown(module)}`")
            elif isinstance(entry, Mapping):
                per_module[module] = _packing(entry, f"{where}, `{shown(module)}`")
            elif isinstance(entry, bool):
                per_module[module] = default if entry else None
        return MlxQuantization(default, per_module, blocks)
    return None


def _block_type(entry: Mapping[str, Any], where: str) -> BlockType:
    found = BLOCK_TYPES.get(str(entry.get("type")))
    if found is None or not found.packed or set(entry) != {"mode", "type"}:
        raise UnsupportedSource(f"{where}: {quoted(dict(entry))} names no type of GGUF's blocks")
    return found


def _packing(entry: Mapping[str, Any], where: str) -> Packing:
    mode = entry.get("mode", "affine")
    row = _DEFAULTS.get(mode) if isinstance(mode, str) else None
    if row is None:
        raise UnsupportedSource(f"{where}: the mode {quoted(mode)} is none of {', '.join(_DEFAULTS)}")
    unknown = entry.keys() - set(Packing._fields)
    if mode == "nvfp4" and isinstance(entry.get(FACTOR), bool):
        unknown -= {FACTOR}  # it is there, or not
    if unknown:
        raise UnsupportedSource(f"{where} has the unknown entry `{shown(min(unknown))}`")
    bits, group_size = entry.get("bits", row.bits), entry.get("group_size", row.group_size)
    if not _offered(bits, group_size, row):
        raise UnsupportedSource(
            f"{where}: MLX has no {mode} of {quoted(bits)} bits in groups of {quoted(group_size)}"
        )
    return Packing(bits, group_size, mode)


def _offered(bits: object, group_size: object, row: Packing) -> bool:
    if type(bits) is not int or type(group_size) is not int:  # type(), because True is an int
        return False
    if row.mode == "affine":
        return bits in AFFINE_BITS and group_size in AFFINE_GROUPS
    return (bits, group_size) == (row.bits, row.group_size)
