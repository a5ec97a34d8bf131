"""Recurrent sublayers, described as kernels have them: see `runtime.parts.recurrent`."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.protocol import ScanFunction
from runtime.nn.gated_norm import GatedRMSNorm
from runtime.nn.linear import MATRICES
from runtime.nn.norm import Normalize
from runtime.nn.recurrent.conv import CausalConv
from runtime.nn.residual.sublayer import norms_fit
from runtime.parts.recurrent import RecurrentParts

Rule = tuple[Literal["delta", "ssd", "selective", "rg_lru", "conv"], nn.Module | None, Any]
"""Its kind, the module with its parameters, and its sizes, as in `RecurrentParts`; None twice for no rule."""


def recurrent_parts(
    norm: Normalize | None,
    opening: Sequence[nn.Module],
    conv: nn.Module,
    rule: Rule,
    gated_norm: nn.Module | None,
    close: nn.Module,
    after: Normalize | None,
    scan: ScanFunction,
    scanned: Callable[[Sequence[mx.array]], Sequence[mx.array]],
    *,
    widen: Sequence[nn.Module | None] = (),
) -> RecurrentParts | None:
    """None: it is not as kernels have it, as somebody has put modules of another class in place of ours."""
    ours = type(conv) is CausalConv and (gated_norm is None or type(gated_norm) is GatedRMSNorm)
    matrices = *opening, *(one for one in widen if one is not None), close
    if not ours or not norms_fit(norm, after) or not MATRICES.issuperset(map(type, matrices)):
        return None
    return RecurrentParts(norm, opening, conv, *rule, gated_norm, close, after, scan, scanned, widen=widen)
