"""The mixer of Qwen3-Next and Qwen3.5: a convolution, the gated delta rule over unit queries and keys, a
gated norm.
"""

from collections.abc import Sequence
from typing import Literal

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Recurrent, State
from runtime.cache.protocol import ScanningCache
from runtime.errors import UnsupportedModel
from runtime.nn.gated_norm import GatedRMSNorm
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import Normalize
from runtime.nn.operations import ops
from runtime.nn.recurrent.conv import CausalConv
from runtime.nn.recurrent.parts import recurrent_parts
from runtime.nn.residual.sublayer import projections
from runtime.parts.recurrent import RecurrentParts
from runtime.records import dataclass
from runtime.step import Step


@dataclass(frozen=True, slots=True)
class DeltaSpec:
    """The heads of a gated delta net."""

    key_heads: int
    """Of queries and keys; each serves value_heads / key_heads value heads."""
    value_heads: int
    key_dim: int
    """Elements of a query or key, per head."""
    value_dim: int
    """Elements of a value, per head."""
    taps: int
    """Of the convolution: tokens that it sees."""
    eps: float
    """Of the norm."""
    strength: float = 1.0
    """What a token writes at most; beyond 1 it may overwrite with the opposite sign (OLMo hybrid)."""
    opens: Literal["silu", "sigmoid"] = "silu"
    """What the gate behind the norm passes."""

    def __post_init__(self) -> None:
        if self.value_heads % self.key_heads:
            raise UnsupportedModel(
                f"{self.value_heads} value heads of a delta net are not a multiple of {self.key_heads} key "
                "heads"
            )

    @property
    def keys(self) -> int:
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        return self.value_heads * self.value_dim

    @property
    def channels(self) -> int:
        """What passes the convolution: queries, keys and values."""
        return 2 * self.keys + self.values

    @property
    def memory(self) -> Recurrent:
        return Recurrent(
            {
                "conv": State((self.taps - 1, self.channels)),
                "state": State((self.value_heads, self.key_dim, self.value_dim), "float32"),
            }
        )


class GatedDeltaNet(Module):
    """[B, L, D] -> [B, L, D]: convolution, the gated delta rule over normed queries and keys, a norm
    under a gate.
    """

    def __init__(self, hidden: int, spec: DeltaSpec) -> None:
        super().__init__()
        self.in_proj_qkv = nn.Linear(hidden, spec.channels, bias=False)
        self.in_proj_z = nn.Linear(hidden, spec.values, bias=False)
        self.in_proj_b = nn.Linear(hidden, spec.value_heads, bias=False)
        self.in_proj_a = nn.Linear(hidden, spec.value_heads, bias=False)
        self.conv1d = CausalConv(spec.channels, spec.taps, bias=False)
        self.dt_bias = mx.zeros((spec.value_heads,))
        self.A_log = mx.zeros((spec.value_heads,))
        self.norm = GatedRMSNorm(spec.value_dim, spec.eps, order="norm first", activation=spec.opens)
        self.out_proj = nn.Linear(spec.values, hidden, bias=False)
        self._spec = spec

    def __call__(self, x: mx.array, step: Step, cache: ScanningCache) -> mx.array:
        products = projections(self._opening(), x, step)
        y = cache.scan(step, self._scan, *_scanned(products))
        return linear(self.out_proj, self.norm(y, products[1]), step)

    def parts(self, norm: Normalize | None, after: Normalize | None) -> RecurrentParts | None:
        """See `sublayer.added`."""
        return recurrent_parts(
            RecurrentParts(
                norm=norm,
                opening=self._opening(),
                conv=self.conv1d,
                kind="delta",
                rule=self,
                sizes=self._spec,
                gated_norm=self.norm,
                close=self.out_proj,
                after=after,
                scan=self._scan,
                scanned=_scanned,
            )
        )

    def _opening(self) -> tuple[nn.Module, ...]:
        return self.in_proj_qkv, self.in_proj_z, self.in_proj_a, self.in_proj_b

    def _scan(
        self,
        states: dict[str, mx.array],
        mixed: mx.array,
        decay: mx.array,
        strength: mx.array,
        *,
        counts: mx.array | None,
    ) -> tuple[mx.array, dict[str, mx.array]]:
        """mixed [B, L, channels], decay and strength [B, L, H] before their activations -> [B, L, H Dv]."""
        mixed, conv = self.conv1d(mixed, states["conv"], counts, silu=True)
        y, state = ops.table.delta(self, self._spec, mixed, decay, strength, states["state"], counts)
        return y, {"conv": conv, "state": state}


def _scanned(products: Sequence[mx.array]) -> Sequence[mx.array]:
    """All but the gate."""
    mixed, _, decay, strength = products
    return mixed, decay, strength
