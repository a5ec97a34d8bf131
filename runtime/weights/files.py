"""The tensors of safetensors files, as MLX's arrays that are not read yet.

Callers hand over only files whose headers have been validated: MLX itself reads out of bounds on hostile
ones.
"""

from collections.abc import Mapping
from pathlib import Path

import mlx.core as mx

# safetensors' dtype names -> MLX dtypes; F8 types travel as bytes. MLX reads no F64.
DTYPES: dict[str, mx.Dtype] = {
    "F32": mx.float32,
    "F16": mx.float16,
    "BF16": mx.bfloat16,
    "I64": mx.int64,
    "I32": mx.int32,
    "I16": mx.int16,
    "I8": mx.int8,
    "U64": mx.uint64,
    "U32": mx.uint32,
    "U16": mx.uint16,
    "U8": mx.uint8,
    "BOOL": mx.bool_,
    "F8_E4M3": mx.uint8,
    "F8_E8M0": mx.uint8,
}


def is_utf8(path: Path) -> bool:
    """Do MLX and the kernels take a file's name? They want text, and a name may have bytes that are none."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def load_file(path: Path) -> dict[str, mx.array]:
    """The tensors of a safetensors file, not read yet where its name `is_utf8`."""
    if is_utf8(path):
        loaded = mx.load(str(path), format="safetensors")  # lazy: what is mapped is not read
    else:
        with path.open("rb") as file:
            loaded = mx.load(file, format="safetensors")
    assert isinstance(loaded, dict)
    return loaded


def dtype_problems(tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> list[str]:
    """A sentence for each tensor of a type that MLX does not read; tensors: name -> (type, shape)."""
    odd = ((name, dtype) for name, (dtype, _) in sorted(tensors.items()) if dtype not in DTYPES)
    return [f"{name} has dtype {dtype}, which is not read" for name, dtype in odd]
