"""Feed-forward blocks. D hidden size, F intermediate size."""

import mlx.core as mx
import mlx.nn as nn

from runtime.nn.activation import Activation, gated, gelu, gelu_tanh, relu, relu2, silu
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import Normalize
from runtime.nn.operations import ops
from runtime.nn.residual.sublayer import feed_forward_parts, projections
from runtime.parts.feed_forward import FeedForwardParts
from runtime.step import Step

# The names configs use for `hidden_act`. "gelu" is the exact one; the tanh forms are approximations with
# their own names, and mixing them up costs about 1e-3 of a logit's spread.
ACTIVATIONS: dict[str, Activation] = {
    "silu": silu,
    "swish": silu,
    "gelu": gelu,
    "gelu_new": gelu_tanh,
    "gelu_fast": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "relu": relu,
    "relu2": relu2,
}


class GatedMLP(Module):
    """down(act(gate(x)) * up(x)): SwiGLU with silu, GeGLU with gelu (arXiv 2002.05202). clip: as of
    `experts.Experts`.
    """

    def __init__(
        self,
        hidden: int,
        intermediate: int,
        *,
        activation: str = "silu",
        bias: bool = False,
        clip: tuple[float, float] | None = None,
    ) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, intermediate, bias=bias)
        self.up_proj = nn.Linear(hidden, intermediate, bias=bias)
        self.down_proj = nn.Linear(intermediate, hidden, bias=bias)
        self._activation, self._clip = ACTIVATIONS[activation], clip

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        gate, up = projections((self.gate_proj, self.up_proj), x, step)
        if self._clip is None:
            return linear(self.down_proj, gated(self._activation, gate, up), step)
        return linear(self.down_proj, ops.table.clipped_gate(gate, up, *self._clip), step)

    def parts(self, norm: Normalize | None, after: Normalize | None) -> FeedForwardParts | None:
        """See `sublayer.added`. Kernels clip no gate of what is not an expert."""
        if self._clip is not None:
            return None
        opening = self.gate_proj, self.up_proj
        return feed_forward_parts(norm, opening, self._activation, self.down_proj, after)


class FusedGatedMLP(Module):
    """The same with gate and up in one matrix, the gate's rows first (Phi-3, GLM-4)."""

    def __init__(self, hidden: int, intermediate: int, *, activation: str = "silu") -> None:
        super().__init__()
        self.gate_up_proj = nn.Linear(hidden, 2 * intermediate, bias=False)
        self.down_proj = nn.Linear(intermediate, hidden, bias=False)
        self._activation = ACTIVATIONS[activation]

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        gate, up = mx.split(linear(self.gate_up_proj, x, step), 2, axis=-1)
        return linear(self.down_proj, gated(self._activation, gate, up), step)

    def parts(self, norm: Normalize | None, after: Normalize | None) -> FeedForwardParts | None:
        """See `sublayer.added`."""
        opening = (self.gate_up_proj,)
        return feed_forward_parts(norm, opening, self._activation, self.down_proj, after, halves=True)


class MLP(Module):
    """down(act(up(x))), the activation a function or, where it has weights of its own, a module."""

    def __init__(self, hidden: int, intermediate: int, activation: Activation, *, bias: bool = False) -> None:
        super().__init__()
        self.up_proj = nn.Linear(hidden, intermediate, bias=bias)
        self.down_proj = nn.Linear(intermediate, hidden, bias=bias)
        self.act_fn = activation

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        return linear(self.down_proj, self.act_fn(linear(self.up_proj, x, step)), step)

    def parts(self, norm: Normalize | None, after: Normalize | None) -> FeedForwardParts | None:
        """See `sublayer.added`."""
        return feed_forward_parts(norm, (self.up_proj,), self.act_fn, self.down_proj, after)
