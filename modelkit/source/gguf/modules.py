"""What a GGUF file says of embeddings, as the files of sentence-transformers: how a text's tokens become one
vector, and Dense modules behind that.

Weights of Dense modules keep the floats that they are; blocks become float32, the same numbers.
"""

import json
import math
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from modelkit.errors import MalformedFile, UnsupportedSource
from modelkit.source.gguf.header import GgufTensor
from modelkit.source.tree import MODULE_WEIGHTS, open_regular
from runtime.quoting import quoted, shown

if TYPE_CHECKING:
    from modelkit.source.gguf.file import GgufFile

POOLINGS = {0: None, 1: "mean", 2: "cls", 3: "lasttoken"}
"""llama.cpp's numbers, and sentence-transformers' words."""
DENSE = ("dense_2", "dense_3")
"""Tensors of a file that are Dense modules behind pooling, in order."""
POOLING = "1_Pooling/config.json"

_CLASSES = "sentence_transformers.models."
_IDENTITY = "torch.nn.modules.linear.Identity"
_FLOATS = {"f32": "F32", "f16": "F16", "bf16": "BF16"}
_MOST_NUMBERS = 1 << 26
"""Of a module's weights. Published ones have two million."""


def module_files(gguf: "GgufFile", dense: Sequence[str]) -> dict[str, bytes]:
    """Name in the model's folder -> content; {} where the metadata say nothing. dense: names of tensors.

    Raises UnsupportedSource for a way of pooling that no embedding is made by, MalformedFile for Dense
    modules that nothing is said to be pooled for.
    """
    mode = _mode(gguf.metadata, gguf.label)
    made = {} if mode is None else {POOLING: _json({"pooling_mode": mode})}
    if not dense:
        return made
    if mode is None:
        raise MalformedFile(f"{gguf.label}: `{dense[0]}` follows pooling, and no `pooling_type` is told")
    modules = ["", "1_Pooling", *(f"{place}_Dense" for place in range(2, 2 + len(dense)))]
    for folder, name in zip(modules[2:], dense, strict=True):
        tensor = gguf.tensors[name]
        outputs, inputs = tensor.shape
        made[f"{folder}/config.json"] = _json(
            {"in_features": inputs, "out_features": outputs, "bias": False, "activation_function": _IDENTITY}
        )
        made[f"{folder}/{MODULE_WEIGHTS}"] = _weights(tensor, gguf.label)
    modules.append(f"{len(modules)}_Normalize")
    kinds = ["Transformer", *(folder.partition("_")[2] for folder in modules[1:])]
    rows = [
        {"idx": place, "name": str(place), "path": folder, "type": _CLASSES + kind}
        for place, (folder, kind) in enumerate(zip(modules, kinds, strict=True))
    ]
    return {**made, "modules.json": _json(rows)}


def _mode(metadata: Mapping[str, Any], label: str) -> str | None:
    told = metadata.get(f"{metadata.get('general.architecture')}.pooling_type", 0)
    if type(told) is not int or told not in POOLINGS:
        raise UnsupportedSource(
            f"{label}: its `pooling_type` is {quoted(told)}, which no embedding is made by",
            hint="Files that rank texts (4) are not run.",
        )
    return POOLINGS[told]


def _weights(tensor: GgufTensor, label: str) -> bytes:
    """As a file of safetensors with the one tensor `linear.weight`."""
    if math.prod(tensor.shape) > _MOST_NUMBERS:
        raise UnsupportedSource(
            f"{label}: tensor `{shown(tensor.name)}` {list(tensor.shape)} is too large for a Dense module"
        )
    with open_regular(tensor.path, label) as file:
        file.seek(tensor.start)
        data = file.read(tensor.nbytes)
    if len(data) != tensor.nbytes:
        raise MalformedFile(f"{label} became shorter while it was read")
    dtype = _FLOATS.get(tensor.type.name)
    if dtype is None:
        dtype, data = "F32", _decoded(tensor, data)
    said = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [0, len(data)]}
    header = json.dumps({"linear.weight": said}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + data


def _decoded(tensor: GgufTensor, data: bytes) -> bytes:
    import mlx.core as mx
    import numpy as np

    from runtime.blocks.decode import decoded

    rows = mx.array(np.frombuffer(data, np.uint8).reshape(*tensor.shape[:-1], -1))
    return np.array(decoded(rows, tensor.type), np.float32).tobytes()


def _json(said: object) -> bytes:
    return json.dumps(said).encode() + b"\n"
