"""What is known of a model's files before any is read: the record of its family, and facts of its config."""

from collections.abc import Mapping
from typing import Any

from runtime.config.text import text_config
from runtime.quant import Format
from runtime.tensors.checkpoint import PLAIN, Checkpoint
from runtime.tensors.quantizing import Request


def checkpoint_of(config: Mapping[str, Any]) -> Checkpoint:
    """What is particular to the files of the family that runs this config; PLAIN where none does, which is
    refused in another place.
    """
    from runtime.errors import UnsupportedModel
    from runtime.models import find_family

    try:
        return find_family(config).checkpoint(text_config(config))
    except UnsupportedModel:
        return PLAIN


def request_for(wanted: Format, config: Mapping[str, Any]) -> Request:
    """The facts rows ask about, from a Hugging Face config; nested text configs are looked into."""
    text, files = text_config(config), checkpoint_of(config)
    layers = _count(text, "num_hidden_layers") or files.default_layers
    experts = _count(text, "num_experts") or _count(text, "num_local_experts")
    return Request(wanted, layers, experts, _dense_layers(text), files.towers)


def _count(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    return value if type(value) is int and value > 0 else 0


def _dense_layers(config: Mapping[str, Any]) -> frozenset[int]:
    kinds = config.get("mlp_layer_types")
    if isinstance(kinds, list):
        return frozenset(i for i, kind in enumerate(kinds) if kind == "dense")
    listed = config.get("mlp_only_layers")
    if isinstance(listed, list):
        return frozenset(i for i in listed if type(i) is int)
    return frozenset((0,))
