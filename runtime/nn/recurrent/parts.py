"""Recurrent sublayers, described as kernels have them: see `runtime.parts.recurrent`."""

from runtime.nn.gated_norm import GatedRMSNorm
from runtime.nn.linear import MATRICES
from runtime.nn.recurrent.conv import CausalConv
from runtime.nn.residual.sublayer import norms_fit
from runtime.parts.recurrent import RecurrentParts


def recurrent_parts(said: RecurrentParts) -> RecurrentParts | None:
    """None: it is not as kernels have it, as somebody has put modules of another class in place of ours."""
    ours = type(said.conv) is CausalConv and (
        said.gated_norm is None or type(said.gated_norm) is GatedRMSNorm
    )
    matrices = *said.opening, *(one for one in said.widen if one is not None), said.close
    fit = norms_fit(said.norm, said.after) and MATRICES.issuperset(map(type, matrices))
    return said if ours and fit else None
