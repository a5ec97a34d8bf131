"""What a checkpoint holds that is kept with the model and never run: towers for other media, draft heads that
no code here computes. Families leave such tensors out when they load; this says so, by names alone.
"""

import re
from collections.abc import Iterable

from runtime.models.architecture import Described

_TOWER = re.compile(
    r"(?:model\.)?(?:(?:vision|audio|sound|embed_vision|embed_audio)(?:_\w+)?|visual|multi_modal_projector|mlp1)\..+"
)
_HEAD = re.compile(r"(?:model\.)?mtp[._].+")


def unused_parts(described: Described, names: Iterable[str]) -> tuple[str, ...]:
    """A sentence for each part of a checkpoint with these tensors that is not run, () when all of it is."""
    names = sorted(names)
    heads = [] if described.family.head else [name for name in names if _HEAD.fullmatch(name)]
    towers = [name for name in names if _TOWER.fullmatch(name)]
    return (
        *_said("the draft head", heads, f"heads of {described.name} are not computed here"),
        *_said("what is for images and sound", towers, "models run on text alone here"),
    )


def _said(part: str, names: list[str], why: str) -> tuple[str, ...]:
    if not names:
        return ()
    what = f"{names[0]} and {len(names) - 1:,} more" if len(names) > 1 else names[0]
    return (f"{part} is stored and not run ({what}): {why}",)
