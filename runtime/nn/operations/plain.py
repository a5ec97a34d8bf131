"""The plain column: every operation as it is defined, in straight MLX. Nothing here is meant to be fast.

What a faster column is held against, and what a wrong answer is looked for with. Sums that decide (norms,
softmax) are float32; packed matrices are unpacked whenever they are used. Answers have the type of x.
"""

import math
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.blocks.decode import decoded
from runtime.cache.protocol import Mask
from runtime.cpu.native.tables import ANSWERS_IN
from runtime.parts.rotary import Rotary
from runtime.step import Step


def linear(module: nn.Module, x: mx.array) -> mx.array:
    y = x @ unpacked(module, x.dtype).T
    return y + module["bias"] if "bias" in module else y


def embed(module: nn.Module, ids: mx.array) -> mx.array:
    dtype = vars(module).get(ANSWERS_IN)
    rows = unpacked(module, dtype, ids)
    return rows if dtype is None else rows.astype(dtype)


def matmul(x: mx.array, w: mx.array, transposed: bool = False) -> mx.array:
    return x @ (w.swapaxes(-1, -2) if transposed else w)


def gather(module: nn.Module, x: mx.array, chosen: mx.array, ordered: bool) -> mx.array:
    """One expert after the other, each by a product with all rows, of which its own are kept."""
    weight = unpacked(module, x.dtype)
    shape = (*mx.broadcast_shapes(x.shape[:-2], chosen.shape), x.shape[-2], weight.shape[1])
    y = mx.zeros(shape, x.dtype)
    for expert in range(weight.shape[0]):
        asked = (chosen == expert)[..., None, None]
        y = mx.where(asked, x @ weight[expert].T, y)
    return y + module["bias"][chosen][..., None, :] if "bias" in module else y


def by_heads(module: Any, x: mx.array, back: bool) -> mx.array:
    return matmul(x, unpacked(module, x.dtype), transposed=not back)


def ask(x: mx.array, chosen: mx.array, answer: Callable[..., mx.array], experts: int | None) -> mx.array:
    return answer(x[..., None, None, :], chosen, False).squeeze(-2)


def route(*_: Any, **__: Any) -> None:
    """Step by step (`runtime.nn.feed_forward.router`)."""


def penalise(*_: Any, **__: Any) -> None:
    """Step by step (`runtime.sampling.penalties`)."""


def draw(*_: Any, **__: Any) -> None:
    """Step by step (`runtime.sampling.group`)."""


def guess(*_: Any, **__: Any) -> None:
    """Step by step (`runtime.speculate.draft_model`)."""


def pick(
    x: mx.array, matrices: mx.array, at: mx.array, own: mx.array | None = None, same: int | None = None
) -> mx.array:
    return x @ matrices[at]


def add_pairs(*_: Any, **__: Any) -> None:
    """Step by step (`runtime.nn.adapters.rows`)."""


def rms_norm(module: Any, x: mx.array) -> mx.array:
    return (rms(x.astype(mx.float32), module.eps) * module["weight"]).astype(x.dtype)


def rms(x: mx.array, eps: float) -> mx.array:
    wide = x.astype(mx.float32)
    return (wide / mx.sqrt(wide.square().mean(axis=-1, keepdims=True) + eps)).astype(x.dtype)


def add_rms_norm(module: Any, x: mx.array, to: mx.array) -> mx.array:
    return to + rms_norm(module, x)


def layer_norm(module: Any, x: mx.array) -> mx.array:
    y = standardize(x.astype(mx.float32), module.eps)
    if "weight" in module:
        y = y * module["weight"]
    if "bias" in module:
        y = y + module["bias"]
    return y.astype(x.dtype)


def standardize(x: mx.array, eps: float) -> mx.array:
    wide = x.astype(mx.float32)
    centred = wide - wide.mean(axis=-1, keepdims=True)
    return (centred / mx.sqrt(centred.square().mean(axis=-1, keepdims=True) + eps)).astype(x.dtype)


def rotate(rope: Rotary, x: mx.array, step: Step) -> mx.array:
    """Pair i of x turned by its angle: (a, b) -> (a cos - b sin, b cos + a sin)."""
    angles = rope.angles(step)
    dims = angles.shape[-1]
    cos, sin = mx.cos(angles) * rope.factor, mx.sin(angles) * rope.factor
    if angles.ndim == 3:  # a table for each row, and one for all of its heads
        cos, sin = cos[:, None], sin[:, None]
    turning, rest = x[..., :dims].astype(mx.float32), x[..., dims:]
    if rope.traditional:
        a, b = turning[..., 0::2], turning[..., 1::2]
        other = mx.stack([b, a], axis=-1).flatten(-2)
    else:
        other = mx.concatenate([turning[..., dims // 2 :], turning[..., : dims // 2]], axis=-1)
    # The sine's sign is in the angles: the first of a pair turns by a negative one.
    return mx.concatenate([(turning * cos + other * sin).astype(x.dtype), rest], axis=-1)


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
    """softmax(queries · keysᵀ · scale + mask) · values, [B, H, L, Dv], with the softmax in float32."""
    batch, heads, width, _ = queries.shape
    groups, seen = keys.shape[1], keys.shape[2]
    grouped = queries.reshape(batch, groups, heads // groups, width, -1)
    scores = (grouped * scale) @ keys[:, :, None].swapaxes(-1, -2)
    if softcap is not None:
        scores = mx.tanh(scores / softcap) * softcap
    visible = causal_mask(width, seen) if isinstance(mask, str) else mask
    if visible is not None:
        if visible.ndim == 4:  # one for all heads, or one for each
            visible = mx.unflatten(visible, 1, (1, 1) if visible.shape[1] == 1 else (groups, -1))
        low = mx.array(-float("inf"), scores.dtype)
        if visible.dtype == mx.bool_:
            scores = mx.where(visible, scores, low)
        else:  # the key of a token whose numbers are none makes NaN of its score, which no sum would hide
            scores = mx.where(visible > max(mx.finfo(visible.dtype).min, -1e30), scores + visible, visible)
    weights = _with_sinks(scores, sinks, groups)
    return (weights @ values[:, :, None]).reshape(batch, heads, width, -1)


def _with_sinks(scores: mx.array, sinks: mx.array | None, groups: int) -> mx.array:
    if sinks is None:
        return softmax(scores)
    extra = mx.broadcast_to(sinks.reshape(1, groups, -1, 1, 1), (*scores.shape[:-1], 1)).astype(scores.dtype)
    return softmax(mx.concatenate([scores, extra], axis=-1))[..., :-1]


def causal_mask(width: int, seen: int) -> mx.array:
    """bool [width, seen]: the last query is aligned with the last key."""
    return mx.arange(seen)[None, :] <= (mx.arange(width) + seen - width)[:, None]


def likeliest(x: mx.array) -> mx.array:
    return mx.argmax(x, axis=-1).astype(mx.int32)


def softmax(x: mx.array) -> mx.array:
    return mx.softmax(x, axis=-1, precise=True)


def silu(x: mx.array) -> mx.array:
    return x * mx.sigmoid(x)


def gelu(x: mx.array) -> mx.array:
    return x * (1 + mx.erf(x / math.sqrt(2))) / 2


def gelu_tanh(x: mx.array) -> mx.array:
    return x * (1 + mx.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))) / 2


def relu(x: mx.array) -> mx.array:
    return mx.maximum(x, 0)


def relu2(x: mx.array) -> mx.array:
    return mx.square(mx.maximum(x, 0))


def softplus(x: mx.array) -> mx.array:
    return mx.logaddexp(x, 0)


ACTIVATIONS = {
    "silu": silu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "relu": relu,
    "relu2": relu2,
    "softplus": softplus,
    "sigmoid": mx.sigmoid,
    "tanh": mx.tanh,
}


def gated(activation: str, gate: mx.array, up: mx.array) -> mx.array:
    return ACTIVATIONS[activation](gate) * up


def clipped_gate(gate: mx.array, up: mx.array, limit: float, slope: float) -> mx.array:
    gate = mx.minimum(gate, limit)
    up = mx.clip(up, -limit, limit)
    return (up + 1) * (gate * mx.sigmoid(gate * slope))


def cut(x: mx.array, times: float) -> mx.array:
    least = x.mean(axis=-1, keepdims=True) + x.var(axis=-1, keepdims=True).sqrt() * times
    return mx.maximum(x - least, 0)


def bend(module: Any, x: mx.array) -> mx.array:
    """In float32: a slope rounded to 16 bits would be off for all that is above or below zero."""
    wide, beta = x.astype(mx.float32), module.beta.astype(mx.float32)
    rise, fall = (softplus(slope.astype(mx.float32)) for slope in (module.alpha_p, module.alpha_n))
    below = (mx.expm1(mx.minimum(wide, module.eps)) - wide) * (beta + fall)
    return (mx.where(wide > 0, rise * wide * wide, below) + beta * wide).astype(x.dtype)


def mix_streams(streams: mx.array, by: mx.array) -> mx.array:
    count = math.isqrt(by.shape[-1])
    apart, mixing = mx.unflatten(streams, -1, (count, -1)), mx.unflatten(by, -1, (count, count))
    return (apart + matmul(mixing, apart)).flatten(-2)


def correct_streams(streams: mx.array, answer: mx.array, by: mx.array, place: int) -> mx.array:
    apart = mx.unflatten(streams, -1, (by.shape[-1], -1))
    surprise = answer - apart[..., place, :]
    return (apart + (by + 1)[..., None] * surprise[..., None, :]).flatten(-2)


def join_streams(streams: mx.array, answer: mx.array) -> mx.array:
    first, others = mx.split(streams, [answer.shape[-1]], axis=-1)
    joined = mx.unflatten(others, -1, (-1, answer.shape[-1])) + answer[..., None, :]
    return mx.concatenate([first, joined.flatten(-2)], axis=-1)


def softcap(x: mx.array, cap: float) -> mx.array:
    return mx.tanh(x / cap) * cap


def unpacked(module: Any, dtype: mx.Dtype | None, rows: mx.array | None = None) -> mx.array:
    """A module's matrix or some of its rows, in `dtype` where it is packed (None: what MLX makes of it)."""
    places = slice(None) if rows is None else rows
    weight, scales, biases = module["weight"][places], module.get("scales"), module.get("biases")
    blocks = vars(module).get("blocks")
    if blocks is not None:
        return decoded(weight, blocks).astype(dtype or mx.float32)
    if scales is None:
        return weight
    scales, biases = scales[places], None if biases is None else biases[places]
    if dtype is not None and biases is not None:  # affine codes become numbers in the type of their scales
        scales, biases = scales.astype(dtype), biases.astype(dtype)
    group, bits = module.group_size, module.bits
    return mx.dequantize(weight, scales, biases, group, bits, mode=module.mode, dtype=dtype)
