"""What config.json says of codes, in the words of the tool that has made them.

What would change the numbers and is not read is refused by the name of its field.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from modelkit.errors import UnsupportedSource
from modelkit.source.claims import quantization_blocks
from modelkit.source.foreign import FLOAT_HINT
from runtime.quoting import quoted, shown
from runtime.records import dataclass

GPTQ_BITS = (2, 3, 4, 8)
_AUTO_ROUND: "dict[str, tuple[Layout, bool]]" = {
    "auto_round:auto_gptq": ("gptq", True),
    "auto_round:gptqmodel": ("gptq", False),
    "auto_round:exllamav2": ("gptq", False),
    "auto_round": ("gptq", False),
    "auto_round:auto_awq": ("awq", False),
}
"""packing_format -> how tensors lie, and whether zeros are stored less one."""
_AUTO_ROUND_KEYS = ("bits", "group_size", "sym", "data_type")
_GPTQ_RULE = frozenset(("bits", "desc_act", "group_size", "static_groups", "sym"))
_FLOAT_BITS = 16
_PLAIN_NAME = re.compile(r"[\w.]*", re.ASCII)
_WHOLE_ROW = -1

if TYPE_CHECKING:
    from modelkit.source.codes.value import Layout


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


def refuse_rotated(block: Mapping[str, Any], tool: str, origin: str) -> None:
    """Raise UnsupportedSource for weights, of whatever kind, whose inputs have to be turned as they are."""
    for key in ("rotation_config", "hadamard_config", "transform_config"):
        if block.get(key):
            raise _refused(origin, tool, key, block[key])


def stated_by_gptq(block: Mapping[str, Any], origin: str) -> tuple[Stated, ...]:
    """The usual way, and those of GPTQModel's rules (`dynamic`) for some modules. What rules leave out (`-:`)
    is floats, which its tensors say. Raises UnsupportedSource.
    """
    rules = block.get("dynamic") or {}
    if not isinstance(rules, Mapping):
        raise _refused(origin, "GPTQ", "dynamic", rules)
    found = [_of_gptq(block, origin)]
    for pattern, fields in rules.items():
        if pattern.startswith("-:") or not fields:
            continue
        if not isinstance(fields, Mapping) or not fields.keys() <= _GPTQ_RULE:
            raise _refused(origin, "GPTQ", "dynamic", fields, f"{', '.join(sorted(_GPTQ_RULE))} are read")
        found.append(_of_gptq({**block, **fields}, origin))
    return tuple(dict.fromkeys(found))


def _of_gptq(block: Mapping[str, Any], origin: str) -> Stated:
    for key in ("is_marlin_format", "planar"):
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
        # Groups that were fixed before inputs were sorted are those of inputs as they stand.
        by_activation=block.get("desc_act") is True and block.get("static_groups") is not True,
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


def stated_by_auto_round(
    block: Mapping[str, Any], origin: str
) -> "tuple[Layout, Mapping[str, tuple[Stated, ...]]]":
    """How tensors lie, and the ways in which a matrix may be stored: by its module's name; under "" those of
    all others, the usual one first, then what is said of names by patterns. Raises UnsupportedSource.
    """
    tool = "AutoRound"
    form = block.get("packing_format", "auto_round")
    if not isinstance(form, str) or form not in _AUTO_ROUND:
        raise _refused(origin, tool, "packing_format", form, f"{', '.join(_AUTO_ROUND)} are read")
    layout, less_one = _AUTO_ROUND[form]
    more = block.get("extra_config") or {}
    if not isinstance(more, Mapping):
        raise _refused(origin, tool, "extra_config", more)
    usual = {key: block[key] for key in _AUTO_ROUND_KEYS if key in block}
    found: dict[str, tuple[Stated, ...]] = {}
    for name, fields in [("", {}), *more.items()]:
        if not isinstance(fields, Mapping):
            raise _refused(origin, tool, f"extra_config of {shown(name)}", fields)
        said = usual | {key: fields[key] for key in _AUTO_ROUND_KEYS if key in fields}
        if name and said.get("bits", 16) == _FLOAT_BITS:
            continue
        one = _of_auto_round(said, layout, less_one, origin)
        if _PLAIN_NAME.fullmatch(name):
            found[name] = (one,)
        else:
            found[""] = tuple(dict.fromkeys((*found[""], one)))
    return layout, found


def _of_auto_round(said: Mapping[str, Any], layout: "Layout", less_one: bool, origin: str) -> Stated:
    tool, bits = "AutoRound", said.get("bits")
    read = GPTQ_BITS if layout == "gptq" else (4,)
    if type(bits) is not int or bits not in read:
        raise _refused(origin, tool, "bits", bits, f"{', '.join(map(str, read))} is what is read")
    if said.get("data_type", "int") != "int":
        raise _refused(origin, tool, "data_type", said["data_type"], "int is read")
    size = _group_size(said.get("group_size", 128), origin, tool)
    return Stated(bits, size, symmetric=said.get("sym", True) is True, less_one=less_one)


def stated_by_compressed_tensors(block: Mapping[str, Any], origin: str) -> tuple[Stated, ...]:
    """Every way in which its groups of layers are stored as whole numbers. Raises UnsupportedSource."""
    tool, sparsity = "compressed-tensors", block.get("sparsity_config")
    if isinstance(sparsity, Mapping) and sparsity.get("format", "dense") != "dense":
        raise _refused(origin, tool, "sparsity_config.format", sparsity["format"])
    groups = block.get("config_groups")
    found: list[Stated] = []
    for group in groups.values() if isinstance(groups, Mapping) else ():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if isinstance(weights, Mapping) and weights.get("type", "int") != "float":
            found.append(_weights(weights, origin))
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
        f"{origin} is quantized with {tool}, and its {key} is {quoted(value)}{read and '; ' + read}",
        hint=FLOAT_HINT,
    )
