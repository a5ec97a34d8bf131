"""What config.json says about quantization, wherever exporters put it."""

from collections.abc import Iterator, Mapping
from typing import Any

from runtime.config.text import levels

BLOCKS = ("quantization", "quantization_config", "compression_config")


def quantization_blocks(config: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(where, block) for each non-empty quantization block, outer ones first."""
    for name, level in levels(config):
        for key in BLOCKS:
            block = level.get(key)
            if isinstance(block, Mapping) and block:
                yield f"{name}.{key}" if name else key, block


def claimed_method(config: Mapping[str, Any]) -> str | None:
    """The `quant_method` that config.json names first, in lower case."""
    for _, block in quantization_blocks(config):
        method = block.get("quant_method")
        if isinstance(method, str) and method:
            return method.lower()
    return None
