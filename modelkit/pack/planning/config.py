"""The config.json of a package: the source's own, with MLX's `quantization` block.

The block holds how modules are packed, {"group_size", "bits", "mode"}, and such an entry for every module
that differs. mlx-lm reads no other key; a module without scales is unquantized without being named. Other
tools' blocks are removed once the weights are no longer theirs.
"""

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from typing import Any

from modelkit.pack.planning.plan_types import Planned
from modelkit.pack.planning.spelling import both_spellings
from modelkit.source.claims import BLOCKS
from modelkit.source.mlx_block import GGUF_MODE
from modelkit.source.prequantized import MlxQuantization
from runtime.config.text import levels
from runtime.quant import FORMATS, Format

_ROWS = {row.name: row for row in FORMATS}
_DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
_DTYPE_KEYS = ("dtype", "torch_dtype")


def converted_config(config: Mapping[str, Any], planned: Sequence[Planned], chosen: Format) -> dict[str, Any]:
    """For weights that were written anew, most of them as `chosen`; names the dtype where all were cast."""
    fresh = both_spellings(deepcopy(dict(config)))
    for _, level in levels(fresh):
        _convert(level, chosen)
    block = _block(planned, chosen)
    return {**fresh, "quantization": block} if block else fresh


def _convert(level: dict[str, Any], chosen: Format) -> None:
    """Take other tools' blocks out of one level, and say the dtype that all floats now have."""
    for key in BLOCKS:
        level.pop(key, None)
    if not chosen.quantized:
        level.update({key: _DTYPES[chosen.name] for key in _DTYPE_KEYS if key in level})
    level.update({key: "float32" for key in _DTYPE_KEYS if level.get(key) == "float64"})


def mlx_config(config: Mapping[str, Any], quantization: MlxQuantization) -> dict[str, Any]:
    """For weights kept in MLX's layout: the same, with the block where mlx-lm looks for it."""
    fresh = both_spellings(deepcopy(dict(config)))
    if "quantization" not in fresh:
        entries = {module: p._asdict() if p else False for module, p in quantization.per_module.items()}
        fresh["quantization"] = {**quantization.default._asdict(), **entries}
    return fresh


def imported_config(
    config: Mapping[str, Any], planned: Sequence[Planned], wanted: Format | None
) -> dict[str, Any]:
    """For weights out of a GGUF file: repacked, in another format, or kept in its blocks."""
    packed = [
        _ROWS[tensor.label] for tensor in planned if len(tensor.outputs) > 1 and tensor.blocks != "kept"
    ]
    usual = wanted if wanted and wanted.quantized else max(packed, key=packed.count, default=_ROWS["q4"])
    fresh = converted_config(config, [tensor for tensor in planned if tensor.blocks != "kept"], usual)
    blocks = [tensor for tensor in planned if tensor.blocks == "kept"]
    if wanted and not wanted.quantized:
        fresh.update({key: _DTYPES[wanted.name] for key in _DTYPE_KEYS if key in fresh})
    if not blocks:
        return fresh
    return with_blocks({"quantization": _entry(usual), **fresh}, blocks)


def with_blocks(config: Mapping[str, Any], blocks: Sequence[Planned]) -> dict[str, Any]:
    """With what it says of modules that are kept in GGUF's blocks, in the one block that says so."""
    entries = {tensor.module: {"mode": GGUF_MODE, "type": tensor.label} for tensor in blocks}
    alone = {key: value for key, value in config.items() if key not in BLOCKS}
    return {**alone, "quantization": {**config["quantization"], **entries}}


def _block(planned: Sequence[Planned], chosen: Format) -> dict[str, Any] | None:
    """None when nothing is quantized. A quantized matrix is one that is stored as several tensors."""
    packed = {tensor.module: _ROWS[tensor.label] for tensor in planned if len(tensor.outputs) > 1}
    if not packed:
        return None
    entries: dict[str, Any] = {}
    for module, row in packed.items():
        if row != chosen:
            entries.update(dict.fromkeys(spellings(module, packed), _entry(row)))
    return {**_entry(chosen), **entries}


def _entry(row: Format) -> dict[str, Any]:
    return {"group_size": row.group_size, "bits": row.bits, "mode": row.mode}


def spellings(module: str, packed: Collection[str]) -> list[str]:
    """A module's path in the checkpoint, and in mlx-lm, which turns `model.language_model` inside out."""
    wrapped = "model.language_model."
    if module.startswith(wrapped):
        return [module, "language_model.model." + module.removeprefix(wrapped)]
    if module == "lm_head" and any(name.startswith(wrapped) for name in packed):
        return [module, "language_model.lm_head"]
    return [module]
