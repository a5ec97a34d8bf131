"""Which tensors of a checkpoint are a draft head's, by their names alone.

A head is stored as `mtp.*` (ERNIE: `mtp_*`), or as layers after the last that the config counts. mlx-lm runs
no heads, and some of its classes take the tensors of one for a mistake once they are quantized, or for any
number of layers but one. So what is written anew has the head in FILE: mlx-lm reads `model*.safetensors` and
never sees it, and the index names it for everybody else.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from modelkit.source.inventory import Inventory
from modelkit.units import size
from runtime.models.wrapper import text_config

if TYPE_CHECKING:
    from modelkit.pack.planned import Plan

FILE = "head.safetensors"

_NAMED = re.compile(r"(?:model\.|language_model\.)?mtp[._].+", re.ASCII)
_LAYER = re.compile(
    r"(?:model\.|language_model\.model\.|model\.language_model\.)layers\.(\d{1,6})\..+", re.ASCII
)


def in_head(name: str, config: Mapping[str, Any]) -> bool:
    """Is this tensor part of a draft head?"""
    if _NAMED.fullmatch(name):
        return True
    found, layers = _LAYER.fullmatch(name), _layers(config)
    return found is not None and 0 < layers <= int(found[1])


def head_notes(plan: "Plan", *, draft: bool) -> tuple[str, ...]:
    """What becomes of a draft head that the model brings. draft: a DRAFT was named beside it.

    A head that nothing here computes is spoken of with the other parts that are not run.
    """
    from runtime.models import describe

    found = [tensor for tensor in plan.tensors if in_head(tensor.name, plan.config)]
    if not found or describe(plan.config).family.head is None:
        return ()
    held = size(sum(tensor.nbytes for tensor in found))
    if draft:
        return (f"the model's own draft head ({held}) is stored and not used: DRAFT takes its place",)
    return (f"the model brings a draft head of its own ({held}), which drafts without a DRAFT line",)


def has_head(inventory: Inventory) -> bool:
    return any(in_head(name, inventory.config) for name in inventory.tensors)


def _layers(config: Mapping[str, Any]) -> int:
    value = text_config(config).get("num_hidden_layers")
    return value if type(value) is int else 0
