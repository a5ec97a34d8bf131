"""The mixture that many families share: independent gates with a stored correction, in groups, beside shared
experts (DeepSeek-V3's way; arXiv 2412.19437). Their configs differ in a few names and defaults only.
"""

from dataclasses import dataclass

from runtime.nn.route import CorrectedRouter
from runtime.nn.sparse import SharedMoE


@dataclass(frozen=True, slots=True)
class MixtureSpec:
    """inner: the size of an expert; shared: of the shared ones together, 0 for none."""

    experts: int
    chosen: int
    inner: int
    shared: int = 0
    groups: int = 1
    top_groups: int = 1
    normalize: bool = True
    scale: float = 1.0


def corrected_mixture(hidden: int, spec: MixtureSpec, activation: str) -> SharedMoE:
    router = CorrectedRouter(
        hidden,
        spec.experts,
        spec.chosen,
        groups=spec.groups,
        top_groups=spec.top_groups,
        normalize=spec.normalize,
        scale=spec.scale,
    )
    return SharedMoE(hidden, spec.inner, spec.experts, router, shared=spec.shared, activation=activation)
