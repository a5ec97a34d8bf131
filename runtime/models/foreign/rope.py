"""How positions are scaled, for a model class of somebody else: one block out of either spelling.

transformers 5 writes `rope_parameters`; older files have `rope_theta`, `rope_scaling` and
`partial_rotary_factor`. mlx-lm's classes take from such a block what they know and pass over the rest, so a
type or a part of it that a class was not proven with is refused by name.
"""

import math
from collections.abc import Mapping
from typing import Any

from runtime.errors import UnsupportedModel, shown
from runtime.models.foreign.fields import Raw, complain
from runtime.records import dataclass

Block = dict[str, Any]
_ALWAYS = ("rope_type", "rope_theta", "partial_rotary_factor")
_PARTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # what must be there, and what may
    "default": ((), ()),
    "linear": (("factor",), ()),
    "llama3": (("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"), ()),
    "yarn": (("factor", "original_max_position_embeddings"), ("beta_fast", "beta_slow")),
    "longrope": (("short_factor", "long_factor", "original_max_position_embeddings"), ()),
}


@dataclass(frozen=True, slots=True)
class Ropes:
    """Which rotations a class of mlx-lm computes as transformers does."""

    theta: float = 10000.0
    """transformers' default."""
    types: tuple[str, ...] = ("default",)
    """The ways to scale that the class was proven with."""
    share: float | None = None
    """transformers' default for the part of a head that turns; None: the class turns whole heads only."""


def read_rope(raw: Raw, ropes: Ropes, who: str) -> dict[str, Any]:
    """The block, always with rope_type and rope_theta. Raises UnsupportedModel."""
    return _block(_held(raw), raw, ropes, who)


def _held(raw: Raw) -> Raw:
    """The block that the file has, {} for none. Two that differ have no one meaning."""
    blocks: list[Block] = []
    for name in ("rope_parameters", "rope_scaling"):
        block = raw.get(name)
        if block is not None and not isinstance(block, Mapping):
            raise complain(name, block, "a block of fields")
        if block:
            blocks.append({key: value for key, value in block.items() if value is not None})
    if len(blocks) == 2 and _named(blocks[0]) != _named({**_kept_aside(blocks[0]), **blocks[1]}):
        raise UnsupportedModel(
            "config.json: rope_scaling stands beside rope_parameters and says something else: keep one"
        )
    return _named(blocks[0]) if blocks else {}


def _kept_aside(block: Block) -> Block:
    """What older files keep outside of rope_scaling."""
    return {name: block[name] for name in ("rope_theta", "partial_rotary_factor") if name in block}


def _named(block: Block) -> Block:
    """`type` is what `rope_type` was called."""
    old = block.get("type")
    return {"rope_type": old or "default", **{key: value for key, value in block.items() if key != "type"}}


def _block(held: Raw, outer: Raw, ropes: Ropes, who: str) -> Block:
    """outer: where older files keep what belongs into the block."""
    kind = held.get("rope_type", "default")
    if kind not in ropes.types:
        known = " or ".join(ropes.types)
        raise UnsupportedModel(
            f"config.json: rope_type is {shown(kind)}, and {who} is proven only with {known}"
        )
    needed, more = _PARTS[kind]
    for name in sorted(held.keys() - {*_ALWAYS, *needed, *more}):
        raise UnsupportedModel(
            f"config.json: {name} is {shown(held[name])} in the block of a {kind} rope, "
            f"which {who} does not look at"
        )
    block: Block = {"rope_type": kind}
    for name in (*needed, *more):
        if name in held or name in needed:
            block[name] = _part(name, held.get(name))
    theta = held.get("rope_theta", outer.get("rope_theta"))
    block["rope_theta"] = _part("rope_theta", ropes.theta if theta is None else theta)
    return block | _turned(held, outer, ropes, who)


def _turned(held: Raw, outer: Raw, ropes: Ropes, who: str) -> Block:
    """The share of a head that turns."""
    told = held.get("partial_rotary_factor", outer.get("partial_rotary_factor"))
    if ropes.share is None:
        if told not in (None, 1):
            raise UnsupportedModel(
                f"config.json: partial_rotary_factor is {shown(told)}, and {who} turns whole heads"
            )
        return {}
    share = _part("partial_rotary_factor", ropes.share if told is None else told)
    if share > 1:
        raise complain("partial_rotary_factor", share, "a share from 0 to 1")
    return {"partial_rotary_factor": share}


def _part(name: str, value: Any) -> Any:
    if name in ("short_factor", "long_factor"):
        if not isinstance(value, list) or not value:
            raise complain(name, value, "a list of numbers, one for each pair of a head")
        return [_part(f"a number of {name}", one) for one in value]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise complain(name, value, "a finite number above 0")
    return value
