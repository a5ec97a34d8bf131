"""Files made on the spot: safetensors with zeros for data, and model folders around them."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from modelkit.source.inventory import Inventory, read_inventory
from modelkit.source.tensor import BITS
from modelkit.source.tree import read_directory

Specs = Mapping[str, tuple[str, tuple[int, ...]]]


def raw(header: object, data: bytes = b"") -> bytes:
    """A safetensors file with this header, as given (bytes, text, or something to write as JSON)."""
    if not isinstance(header, bytes):
        header = (header if isinstance(header, str) else json.dumps(header)).encode()
    return len(header).to_bytes(8, "little") + header + data


def entry(dtype: str, shape: list[Any], start: int, stop: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def safetensors(tensors: Specs) -> bytes:
    """A valid file: name -> (dtype, shape), all zeros."""
    header: dict[str, Any] = {}
    stop = 0
    for name, (dtype, shape) in tensors.items():
        start, stop = stop, stop + math.prod(shape) * BITS[dtype] // 8
        header[name] = entry(dtype, list(shape), start, stop)
    return raw(header, bytes(stop))


WEIGHTS: Specs = {"model.embed_tokens.weight": ("F32", (8, 4)), "model.norm.weight": ("BF16", (4,))}


def write_source(folder: Path, tensors: Specs = WEIGHTS, **config: Any) -> Path:
    """A folder with config.json, tokenizer.json and model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", **config}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(safetensors(tensors))
    return folder


def take_stock(folder: Path) -> Inventory:
    return read_inventory(read_directory(folder), "source")
