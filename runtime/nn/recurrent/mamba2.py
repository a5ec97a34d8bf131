"""The Mamba-2 mixer that Mamba2, Falcon-H1, Nemotron-H, Granite hybrid, Bamba and Zamba2 share.

in_proj gives [gate | x B C | steps]; x, B and C pass a short convolution and silu, the state space runs
over them, and a gated norm and out_proj follow. Families differ in sizes, biases, the norm, and bounds on
the step size.

The reference implementations bound the step size in prefill only; here the bound holds for every token,
because what a token computes must not depend on how its prompt was cut.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Recurrent, State
from runtime.cache.protocol import ScanningCache
from runtime.errors import UnsupportedModel
from runtime.nn.activation import gated, silu
from runtime.nn.gated_norm import GatedRMSNorm, Order
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import Normalize
from runtime.nn.operations import ops
from runtime.nn.recurrent.conv import CausalConv
from runtime.nn.recurrent.parts import recurrent_parts
from runtime.parts.recurrent import RecurrentParts
from runtime.quoting import quoted
from runtime.records import dataclass
from runtime.step import Step


@dataclass(frozen=True, slots=True)
class Mamba2Spec:
    """The sizes of a Mamba-2 mixer."""

    hidden: int
    """D: width of its input and output."""
    heads: int
    head_dim: int
    """Channels of a head."""
    groups: int
    """Of heads that share one B and one C."""
    state: int
    """Numbers of B and of C per group, and of state per channel."""
    taps: int
    """Of the convolution: tokens that it sees."""
    eps: float
    """Of the norm."""
    conv_bias: bool = True
    """The convolution has a bias."""
    in_bias: bool = False
    """The projection in has one."""
    out_bias: bool = False
    """The projection out has one."""
    norm: Order | None = "gate first"
    """Whether the gate acts before the norm or after it. None: the output is gated and not normed."""
    norm_groups: int = 1
    """Equal parts of the channels that are normed apart."""
    steps: tuple[float, float] = (0.0, math.inf)
    """Bounds that step sizes are clipped to."""

    def __post_init__(self) -> None:
        if self.heads % self.groups or self.inner % self.norm_groups:
            raise UnsupportedModel(
                f"a Mamba-2 layer of {self.heads} heads and {self.inner} channels does not divide into "
                f"{self.groups} groups"
            )

    @property
    def inner(self) -> int:
        return self.heads * self.head_dim

    @property
    def channels(self) -> int:
        """What passes the convolution: x, B and C."""
        return self.inner + 2 * self.groups * self.state

    @property
    def memory(self) -> Recurrent:
        return Recurrent(
            {
                "conv": State((self.taps - 1, self.channels)),
                "state": State((self.heads, self.state, self.head_dim), "float32"),
            }
        )


class Mamba2(Module):
    """[B, L, hidden] -> [B, L, hidden]. scales: a factor for each output of in_proj (Falcon-H1)."""

    def __init__(self, spec: Mamba2Spec, scales: mx.array | None = None) -> None:
        super().__init__()
        self.in_proj = nn.Linear(spec.hidden, spec.inner + spec.channels + spec.heads, bias=spec.in_bias)
        self.conv1d = CausalConv(spec.channels, spec.taps, bias=spec.conv_bias)
        self.dt_bias = mx.zeros((spec.heads,))
        self.A_log = mx.zeros((spec.heads,))
        self.D = mx.zeros((spec.heads,))
        if spec.norm:
            self.norm = GatedRMSNorm(spec.inner, spec.eps, groups=spec.norm_groups, order=spec.norm)
        self.out_proj = nn.Linear(spec.inner, spec.hidden, bias=spec.out_bias)
        self._spec = spec
        self._scales = scales

    def __call__(self, x: mx.array, step: Step, cache: ScanningCache) -> mx.array:
        spec = self._spec
        projected = linear(self.in_proj, x, step)
        if self._scales is not None:
            projected = projected * self._scales.astype(projected.dtype)
        gate, mixed, steps = self._split(projected)
        y = cache.scan(step, self._scan, mixed, steps)
        if spec.norm:
            return linear(self.out_proj, self.norm(y, gate), step)
        y = gated(silu, gate.astype(mx.float32), y)
        return linear(self.out_proj, y.astype(x.dtype), step)

    def parts(self, norm: Normalize | None, after: Normalize | None) -> RecurrentParts | None:
        """See `sublayer.added`."""
        return recurrent_parts(
            RecurrentParts(
                norm=norm,
                opening=(self.in_proj,),
                conv=self.conv1d,
                kind="ssd",
                rule=self,
                sizes=self._spec,
                gated_norm=self.norm if self._spec.norm else None,
                close=self.out_proj,
                after=after,
                scan=self._scan,
                scanned=self._scanned,
                scales=self._scales,
            )
        )

    def _scanned(self, products: Sequence[mx.array]) -> Sequence[mx.array]:
        """All but the gate."""
        return self._split(products[0])[1:]

    def _split(self, projected: mx.array) -> Sequence[mx.array]:
        """Gate, (x | B | C), steps."""
        spec = self._spec
        gate, mixed, steps = mx.split(projected, (spec.inner, spec.inner + spec.channels), axis=-1)
        return gate, mixed, steps

    def _scan(
        self, states: dict[str, mx.array], mixed: mx.array, steps: mx.array, *, counts: mx.array | None
    ) -> tuple[mx.array, dict[str, mx.array]]:
        """mixed [B, L, channels], steps [B, L, heads] -> y float32 [B, L, inner]."""
        mixed, conv = self.conv1d(mixed, states["conv"], counts, silu=True)
        y, state = ops.table.ssd(self, self._spec, mixed, steps, states["state"], counts)
        return y, {"conv": conv, "state": state}


def step_bounds(raw: Mapping[str, Any]) -> tuple[float, float]:
    """[low, high] of a config; infinity may be spelled {"__float__": "Infinity"}. Absent: no bounds."""
    name = "time_step_limit"
    value = raw.get(name)
    if value is None:
        return 0.0, math.inf
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise UnsupportedModel(f"config.json: {name} is {quoted(value)}, expected two numbers")
    low, high = (_bound(name, end) for end in value)
    if not 0 <= low <= high:
        raise UnsupportedModel(f"config.json: {name} runs from {low} to {high}")
    return low, high


def _bound(name: str, value: Any) -> float:
    if isinstance(value, Mapping):
        value = {"Infinity": math.inf}.get(str(value.get("__float__")))
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise UnsupportedModel(f"config.json: {name} holds {quoted(value)}, expected a number")
    return float(value)
