"""Which tensors of a checkpoint are a draft head's, by their names alone, which the family's record tells.

A head is stored as `mtp.*` (ERNIE: `mtp_*`), or as layers after the last that the config counts. mlx-lm runs
no heads, and some of its classes take the tensors of one for a mistake once they are quantized, or for any
number of layers but one. So what is written anew has the head in FILE: mlx-lm reads `model*.safetensors` and
never sees it, and the index names it for everybody else.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from modelkit.pack.planning.families import checkpoint_of
from modelkit.source.inventory import Inventory
from modelkit.units import size
from runtime.config.text import text_config

if TYPE_CHECKING:
    from modelkit.pack.planning.plan_types import Plan

FILE = "head.safetensors"


def in_head(config: Mapping[str, Any]) -> Callable[[str], bool]:
    """Tells which tensors, by their names, are part of a draft head of that model."""
    files, layers = checkpoint_of(config), text_config(config).get("num_hidden_layers")
    count = layers if type(layers) is int else 0
    return lambda name: files.in_head(name, count)


def head_notes(plan: "Plan", *, draft: bool) -> tuple[str, ...]:
    """What becomes of a draft head that the model brings. draft: a DRAFT was named beside it.

    A head that nothing here computes is spoken of with the other parts that are not run.
    """
    from runtime.models import describe

    is_head = in_head(plan.config)
    found = [tensor for tensor in plan.tensors if is_head(tensor.name)]
    if not found or describe(plan.config).family.head is None:
        return ()
    held = size(sum(tensor.nbytes for tensor in found))
    if plan.role == "draft":
        return (f"its own draft head ({held}) is stored and not used: a draft guesses without it",)
    if draft:
        return (f"the model's own draft head ({held}) is stored and not used: DRAFT takes its place",)
    return (f"the model brings a draft head of its own ({held}), which drafts without a DRAFT line",)


def has_head(inventory: Inventory) -> bool:
    return any(map(in_head(inventory.config), inventory.tensors))
