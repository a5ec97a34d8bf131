"""What holds for every config.json, whatever family it is of.

Asked first, so that no reader below meets a list of a million entries, a nest of a thousand blocks or a
number that no computation takes. And what no family here computes is refused in this one place.
"""

from collections.abc import Mapping
from typing import Any, cast

from runtime.config.text import levels
from runtime.errors import UnsupportedModel
from runtime.quoting import quoted

# Published files hold label maps of a thousand names and lists of a few thousand ids; Chameleon repeats its
# vocabulary of 65,536 words there.
_MOST_ENTRIES = 1 << 17
_DEEPEST = 12
_LONGEST_NAME = 256
_LEAVES = frozenset({str, int, float, bool, type(None)})  # asked first: nearly all, and quick to tell


def check_document(raw: Mapping[str, Any]) -> None:
    """Raise UnsupportedModel for what cannot be a model's config, or asks for what nothing here computes."""
    _count(raw, 0, 0)
    for _, level in levels(raw):
        if not isinstance(level.get("model_type", ""), str | None):
            raise UnsupportedModel(
                f"config.json: model_type is {quoted(level['model_type'])}, expected a word"
            )


def refuse_both_ways(raw: Mapping[str, Any]) -> None:
    """transformers masks no future for any family whose file says so (embedding models made of decoders)."""
    for _, level in levels(raw):
        causal = level.get("is_causal")
        if causal is not None and causal is not True:
            raise UnsupportedModel(
                f"config.json: is_causal is {quoted(causal)}; only tokens that see what stands before them "
                "are computed for this family"
            )


def _count(value: Any, seen: int, depth: int) -> int:
    """Entries up to and with this value; refuses too many of them and too deep nests."""
    if not isinstance(value, Mapping | list | tuple):
        return seen + 1
    if depth > _DEEPEST:
        raise UnsupportedModel(f"config.json: blocks are nested more than {_DEEPEST} deep")
    parts = cast("Mapping[Any, Any] | list[Any] | tuple[Any, ...]", value)
    seen += len(parts)
    if seen > _MOST_ENTRIES:
        raise UnsupportedModel(f"config.json: it has more than {_MOST_ENTRIES} entries")
    if isinstance(parts, Mapping):
        names = cast("Mapping[str, Any]", parts)
        for name in names:
            if len(name) > _LONGEST_NAME:
                raise UnsupportedModel(f"config.json: a field is named {quoted(name)}")
        parts = list(names.values())
    for part in parts:
        if type(part) not in _LEAVES and isinstance(part, Mapping | list | tuple):
            seen = _count(part, seen, depth + 1)
    return seen
