"""mLSTM: a state of each head that fades by a gate and is written to by another, exp(i), over the sum of the
keys in it.

Per head, with state C [Dk, Dv], n [Dk], gates i and f, key k, value v and query q, one token does

    C <- s(f) C + exp(i) k v^T;    n <- s(f) n + exp(i) k;    y = C^T q / (max(|n . q|, 1) + eps exp(m))

s is the sigmoid, and m the largest logarithm of a weight in the state, or of what is left of the first state,
whose is 0. Gates are capped, so weights are in range as they are. n is C's last column, of a value of 1.

Source: xLSTM (arXiv 2405.04517, 2503.13427); transformers modeling_xlstm.py.

B rows, L tokens, D hidden size, H heads, Dk and Dv the sizes of a head's keys and values.
"""

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Recurrent, State
from runtime.cache.protocol import ScanningCache
from runtime.nn.activation import sigmoid, softcap
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import LayerNorm
from runtime.nn.operations import ops
from runtime.nn.scans.chunks import zero_padding
from runtime.nn.scans.ssd import faded_sums
from runtime.records import dataclass
from runtime.step import Step


@dataclass(frozen=True, slots=True)
class LstmSpec:
    hidden: int
    heads: int
    key: int
    """The size of a head's keys."""
    value: int
    """And of its values."""
    cap: float
    """Of gates."""
    norm_eps: float
    eps: float
    """Added to what a head's answer is divided by."""

    @property
    def memory(self) -> Recurrent:
        cell = State((self.heads, self.key, self.value + 1), "float32")
        return Recurrent({"cell": cell, "top": State((self.heads,), "float32")})


def mlstm(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    opened: mx.array,
    kept: mx.array,
    cell: mx.array,
    top: mx.array,
    *,
    eps: float,
    counts: mx.array | None = None,
    one_by_one: bool = False,
) -> tuple[mx.array, mx.array, mx.array]:
    """Queries and keys [B, L, H, Dk], values [B, L, H, Dv], gates i and f [B, L, H], cell float32 [B, H, Dk,
    Dv + 1], top float32 [B, H] -> y float32 [B, L, H, Dv], cell and top after each row's last real token.
    """
    queries, keys, values, opened, kept = (
        part.astype(mx.float32) for part in (queries, keys, values, opened, kept)
    )
    queries = queries * queries.shape[-1] ** -0.5
    decay = zero_padding(-ops.table.softplus(-kept), counts)
    keys = zero_padding(keys, counts)
    if counts is not None:  # what padding brings is less than all that is there
        real = mx.arange(keys.shape[1]) < counts[:, None]
        opened = mx.where(real[..., None], opened, -mx.inf)
    weighed = mx.concatenate([values, mx.ones_like(values[..., :1])], axis=-1) * mx.exp(opened)[..., None]
    sums = _one_by_one if one_by_one else faded_sums
    seen, cell = sums(weighed, decay, keys, queries, cell)
    tops = _tops(opened, decay, top, one_by_one=one_by_one)
    over = mx.maximum(mx.abs(seen[..., -1:]), 1.0) + eps * mx.exp(tops)[..., None]
    return seen[..., :-1] / over, cell, tops[:, -1]


def _one_by_one(
    x: mx.array, decay: mx.array, inputs: mx.array, outputs: mx.array, state: mx.array
) -> tuple[mx.array, mx.array]:
    """As `faded_sums`, with the same bits wherever a text is cut."""
    found: list[mx.array] = []
    left = mx.exp(decay)[..., None, None]
    for i in range(x.shape[1]):
        state = left[:, i] * state + inputs[:, i, :, :, None] * x[:, i, :, None, :]
        found.append((outputs[:, i, :, None, :] @ state).squeeze(-2))
    return mx.stack(found, axis=1), state


def _tops(opened: mx.array, decay: mx.array, top: mx.array, *, one_by_one: bool) -> mx.array:
    """[B, L, H]: the largest logarithm of a weight after each token."""
    if not one_by_one:
        total = mx.cumsum(decay, axis=1)
        return mx.maximum(mx.cummax(opened - total, axis=1), top[:, None]) + total
    found: list[mx.array] = []
    for i in range(opened.shape[1]):
        top = mx.maximum(top + decay[:, i], opened[:, i])
        found.append(top)
    return mx.stack(found, axis=1)


class MLSTM(Module):
    """[B, L, D] -> [B, L, D]"""

    def __init__(self, spec: LstmSpec) -> None:
        super().__init__()
        keys, values = spec.heads * spec.key, spec.heads * spec.value
        self.q, self.k = (nn.Linear(spec.hidden, keys, bias=False) for _ in range(2))
        self.v, self.ogate_preact = (nn.Linear(spec.hidden, values, bias=False) for _ in range(2))
        self.igate_preact, self.fgate_preact = (nn.Linear(spec.hidden, spec.heads) for _ in range(2))
        self.multihead_norm = LayerNorm(values, eps=spec.norm_eps, bias=False)
        self.out_proj = nn.Linear(values, spec.hidden, bias=False)
        self._spec = spec

    def __call__(self, x: mx.array, step: Step, cache: ScanningCache) -> mx.array:
        heads = self._spec.heads
        queries, keys, values = (
            mx.unflatten(linear(part, x, step), -1, (heads, -1)) for part in (self.q, self.k, self.v)
        )
        gates = (linear(part, x, step).astype(mx.float32) for part in (self.igate_preact, self.fgate_preact))
        opened, kept = (softcap(gate, self._spec.cap) for gate in gates)
        y = cache.scan(step, self._fold, queries, keys, values, opened, kept)
        normed = ops.table.standardize(y, self.multihead_norm.eps).flatten(2) * self.multihead_norm.weight
        out = sigmoid(linear(self.ogate_preact, x, step)) * normed
        return linear(self.out_proj, out.astype(x.dtype), step)

    def _fold(
        self,
        states: dict[str, mx.array],
        queries: mx.array,
        keys: mx.array,
        values: mx.array,
        opened: mx.array,
        kept: mx.array,
        *,
        counts: mx.array | None,
    ) -> tuple[mx.array, dict[str, mx.array]]:
        y, cell, top = mlstm(
            *(queries, keys, values, opened, kept, states["cell"], states["top"]),
            eps=self._spec.eps,
            counts=counts,
            one_by_one=ops.table.steady,
        )
        return y, {"cell": cell, "top": top}
