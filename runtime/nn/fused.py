"""The column of a GPU: MLX's own kernels, which fuse what a definition says in several steps."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.protocol import Mask
from runtime.cpu.turn import Rotary
from runtime.nn import plain
from runtime.step import Step

SORTED_FROM = 64
"""Rows from which bringing them into the order of their experts pays."""


def linear(module: Any, x: mx.array) -> mx.array:
    if "blocks" in vars(module):
        return plain.linear(module, x)
    kind = nn.QuantizedLinear if "scales" in module else nn.Linear
    return kind.__call__(module, x)


def embed(module: Any, ids: mx.array) -> mx.array:
    if "scales" in module or "blocks" in vars(module):
        return plain.embed(module, ids)
    rows = mx.take(module["weight"], ids, axis=0)
    return rows.astype(vars(module).get(plain.ANSWERS_IN, rows.dtype))


def by_heads(module: Any, x: mx.array, back: bool) -> mx.array:
    if "scales" not in module:
        return plain.by_heads(module, x, back)
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
    if "blocks" in vars(module):
        return plain.gather(module, x, chosen, ordered)
    if "scales" in module:
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
