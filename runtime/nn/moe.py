"""Stacked experts: E feed-forward blocks, a few of which answer each token (`runtime.nn.route` says which).

Dimensions: B rows, L tokens, D hidden size, F expert size, E experts, k of them asked per token. A stack of
linear layers is one tensor [E, out, in], named as MLX names it, so that converted checkpoints load as they
are and `runtime.weights` quantizes and expands it like any linear layer.

Few rows are multiplied one by one. Many are brought into the order of their experts first, so that a GPU's
gathered product reads each expert's weights once. A processor's does not: there the sorted rows are cut into
blocks of one expert each, which is 4 times as fast for 512 tokens and as fast as a loop over experts, without
reading back how many rows each of them got.
"""

from collections.abc import Callable

import mlx.core as mx
import mlx.nn as nn

from runtime.nn.mlp import ACTIVATIONS
from runtime.nn.route import Choice

Answer = Callable[[mx.array, mx.array, bool], mx.array]
"""answer(rows [..., n, D], expert of each group of n rows [...], ascending) -> [..., n, D]"""

SORTED_FROM = 64
"""Rows from which sorting them by expert pays."""

BLOCK = 16
"""Rows per block on a processor; blocks are used from BLOCK / 2 rows per expert on."""


class SwitchLinear(nn.Module):
    """E linear layers; each row of the input passes the one that it names."""

    def __init__(self, inputs: int, outputs: int, experts: int, *, bias: bool = False) -> None:
        super().__init__()
        self.weight = mx.zeros((experts, outputs, inputs))
        if bias:
            self.bias = mx.zeros((experts, outputs))

    def __call__(self, x: mx.array, chosen: mx.array, *, ordered: bool = False) -> mx.array:
        """x [..., n, in], chosen [...] -> [..., n, out]. ordered: `chosen` is flat and ascending."""
        weight = self.weight.swapaxes(-1, -2)
        y = mx.gather_mm(x, weight, rhs_indices=chosen, sorted_indices=ordered)
        return y + self.bias[chosen][..., None, :] if "bias" in self else y

    def to_quantized(self, group_size: int, bits: int, *, mode: str = "affine") -> "QuantizedSwitchLinear":
        return QuantizedSwitchLinear(self, group_size, bits, mode)


class QuantizedSwitchLinear(nn.Module):
    """The same with packed weights: `weight`, `scales` and, in affine mode, `biases`."""

    def __init__(self, plain: SwitchLinear, group_size: int, bits: int, mode: str) -> None:
        super().__init__()
        self.group_size, self.bits, self.mode = group_size, bits, mode
        self.weight, self.scales, *biases = mx.quantize(plain.weight, group_size, bits, mode=mode)
        if biases:
            self.biases = biases[0]
        if "bias" in plain:
            self.bias = plain.bias
        self.freeze()

    def __call__(self, x: mx.array, chosen: mx.array, *, ordered: bool = False) -> mx.array:
        y = mx.gather_qmm(
            x,
            self.weight,
            self.scales,
            self.get("biases"),
            rhs_indices=chosen,
            transpose=True,
            group_size=self.group_size,
            bits=self.bits,
            mode=self.mode,
            sorted_indices=ordered,
        )
        return y + self.bias[chosen][..., None, :] if "bias" in self else y

    def to_plain(self) -> SwitchLinear:
        """An unquantized stack of the same shape, its weights still to be filled."""
        experts, outputs, packed = self.weight.shape
        return SwitchLinear(packed * 32 // self.bits, outputs, experts, bias="bias" in self)


class Experts(nn.Module):
    """E feed-forward blocks. gated: down(act(gate(x)) * up(x)), else down(act(up(x)))."""

    def __init__(
        self,
        hidden: int,
        inner: int,
        experts: int,
        *,
        activation: str = "silu",
        gated: bool = True,
        bias: bool = False,
    ) -> None:
        super().__init__()
        if gated:
            self.gate_proj = SwitchLinear(hidden, inner, experts, bias=bias)
        self.up_proj = SwitchLinear(hidden, inner, experts, bias=bias)
        self.down_proj = SwitchLinear(inner, hidden, experts, bias=bias)
        self._experts = experts
        self._gated = gated
        self._activation = ACTIVATIONS[activation]

    def __call__(self, x: mx.array, choice: Choice) -> mx.array:
        """x [B, L, D] -> the weighted sum of its experts' answers [B, L, D]."""
        chosen, weights = choice
        answers = gathered(
            x, chosen, self._answer, in_blocks_of=self._experts if self._multiplies() else None
        )
        return (weights.astype(x.dtype)[..., None, :] @ answers).squeeze(-2)

    def inner(self, gate: mx.array, up: mx.array) -> mx.array:
        """What goes down. Families with another gate override this."""
        return self._activation(gate) * up

    def _answer(self, x: mx.array, chosen: mx.array, ordered: bool) -> mx.array:
        up = self.up_proj(x, chosen, ordered=ordered)
        if self._gated:
            inner = self.inner(self.gate_proj(x, chosen, ordered=ordered), up)
        else:
            inner = self._activation(up)
        return self.down_proj(inner, chosen, ordered=ordered)

    def _multiplies(self) -> bool:
        """Is a product of many rows cheaper than as many of one? Not where weights are unpacked for each."""
        return isinstance(self.up_proj, SwitchLinear) and mx.default_device().type == mx.DeviceType.cpu


def gathered(x: mx.array, chosen: mx.array, answer: Answer, *, in_blocks_of: int | None = None) -> mx.array:
    """answer(token, expert) for each token's experts: x [..., D], chosen [..., k] -> [..., k, D].

    in_blocks_of: the number of experts, when many rows of one expert are best multiplied together.
    """
    if chosen.size < SORTED_FROM:
        return answer(x[..., None, None, :], chosen, False).squeeze(-2)
    tokens, flat = x.flatten(0, -2), chosen.flatten()
    order = mx.argsort(flat)
    if in_blocks_of is not None and flat.size >= in_blocks_of * BLOCK // 2:
        answers = _in_blocks(tokens, flat, order, chosen.shape[-1], answer, in_blocks_of)
    else:
        rows = tokens[order // chosen.shape[-1]]
        answers = answer(rows[:, None, :], flat[order], True)[mx.argsort(order)]
    return answers.reshape(*chosen.shape, -1)


def _in_blocks(
    tokens: mx.array, flat: mx.array, order: mx.array, k: int, answer: Answer, experts: int
) -> mx.array:
    """The answers in the order of `flat`. Each expert's rows fill blocks, the last of which is part empty.

    How many blocks that takes depends on the choice; there is room for the worst, and spare blocks compute
    something that nobody reads.
    """
    rows = mx.zeros((experts,), mx.int32).at[flat].add(1)
    blocks = (rows + BLOCK - 1) // BLOCK
    ends = mx.cumsum(blocks)
    shift = (ends - blocks) * BLOCK - (mx.cumsum(rows) - rows)
    slots = mx.arange(flat.size, dtype=mx.int32) + shift[flat[order]]
    room = flat.size // BLOCK + experts
    source = mx.zeros((room * BLOCK,), mx.int32)
    source[slots] = (order // k).astype(mx.int32)
    owner = (mx.arange(room)[:, None] >= ends).sum(axis=-1)
    filled = tokens[source].reshape(room, BLOCK, -1)
    answers = answer(filled, mx.minimum(owner, experts - 1), True).flatten(0, 1)
    return answers[slots[mx.argsort(order)]]
