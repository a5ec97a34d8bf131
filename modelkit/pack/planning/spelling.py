"""A config.json that both old and new tools read: what transformers 5 spells anew, under its older names too.

transformers 5 writes `dtype` and `rope_parameters`, and renames fields of many families. Its own reader takes
both; most of mlx-lm's classes know the older names only, and take a default for what they miss without a
word. So both stand in a package. Nothing that a file says is changed or contradicted: where it has an older
name already, that one stays.
"""

from collections.abc import Mapping
from typing import Any

from modelkit.pack.planning.renamings import BY_LAYER_TYPE, REPEATED, RESPELLED, ROWS
from runtime.config.text import next_block

_BASES = ("rope_theta", "partial_rotary_factor")


def both_spellings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The same config, older names added; an equal one where nothing is missing. Towers for other media stay
    as they are.
    """
    name = next_block(config)
    inner = {} if name is None else {name: both_spellings({**config[name], **_repeated(config)})}
    fresh = {**config, **inner}
    family = fresh.get("model_type")
    added = {**_dtype(fresh), **_rope(fresh)}
    for row in ROWS:
        if family in row.families and row.name not in added:
            value = row.value(fresh)
            if value is not None or row.null:
                added[row.name] = value
    changed = {row.name: row.value(fresh) for row in RESPELLED if family in row.families}
    return {**added, **fresh, **{name: value for name, value in changed.items() if value is not None}}


def _repeated(config: Mapping[str, Any]) -> dict[str, Any]:
    family = config.get("model_type")
    found = {name: config.get(name) for wrappers, name in REPEATED if family in wrappers}
    return {name: value for name, value in found.items() if value is not None}


def _dtype(block: Mapping[str, Any]) -> dict[str, Any]:
    return {"torch_dtype": block["dtype"]} if isinstance(block.get("dtype"), str) else {}


def _rope(block: Mapping[str, Any]) -> dict[str, Any]:
    """What `rope_parameters` says, in the fields that came before it.

    `rope_scaling` repeats the whole block, base and share too: where it is there, transformers takes it for
    the block, and must find the same.
    """
    rope = block.get("rope_parameters")
    if not isinstance(rope, Mapping) or _contradicted(block, rope):
        return {}
    if any(isinstance(value, Mapping) for value in rope.values()):
        full = rope.get("full_attention")
        return (
            _scaling(full) if block.get("model_type") in BY_LAYER_TYPE and isinstance(full, Mapping) else {}
        )
    return {**{name: rope[name] for name in _BASES if rope.get(name) is not None}, **_scaling(rope)}


def _scaling(rope: Mapping[str, Any]) -> dict[str, Any]:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return {"rope_scaling": None}
    said = {name: value for name, value in rope.items() if value is not None}
    return {"rope_scaling": {**said, "type": kind}}


def _contradicted(block: Mapping[str, Any], rope: Mapping[str, Any]) -> bool:
    """Does the file have older names of its own that say something else?"""
    if block.get("rope_scaling") is not None:
        return True
    return any(block.get(name, rope.get(name)) != rope.get(name) for name in _BASES)
