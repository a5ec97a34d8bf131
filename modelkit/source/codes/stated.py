"""What config.json says of codes, in the words of the tool that has made them.

What would change the numbers and is not read is refused by the name of its field.
"""

from collections.abc import Mapping
from typing import Any

from modelkit.errors import UnsupportedSource
from modelkit.source.claims import quantization_blocks
from modelkit.source.display import shown
from modelkit.source.foreign import FLOAT_HINT
from runtime.records import dataclass

GPTQ_BITS = (2, 3, 4, 8)
_WHOLE_ROW = -1


@dataclass(frozen=True, slots=True)
class Stated:
    """How matrices are stored; one of several ways where a checkpoint has more than one."""

    bits: int
    group_size: int | None
    """None: a row has one scale."""
    symmetric: bool
    less_one: bool = False
    """Are zeros stored less one?"""
    by_activation: bool = False
    """May groups stand in another order than inputs?"""


def stated_block(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The one that names a `quant_method`; {} where none does."""
    blocks = (block for _, block in quantization_blocks(config))
    return next((block for block in blocks if isinstance(block.get("quant_method"), str)), {})


def stated_by_gptq(block: Mapping[str, Any], origin: str) -> Stated:
    """Raises UnsupportedSource."""
    for key in ("dynamic", "is_marlin_format", "planar"):
        if block.get(key):
            raise _refused(origin, "GPTQ", key, block[key])
    form = block.get("checkpoint_format", block.get("format")) or "gptq"
    if form not in ("gptq", "gptq_v2"):
        raise _refused(origin, "GPTQ", "checkpoint_format", form, "gptq and gptq_v2 are read")
    if block.get("pack_dtype", "int32") != "int32":
        raise _refused(origin, "GPTQ", "pack_dtype", block["pack_dtype"], "int32 is read")
    bits = block.get("bits")
    if type(bits) is not int or bits not in GPTQ_BITS:
        raise _refused(origin, "GPTQ", "bits", bits, f"{', '.join(map(str, GPTQ_BITS))} are read")
    return Stated(
        bits,
        _group_size(block.get("group_size", 128), origin, "GPTQ"),
        symmetric=block.get("sym") is True,
        less_one=form == "gptq",
        by_activation=block.get("desc_act") is True,
    )


def stated_by_awq(block: Mapping[str, Any], origin: str) -> Stated:
    """Raises UnsupportedSource."""
    bits = block.get("bits", block.get("w_bit"))
    if bits != 4 or type(bits) is not int:
        raise _refused(origin, "AWQ", "bits", bits, "4 is read")
    version = block.get("version", "gemm")
    if not isinstance(version, str) or version.lower() != "gemm":
        raise _refused(origin, "AWQ", "version", version, "gemm is read")
    size = _group_size(block.get("group_size", block.get("q_group_size", 128)), origin, "AWQ")
    return Stated(bits, size, symmetric=block.get("zero_point", True) is False)


def stated_by_compressed_tensors(block: Mapping[str, Any], origin: str) -> tuple[Stated, ...]:
    """Every way in which its groups of layers are stored. Raises UnsupportedSource."""
    tool = "compressed-tensors"
    transforms, sparsity = block.get("transform_config"), block.get("sparsity_config")
    if transforms:
        raise _refused(origin, tool, "transform_config", transforms)
    if isinstance(sparsity, Mapping) and sparsity.get("format", "dense") != "dense":
        raise _refused(origin, tool, "sparsity_config.format", sparsity["format"])
    groups = block.get("config_groups")
    found: list[Stated] = []
    for group in groups.values() if isinstance(groups, Mapping) else ():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if isinstance(weights, Mapping):
            found.append(_weights(weights, origin))
    if not found:
        raise UnsupportedSource(
            f"{origin}: config.json does not say how its weights are packed (config_groups)", hint=FLOAT_HINT
        )
    return tuple(dict.fromkeys(found))


def _weights(weights: Mapping[str, Any], origin: str) -> Stated:
    tool = "compressed-tensors"
    if weights.get("type", "int") != "int":
        raise _refused(origin, tool, "weights.type", weights["type"], "int is read")
    bits, strategy = weights.get("num_bits"), weights.get("strategy")
    if type(bits) is not int or not 2 <= bits <= 8 or bits == 7:
        raise _refused(origin, tool, "weights.num_bits", bits, "2, 3, 4, 5, 6 and 8 are read")
    size = weights.get("group_size")
    if strategy is None:
        strategy = "group" if type(size) is int and size > 0 else "channel"
    if strategy not in ("group", "channel"):
        raise _refused(origin, tool, "weights.strategy", strategy, "group and channel are read")
    order = weights.get("actorder")
    return Stated(
        bits,
        _group_size(size, origin, tool) if strategy == "group" else None,
        symmetric=weights.get("symmetric", True) is True,
        by_activation=order is True or order in ("group", "dynamic"),
    )


def _group_size(value: object, origin: str, tool: str) -> int | None:
    if value in (None, _WHOLE_ROW):
        return None
    if type(value) is not int or value <= 0:
        raise _refused(origin, tool, "group_size", value)
    return value


def _refused(origin: str, tool: str, key: str, value: object, read: str = "") -> UnsupportedSource:
    return UnsupportedSource(
        f"{origin} is quantized with {tool}, and its {key} is {shown(repr(value))}{read and '; ' + read}",
        hint=FLOAT_HINT,
    )
