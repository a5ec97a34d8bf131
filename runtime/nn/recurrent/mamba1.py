"""The Mamba mixer that Mamba, Falcon-Mamba and Jamba share.

in_proj gives [x | gate]; x passes a short convolution and silu, gives its own step sizes, B and C by
x_proj, and the selective scan runs over it. Falcon-Mamba norms step sizes, B and C; Jamba does so with
weights.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Recurrent, State
from runtime.cache.protocol import ScanningCache
from runtime.nn.activation import gated, silu
from runtime.nn.linear import MATRICES, linear
from runtime.nn.module import Module
from runtime.nn.norm import Normalize, PlainRMS, RMSNorm
from runtime.nn.operations import ops
from runtime.nn.recurrent.conv import CausalConv
from runtime.nn.recurrent.parts import recurrent_parts
from runtime.nn.residual.sublayer import NORMS
from runtime.parts.recurrent import RecurrentParts, SelectiveParts
from runtime.records import dataclass
from runtime.step import Step


@dataclass(frozen=True, slots=True)
class Mamba1Spec:
    """The sizes of a Mamba mixer."""

    hidden: int
    """D: width of its input and output."""
    inner: int
    """Channels of the state space."""
    state: int
    """Numbers of state per channel."""
    taps: int
    """Of the convolution: tokens that it sees."""
    rank: int
    """Numbers that step sizes are made of."""
    eps: float
    """Of the norms."""
    conv_bias: bool = True
    """The convolution has a bias."""
    bias: bool = False
    """The projections in and out have one."""
    norms: Literal["none", "plain", "weighted"] = "none"
    """Of step sizes, B and C. "plain": without weights."""

    @property
    def memory(self) -> Recurrent:
        return Recurrent(
            {
                "conv": State((self.taps - 1, self.inner)),
                "state": State((self.state, self.inner), "float32"),
            }
        )


class Mamba1(Module):
    """[B, L, hidden] -> [B, L, hidden]."""

    total: Callable[[mx.array], mx.array] | None = None
    """Where several processes have some channels each, the sum over them: x_proj reads all channels."""

    def __init__(self, spec: Mamba1Spec) -> None:
        super().__init__()
        self.in_proj = nn.Linear(spec.hidden, 2 * spec.inner, bias=spec.bias)
        self.conv1d = CausalConv(spec.inner, spec.taps, bias=spec.conv_bias)
        self.x_proj = nn.Linear(spec.inner, spec.rank + 2 * spec.state, bias=False)
        self.dt_proj = nn.Linear(spec.rank, spec.inner, bias=True)
        self.A_log = mx.zeros((spec.inner, spec.state))
        self.D = mx.zeros((spec.inner,))
        if spec.norms == "weighted":
            self.dt_layernorm = RMSNorm(spec.rank, eps=spec.eps)
            self.b_layernorm = RMSNorm(spec.state, eps=spec.eps)
            self.c_layernorm = RMSNorm(spec.state, eps=spec.eps)
        self.out_proj = nn.Linear(spec.inner, spec.hidden, bias=spec.bias)
        self._spec = spec
        self._plain = PlainRMS(spec.eps)

    def __call__(self, x: mx.array, step: Step, cache: ScanningCache) -> mx.array:
        mixed, gate = mx.split(linear(self.in_proj, x, step), 2, axis=-1)
        given = (mixed,)
        if self.total is not None:
            given = mixed, self.total(linear(self.x_proj, self.conv1d.ahead(mixed, step, cache), step))
        y = cache.scan(step, partial(self._scan, step), *given)
        y = gated(silu, gate.astype(mx.float32), y)
        return linear(self.out_proj, y.astype(x.dtype), step)

    def parts(self, norm: Normalize | None, after: Normalize | None) -> RecurrentParts | None:
        """See `sublayer.added`."""
        if self.total is not None:
            return None
        makes = SelectiveParts(self.x_proj, self._norms(), self.dt_proj)
        fit = all(one is None or isinstance(one, NORMS) for one in makes.norms)
        if not fit or not MATRICES.issuperset((type(makes.open), type(makes.widen))):
            return None
        return recurrent_parts(
            RecurrentParts(
                norm=norm,
                opening=(self.in_proj,),
                conv=self.conv1d,
                kind="selective",
                rule=self,
                sizes=makes,
                gated_norm=None,
                close=self.out_proj,
                after=after,
                scan=self._scan,
                scanned=self._scanned,
            )
        )

    def _scanned(self, products: Sequence[mx.array]) -> Sequence[mx.array]:
        """All but the gate."""
        mixed, _ = mx.split(products[0], 2, axis=-1)
        return (mixed,)

    def _scan(
        self,
        step: Step,
        states: dict[str, mx.array],
        mixed: mx.array,
        made: mx.array | None = None,
        *,
        counts: mx.array | None,
    ) -> tuple[mx.array, dict[str, mx.array]]:
        """mixed [B, L, inner], made [B, L, rank + 2 state] -> y float32 [B, L, inner]."""
        spec = self._spec
        x, conv = self.conv1d(mixed, states["conv"], counts, silu=True)
        made = linear(self.x_proj, x, step) if made is None else made
        parts = mx.split(made, (spec.rank, spec.rank + spec.state), axis=-1)
        ranks, inputs, outputs = (
            part if norm is None else norm(part) for part, norm in zip(parts, self._norms(), strict=True)
        )
        steps = linear(self.dt_proj, ranks, step)
        y, state = ops.table.selective_scan(self, x, steps, inputs, outputs, states["state"], counts)
        return y, {"conv": conv, "state": state}

    def _norms(self) -> Sequence[Normalize | None]:
        """Of the numbers that step sizes are made of, of B and of C."""
        match self._spec.norms:
            case "none":
                return None, None, None
            case "plain":
                return (self._plain,) * 3
            case "weighted":
                return self.dt_layernorm, self.b_layernorm, self.c_layernorm
