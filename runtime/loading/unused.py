"""What a checkpoint holds that is kept with the model and never run: towers for other media, draft heads that
no code here computes. Told by names alone, which the family's record has; what is said is what is left out.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from runtime.errors import RuntimeFault, WeightMismatch
from runtime.models.registry.described import Described

if TYPE_CHECKING:
    import mlx.core as mx

_T = TypeVar("_T")


def without_unused(described: Described, weights: Mapping[str, _T]) -> dict[str, _T]:
    """The tensors that are run, and those of a draft head that can be."""
    return {
        name: array
        for name, array in weights.items()
        if not described.checkpoint.towers.has(name)
        and not described.checkpoint.never_read(name)
        and not described.checkpoint.is_spare(name)
        and not _in_unused_head(described, name)
    }


def adapted(
    described: Described, weights: "Mapping[str, mx.array]", part: Any = None
) -> "dict[str, mx.array]":
    """These tensors under the names of the network, or of `part` of the family: its head. Raises
    WeightMismatch, also where tensors have not the sizes that a family reckons with.
    """
    try:
        return (part or described.family).adapt(described.config, without_unused(described, weights))
    except RuntimeFault:
        raise
    except (ValueError, IndexError, KeyError, TypeError) as fault:
        raise WeightMismatch([f"{described.name} cannot take these tensors: {fault!s:.200}"]) from fault


def unused_parts(described: Described, names: Iterable[str]) -> tuple[str, ...]:
    """A sentence for each part of a checkpoint with these tensors that is not run, () when all of it is."""
    names = sorted(names)
    heads = [name for name in names if _in_unused_head(described, name)]
    towers = [name for name in names if described.checkpoint.towers.has(name)]
    unread = [name for name in names if described.checkpoint.never_read(name)]
    return (
        *_unused_note("what embeddings are not made of", unread, "hidden states are all that is asked for"),
        *_unused_note("the draft head", heads, f"heads of {described.name} are not computed here"),
        *_unused_note("what is for images and sound", towers, "models run on text alone here"),
    )


def _in_unused_head(described: Described, name: str) -> bool:
    return described.family.head is None and described.checkpoint.in_head(name, len(described.layout))


def _unused_note(part: str, names: list[str], why: str) -> tuple[str, ...]:
    if not names:
        return ()
    what = f"{names[0]} and {len(names) - 1:,} more" if len(names) > 1 else names[0]
    return (f"{part} is stored and not run ({what}): {why}",)
