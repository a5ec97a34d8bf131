"""Stacked experts: E feed-forward blocks, a few of which answer each token (`runtime.nn.feed_forward.router`
says which).

Dimensions: B rows, L tokens, D hidden size, F expert size, E experts, k of them asked per token. A stack of
linear layers is one tensor [E, out, in], named as MLX names it, so that converted checkpoints load as they
are and `runtime.weights` packs and expands it like any linear layer.
"""

from functools import partial

import mlx.core as mx

from runtime.nn.activation import NAMES, gated
from runtime.nn.blocks import BlockSwitchLinear
from runtime.nn.feed_forward.mlp import ACTIVATIONS
from runtime.nn.feed_forward.router import Choice
from runtime.nn.module import Module
from runtime.nn.operations import ops, plain
from runtime.parts.feed_forward import ExpertParts
from runtime.step import Adapters, Step


class SwitchLinear(Module):
    """E linear layers; each row of the input passes the one that it names."""

    def __init__(self, inputs: int, outputs: int, experts: int, *, bias: bool = False) -> None:
        super().__init__()
        self.weight = mx.zeros((experts, outputs, inputs))
        if bias:
            self.bias = mx.zeros((experts, outputs))

    def __call__(self, x: mx.array, chosen: mx.array, *, ordered: bool = False) -> mx.array:
        """x [..., n, in], chosen [...] -> [..., n, out]. ordered: `chosen` is flat and ascending."""
        return ops.table.gather(self, x, chosen, ordered)

    def to_quantized(self, group_size: int, bits: int, *, mode: str = "affine") -> "QuantizedSwitchLinear":
        return QuantizedSwitchLinear(self, group_size, bits, mode)


class QuantizedSwitchLinear(Module):
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
        return ops.table.gather(self, x, chosen, ordered)

    def to_plain(self) -> SwitchLinear:
        """An unquantized stack of the same shape, its weights still to be filled."""
        experts, outputs, packed = self.weight.shape
        return SwitchLinear(packed * 32 // self.bits, outputs, experts, bias="bias" in self)


STACKS = frozenset({SwitchLinear, QuantizedSwitchLinear, BlockSwitchLinear})


class Experts(Module):
    """E feed-forward blocks. gated: down(act(gate(x)) * up(x)), else down(act(up(x))). clip: limit and slope,
    where the gate is `operations.Operations.clipped_gate` instead.
    """

    def __init__(
        self,
        hidden: int,
        inner: int,
        experts: int,
        *,
        activation: str = "silu",
        gated: bool = True,
        bias: bool = False,
        clip: tuple[float, float] | None = None,
    ) -> None:
        super().__init__()
        if gated:
            self.gate_proj = SwitchLinear(hidden, inner, experts, bias=bias)
        self.up_proj = SwitchLinear(hidden, inner, experts, bias=bias)
        self.down_proj = SwitchLinear(inner, hidden, experts, bias=bias)
        self._experts = experts
        self._gated = gated
        self._activation, self._clip = ACTIVATIONS[activation], clip

    def __call__(self, x: mx.array, choice: Choice, step: Step | None = None) -> mx.array:
        """x [B, L, D] -> the weighted sum of its experts' answers [B, L, D]."""
        chosen, weights = choice
        adapters = None if step is None else step.adapters
        # Packed stacks are unpacked row by row, so that many rows at once save nothing.
        together = self._experts if isinstance(self.up_proj, SwitchLinear) else None
        if adapters is None and (stacks := self.stacks()) is not None:
            return ops.table.experts(stacks, x, chosen, weights, together)
        # Where rows have different adapters, each keeps its place, so that it is known whose counts for it.
        mixed = adapters is not None and adapters.mixed(self)
        ask = plain.ask if mixed else ops.table.ask
        answers = ask(x, chosen, partial(self._answer, adapters), together)
        return ops.table.matmul(weights.astype(x.dtype)[..., None, :], answers).squeeze(-2)

    def stacks(self) -> ExpertParts | None:
        """What it consists of. None where somebody has put modules of another class in place of ours."""
        opening = (self.gate_proj, self.up_proj) if self._gated else (self.up_proj,)
        if not STACKS.issuperset(map(type, (*opening, self.down_proj))):
            return None
        return ExpertParts(opening, NAMES[self._activation], self._clip, self.down_proj)

    def gated(self, gate: mx.array, up: mx.array) -> mx.array:
        """Of experts with gates. What overrides it says so in `stacks`, too."""
        return gated(self._activation, gate, up)

    def _answer(self, adapters: Adapters | None, x: mx.array, chosen: mx.array, ordered: bool) -> mx.array:
        def product(stack: Module, rows: mx.array) -> mx.array:
            y = stack(rows, chosen, ordered=ordered)
            return y if adapters is None else adapters.gather(stack, rows, chosen, y)

        up = product(self.up_proj, x)
        if not self._gated:
            inner = self._activation(up)
        elif self._clip is None:
            inner = self.gated(product(self.gate_proj, x), up)
        else:
            inner = ops.table.clipped_gate(product(self.gate_proj, x), up, *self._clip)
        return product(self.down_proj, inner)
