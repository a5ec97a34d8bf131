"""Where in a config.json the text model is described: in the whole of it, or in a block of a wrapper.

A multimodal checkpoint keeps the fields of its text model in a block of its own, and exporters call that
block by several names. Every reader of configs, here and above, asks this file; a test refuses the names
elsewhere. So what one reader finds (layers, vocabulary, experts, end ids, quantization) all of them find.
"""

from collections.abc import Mapping
from typing import Any, cast

# Where a file has several, the first one is the text model.
TEXT_BLOCKS = ("text_config", "llm_config", "language_config")
_AROUND = ("thinker_config",)
"""Blocks that hold such a block: that one of the three models in Qwen's omni files that writes text."""
ROPE = ("rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor")
_TIED = "tie_word_embeddings"


def text_block(raw: Mapping[str, Any]) -> str | None:
    """Where the block stands that describes the text model, its names with dots between; None where the whole
    config does.
    """
    return levels(raw)[-1][0] or None


def next_block(raw: Mapping[str, Any]) -> str | None:
    """The name of the block that describes the text model, or of the one around it; None where neither is."""
    name = _has(raw, TEXT_BLOCKS)
    if name is None:
        around = _has(raw, _AROUND)
        name = around if around and _has(raw[around], TEXT_BLOCKS) else None
    return name


def _has(raw: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if isinstance(raw.get(name), Mapping)), None)


def wrapped(config: Mapping[str, Any], **own: Any) -> dict[str, Any]:
    """What a wrapper with these fields of its own says of a text model."""
    return {**own, TEXT_BLOCKS[0]: dict(config)}


def text_config(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The text model's own fields; what the wrapper says (dtype, quantization) fills the gaps.

    Whether the head is tied is the wrapper's word where it has one: the head is the wrapper's, and the text
    block often holds no more than a default. What a wrapper says of rotation does not reach its text model.
    """
    name = next_block(raw)
    if name is None:
        return dict(raw)
    inner = raw[name] if name in TEXT_BLOCKS else text_config(raw[name])
    outer = {key: value for key, value in raw.items() if key not in (*TEXT_BLOCKS, *_AROUND, *ROPE)}
    tied = {_TIED: outer[_TIED]} if outer.get(_TIED) is not None else {}
    return {**outer, **inner, **tied}


def levels(raw: Mapping[str, Any]) -> tuple[tuple[str, dict[str, Any]], ...]:
    """(name, block) of the whole config, whose name is "", and of its text block where it has one, with the
    block around that between.

    For readers to whom it matters where a field stands: the blocks are the config's own, not copies.
    """
    name, whole = next_block(raw), cast("dict[str, Any]", raw)
    if name is None:
        return (("", whole),)
    inner = cast("dict[str, Any]", raw[name])
    if name in TEXT_BLOCKS:
        return ("", whole), (name, inner)
    return ("", whole), *((f"{name}.{own}" if own else name, block) for own, block in levels(inner))
