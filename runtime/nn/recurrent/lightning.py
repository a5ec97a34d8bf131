"""Lightning attention (MiniMax, Ring): linear attention whose past fades at a fixed rate per head.

Per head, with state S [D, D] and slope s, one token does

    S <- exp(-s) S + k v^T;    y = S^T q

which is Mamba-2's state space with steps of 1, values for x, keys for B and queries for C, each head with its
own. A norm over all heads and a sigmoid gate follow. Source: arXiv 2501.08313, section 2.2.

Ring norms queries and keys and turns them by their positions, and its last norm is of groups of heads (arXiv
2510.19338).

B rows, L tokens, H heads of D elements.
"""

import math
from collections.abc import Sequence

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Recurrent, State
from runtime.cache.protocol import ScanningCache
from runtime.nn.attention.attend import merge_heads, split_heads
from runtime.nn.feed_forward.mlp import ACTIVATIONS
from runtime.nn.gated_norm import GatedRMSNorm
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import RMSNorm
from runtime.nn.operations import ops
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.sublayer import projections
from runtime.records import dataclass
from runtime.step import Step

NORM_EPS = 1e-6
"""MiniMax's, whatever a config says of other norms."""


@dataclass(frozen=True, slots=True)
class LightningSpec:
    hidden: int
    """Width of its input and output."""
    heads: int
    head_dim: int
    """Elements of a query, key or value, per head."""
    activation: str = ""
    """A name of ACTIVATIONS, for queries, keys and values; "": none."""
    eps: float = NORM_EPS
    """Of norms."""
    norm_groups: int = 1
    """Equal parts of the channels that are normed apart."""
    head_norm: bool = False
    """Queries and keys are normed per head."""
    bias: bool = False
    """The projection in has one."""

    steps: tuple[float, float] = (1.0, 1.0)

    @property
    def groups(self) -> int:
        return self.heads

    @property
    def state(self) -> int:
        return self.head_dim

    @property
    def inner(self) -> int:
        return self.heads * self.head_dim

    @property
    def memory(self) -> Recurrent:
        return Recurrent({"state": State((self.heads, self.state, self.head_dim), "float32")})


class Fading:
    """What `Operations.ssd` asks a module for, of heads with these slopes."""

    def __init__(self, slopes: Sequence[float]) -> None:
        nothing = mx.array([0.0] * len(slopes))
        self.A_log = mx.array([math.log(slope) for slope in slopes])
        self.dt_bias, self.D = nothing, nothing
        self._slopes = slopes

    def of_heads(self, start: int, stop: int) -> "Fading":
        """Of some of them (`runtime.ranks`)."""
        return Fading(self._slopes[start:stop])


class Lightning(Module):
    """What both have."""

    def __init__(self, spec: LightningSpec, slopes: Sequence[float]) -> None:
        super().__init__()
        self._spec, self._fading = spec, Fading(slopes)

    def _scan(
        self, states: dict[str, mx.array], mixed: mx.array, *, counts: mx.array | None
    ) -> tuple[mx.array, dict[str, mx.array]]:
        """mixed [B, L, 3 H D]: values, keys and queries of all heads -> y float32 [B, L, H D]."""
        steps = mx.zeros((*mixed.shape[:2], self._spec.heads), mixed.dtype)
        y, state = ops.table.ssd(self._fading, self._spec, mixed, steps, states["state"], counts)
        return y, {"state": state}


class LightningAttention(Lightning):
    """[B, L, hidden] -> [B, L, hidden]. slopes: of each head."""

    def __init__(self, spec: LightningSpec, slopes: Sequence[float]) -> None:
        super().__init__(spec, slopes)
        self.qkv_proj = nn.Linear(spec.hidden, 3 * spec.inner, bias=False)
        self.output_gate = nn.Linear(spec.hidden, spec.inner, bias=False)
        self.norm = GatedRMSNorm(spec.inner, spec.eps, order="norm first", activation="sigmoid")
        self.out_proj = nn.Linear(spec.inner, spec.hidden, bias=False)
        self._activation = ACTIVATIONS[spec.activation]

    def __call__(self, x: mx.array, step: Step, cache: ScanningCache) -> mx.array:
        mixed, gate = projections((self.qkv_proj, self.output_gate), x, step)
        y = cache.scan(step, self._scan, self._parts(self._activation(mixed)))
        return linear(self.out_proj, self.norm(y, gate), step)

    def _parts(self, mixed: mx.array) -> mx.array:
        """Query, key and value of one head after the other -> values, keys and queries of all heads."""
        spec = self._spec
        by_head = mixed.reshape(*mixed.shape[:2], spec.heads, 3, spec.head_dim)
        return by_head.swapaxes(2, 3)[:, :, ::-1].reshape(mixed.shape)


class TurnedLightning(Lightning):
    """Ring's: [B, L, hidden] -> [B, L, hidden]. slopes: of each head."""

    def __init__(self, spec: LightningSpec, slopes: Sequence[float], rope: Rope) -> None:
        super().__init__(spec, slopes)
        self.qkv_proj = nn.Linear(spec.hidden, 3 * spec.inner, bias=spec.bias)
        if spec.head_norm:
            self.q_norm = RMSNorm(spec.head_dim, eps=spec.eps)
            self.k_norm = RMSNorm(spec.head_dim, eps=spec.eps)
        self.g_proj = nn.Linear(spec.hidden, spec.inner, bias=False)
        self.g_norm = GatedRMSNorm(
            spec.inner, spec.eps, groups=spec.norm_groups, order="norm first", activation="sigmoid"
        )
        self.o_proj = nn.Linear(spec.inner, spec.hidden, bias=False)
        self._rope = rope

    def __call__(self, x: mx.array, step: Step, cache: ScanningCache) -> mx.array:
        mixed, gate = projections((self.qkv_proj, self.g_proj), x, step)
        queries, keys, values = mx.split(mixed, 3, axis=-1)
        queries, keys = self._placed("q_norm", queries, step), self._placed("k_norm", keys, step)
        queries = queries * self._spec.head_dim**-0.5
        y = cache.scan(step, self._scan, mx.concatenate([values, keys, queries], axis=-1))
        return linear(self.o_proj, self.g_norm(y, gate), step)

    def _placed(self, norm: str, flat: mx.array, step: Step) -> mx.array:
        """[B, L, H D] normed by head and turned."""
        heads = split_heads(flat, self._spec.heads)
        heads = self[norm](heads) if norm in self else heads
        return merge_heads(self._rope(heads, step))


def slopes_of(heads: int, layer: int, layers: int) -> list[float]:
    """How fast heads of the `layer`-th of `layers` forget: the slopes of ALiBi, less in deeper layers."""
    share = 1 - layer / (layers - 1 + 1e-5) + 1e-5
    return [share * 2 ** (-8 * (head + 1) / heads) for head in range(heads)]
