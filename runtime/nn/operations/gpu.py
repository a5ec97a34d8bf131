"""The column of a GPU: MLX's own kernels, which fuse what a definition says in several steps."""

from collections.abc import Callable
from functools import cache
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.protocol import Mask
from runtime.nn.operations import plain
from runtime.parts.rotary import Rotary
from runtime.step import Step

CUDA = mx.cuda.is_available()
SORTED_FROM = 64
"""Rows from which bringing them into the order of their experts pays."""
UNPACKED_FROM = 12
"""Rows per expert from which unpacking a whole stack first pays on CUDA: docs/performance.md."""
MOST_UNPACKED = 1 / 16
"""Of the device's memory, that one unpacked stack may take."""


def linear(module: Any, x: mx.array) -> mx.array:
    if "blocks" in vars(module) or _unserved(module, x):
        return plain.linear(module, x)
    kind = nn.QuantizedLinear if "scales" in module else nn.Linear
    return kind.__call__(module, x)


def embed(module: Any, ids: mx.array) -> mx.array:
    if "scales" in module or "blocks" in vars(module):
        return plain.embed(module, ids)
    rows = mx.take(module["weight"], ids, axis=0)
    return rows.astype(vars(module).get(plain.ANSWERS_IN, rows.dtype))


def by_heads(module: Any, x: mx.array, back: bool) -> mx.array:
    if "scales" not in module or (_unserved(module, x) and not back):
        return plain.by_heads(module, x, back)
    if x.shape[0] > 1:  # each head's weights are read once for all rows
        rows, heads, length, _ = x.shape
        together = x.swapaxes(0, 1).reshape(heads, rows * length, -1)
        answers = by_heads(module, together[None], back)
        return answers.reshape(-1, rows, length, answers.shape[-1]).swapaxes(0, 1)
    return mx.quantized_matmul(
        x,
        module["weight"],
        module["scales"],
        module.get("biases"),
        transpose=not back,
        group_size=module.group_size,
        bits=module.bits,
        mode=module.mode,
    )


def gather(module: Any, x: mx.array, chosen: mx.array, ordered: bool) -> mx.array:
    if "blocks" in vars(module) or _unserved(module, x):
        return plain.gather(module, x, chosen, ordered)
    if ordered:
        # CUDA's product of sorted rows takes the stride of the axis before `in` for the distance of two rows.
        # An axis that somebody put in has another, and so has what is computed in such an array's memory:
        # silently wrong. What is flattened and unflattened has the strides of its shape (mlx#4253).
        x = x.reshape(x.shape[0], -1).reshape(x.shape)
    if "scales" in module and ordered and _pays_unpacked(module, chosen.size):
        weight = mx.dequantize(
            module["weight"],
            module["scales"],
            module.get("biases"),
            group_size=module.group_size,
            bits=module.bits,
            mode=module.mode,
            dtype=x.dtype,
        )
        y = mx.gather_mm(x, weight.swapaxes(-1, -2), rhs_indices=chosen, sorted_indices=True)
    elif "scales" in module:
        y = mx.gather_qmm(
            x,
            module["weight"],
            module["scales"],
            module.get("biases"),
            rhs_indices=chosen,
            transpose=True,
            group_size=module.group_size,
            bits=module.bits,
            mode=module.mode,
            sorted_indices=ordered,
        )
    else:
        weight = module["weight"].swapaxes(-1, -2)
        y = mx.gather_mm(x, weight, rhs_indices=chosen, sorted_indices=ordered)
    return y + module["bias"][chosen][..., None, :] if "bias" in module else y


def _unserved(module: Any, x: mx.array) -> bool:
    """CUDA has products of many rows with packed weights whose width is a multiple of 64."""
    return CUDA and x.shape[-1] % 64 != 0 and "scales" in module


def _pays_unpacked(module: Any, rows: int) -> bool:
    """On CUDA, whose product with packed stacks reads an expert's weights once for every row that asks it."""
    experts, outputs, packed = module["weight"].shape
    unpacked = 2 * experts * outputs * packed * 32 // module.bits
    return CUDA and rows >= UNPACKED_FROM * experts and unpacked <= _total_memory() * MOST_UNPACKED


@cache
def _total_memory() -> int:
    return int(mx.device_info().get("total_memory", 0))


def pick(
    x: mx.array, matrices: mx.array, at: mx.array, own: mx.array | None = None, same: int | None = None
) -> mx.array:
    """CUDA's gathered product takes half a minute to compile, and reads where it must not (a misaligned
    address, behind which the process can use the device no more) where the rows of a matrix are no multiple
    of 16 bytes, as of low rank.
    """
    if CUDA:
        return x @ (matrices[at] if same is None else matrices[same])
    return mx.gather_mm(x, matrices, own, at)


def ask(x: mx.array, chosen: mx.array, answer: Callable[..., mx.array], experts: int | None) -> mx.array:
    """Few rows are multiplied one by one. Many are brought into the order of their experts first, so that a
    gathered product reads each expert's weights once.
    """
    if chosen.size < SORTED_FROM:
        return plain.ask(x, chosen, answer, experts)
    tokens, flat = x.flatten(0, -2), chosen.flatten()
    order = mx.argsort(flat)
    answers = answer(tokens[order // chosen.shape[-1]][:, None, :], flat[order], True)
    return answers[mx.argsort(order)].reshape(*chosen.shape, -1)


def rms_norm(module: Any, x: mx.array) -> mx.array:
    # MLX answers in the wider of x's type and the weight's, and weights of norms may be float32 beside 16-bit
    # ones (`runtime.nn.norm`).
    return mx.fast.rms_norm(x, module["weight"], module.eps).astype(x.dtype)


def add_rms_norm(module: Any, x: mx.array, to: mx.array) -> mx.array:
    return to + rms_norm(module, x)


def rms(x: mx.array, eps: float) -> mx.array:
    return mx.fast.rms_norm(x, None, eps)


def layer_norm(module: Any, x: mx.array) -> mx.array:
    return mx.fast.layer_norm(x, module.get("weight"), module.get("bias"), module.eps).astype(x.dtype)


def standardize(x: mx.array, eps: float) -> mx.array:
    return mx.fast.layer_norm(x, None, None, eps)


def rotate(rope: Rotary, x: mx.array, step: Step) -> mx.array:
    return plain.rotate(rope, x, step) if step.moved else rope.fused(x, step)


def attend(
    step: Step | None,
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    mask: Mask,
    *,
    scale: float,
    softcap: float | None = None,
    sinks: mx.array | None = None,
) -> mx.array:
    if softcap is not None:  # MLX's kernel has none
        return plain.attend(step, queries, keys, values, mask, scale=scale, softcap=softcap, sinks=sinks)
    return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=mask, sinks=sinks)


ACTIVATIONS = plain.ACTIVATIONS | {
    "silu": nn.silu,
    "gelu": nn.gelu,
    "gelu_tanh": nn.gelu_approx,
    "relu2": nn.relu2,
}


def gated(activation: str, gate: mx.array, up: mx.array) -> mx.array:
    return ACTIVATIONS[activation](gate) * up


def settled(indices: mx.array) -> mx.array:
    return indices
