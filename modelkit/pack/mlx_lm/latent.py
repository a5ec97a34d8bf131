"""Packed `kv_b_proj` of latent attention as the two matrices that mlx-lm makes of it.

A head's rows are those of its keys, which mlx-lm turns over, and those of its values. Packed columns cannot
be turned over: mlx-lm unpacks the matrix and packs both parts again, in other groups, so that every number is
rounded a second time. Here values keep their codes, and keys are unpacked, which floats hold.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np

from modelkit.pack.mlx_lm.mutable_folder import MutableFolder
from modelkit.pack.mlx_lm.pieces import FLOATS, CannotFix, rows
from modelkit.pack.planning.plan_types import Output
from modelkit.pack.writing.reader import Reader
from modelkit.source.tensor import TensorInfo
from runtime.records import dataclass

_WORDS = {**FLOATS, "U32": mx.uint32, "U8": mx.uint8}


@dataclass(frozen=True, slots=True)
class Keys:
    """`embed_q` [heads, rank, size], unpacked."""

    output: Output
    packed: tuple[TensorInfo, ...]
    """weight, scales and, where the format has them, biases; [heads * (size + values), ...]"""
    form: Mapping[str, Any]
    """How they are packed: `mx.dequantize`'s arguments."""

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (self.output,)

    def called(self, name: str) -> "Keys":
        return replace(self, output=replace(self.output, name=name))

    def pieces(self, reader: Reader) -> Iterator[tuple[memoryview, ...]]:
        """A head at a time."""
        heads, _, size = self.output.shape
        for head in range(heads):
            parts = [_rows(tensor, head, heads, reader)[:size] for tensor in self.packed]
            codes, scales, *biases = parts[0], *map(_widened, parts[1:])
            numbers = mx.dequantize(codes, scales, biases[0] if biases else None, **self.form).T
            made = mx.contiguous(numbers.astype(FLOATS[self.output.dtype]))
            yield (np.array(made.reshape(-1).view(mx.uint8)).data,)


def _rows(tensor: TensorInfo, head: int, heads: int, reader: Reader) -> mx.array:
    size = tensor.nbytes // heads
    start = tensor.start + head * size
    raw = mx.array(np.frombuffer(reader.read_range(tensor.path, start, start + size), np.uint8))
    return raw.view(_WORDS[tensor.dtype]).reshape(tensor.shape[0] // heads, -1)


def _widened(part: mx.array) -> mx.array:
    return part if part.dtype == mx.uint8 else part.astype(mx.float32)


def apart(folder: MutableFolder) -> str:
    sizes = ("num_attention_heads", "qk_nope_head_dim", "v_head_dim", "kv_lora_rank")
    heads, size, values, rank = map(folder.count, sizes)
    height, dtype = size + values, folder.floats()
    chosen = [head * height + size + row for head in range(heads) for row in range(values)]
    for module in folder.modules("self_attn.kv_b_proj"):
        named = [f"{module}.{part}" for part in ("weight", "scales", "biases")]
        found = [tensor for tensor in map(folder.find, named) if tensor is not None]
        if len(found) < 2:
            continue
        if any(tensor.shape[0] != heads * height or tensor.dtype not in _WORDS for tensor in found):
            raise CannotFix(module)
        before = module.removesuffix("kv_b_proj")
        form = folder.form_of(module)
        keys = Output(f"{before}embed_q.weight", dtype, (heads, rank, size))
        folder.beside(named[0], Keys(keys, tuple(found), form))
        for tensor in found:
            name = f"{before}unembed_out.{tensor.name.rpartition('.')[2]}"
            made = rows(name, tensor, chosen)
            shape = (heads, values, tensor.shape[1])
            folder.put(tensor.name, replace(made, output=replace(made.output, shape=shape)))
    folder.rename_modules(lambda module: module.replace("self_attn.kv_b_proj", "self_attn.unembed_out"))
    return "kv_b_proj apart: values as they are packed, keys unpacked"
