"""What config.json says about quantization, wherever exporters put it."""

from collections.abc import Iterator, Mapping
from typing import Any

_BLOCKS = ("quantization", "quantization_config", "compression_config")
_INNER = ("text_config", "llm_config")


def quantization_blocks(config: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(where, block) for each non-empty quantization block, outer ones first."""
    inner = ((f"{key}.", config.get(key)) for key in _INNER)
    for prefix, holder in (("", config), *inner):
        for key in _BLOCKS:
            block = holder.get(key) if isinstance(holder, Mapping) else None
            if isinstance(block, Mapping) and block:
                yield f"{prefix}{key}", block


def claimed_method(config: Mapping[str, Any]) -> str | None:
    """The `quant_method` that config.json names first, in lower case."""
    for _, block in quantization_blocks(config):
        method = block.get("quant_method")
        if isinstance(method, str) and method:
            return method.lower()
    return None
