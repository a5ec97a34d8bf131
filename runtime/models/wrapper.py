"""Where in a config.json the text model is described: in the whole of it, or in a block of a wrapper.

A multimodal checkpoint keeps the fields of its text model in a block of its own, and exporters call that
block by several names. Every reader of configs, here and above, asks this file; a test refuses the names
elsewhere. So what one reader finds (layers, vocabulary, experts, end ids, quantization) all of them find.
"""

from collections.abc import Mapping
from typing import Any, cast

# Where a file has several, the first one is the text model.
TEXT_BLOCKS = ("text_config", "llm_config", "language_config")
ROPE = ("rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor")
_TIED = "tie_word_embeddings"


def text_block(raw: Mapping[str, Any]) -> str | None:
    """The name of the block that describes the text model; None where the whole config does."""
    return next((name for name in TEXT_BLOCKS if isinstance(raw.get(name), Mapping)), None)


def wrapped(config: Mapping[str, Any], **own: Any) -> dict[str, Any]:
    """What a wrapper with these fields of its own says of a text model."""
    return {**own, TEXT_BLOCKS[0]: dict(config)}


def text_config(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The text model's own fields; what the wrapper says (dtype, quantization) fills the gaps.

    Whether the head is tied is the wrapper's word where it has one: the head is the wrapper's, and the text
    block often holds no more than a default. What a wrapper says of rotation does not reach its text model.
    """
    name = text_block(raw)
    if name is None:
        return dict(raw)
    outer = {key: value for key, value in raw.items() if key not in (*TEXT_BLOCKS, *ROPE)}
    tied = {_TIED: outer[_TIED]} if outer.get(_TIED) is not None else {}
    return {**outer, **raw[name], **tied}


def levels(raw: Mapping[str, Any]) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """(name, block) of the whole config, whose name is "", and of its text block where it has one.

    For readers to whom it matters where a field stands: the blocks are the config's own, not copies.
    """
    name = text_block(raw)
    return (("", raw),) if name is None else (("", raw), (name, cast("Mapping[str, Any]", raw[name])))
