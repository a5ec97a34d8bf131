"""The mixture that many families share: independent gates with a stored correction, in groups, beside shared
experts (DeepSeek-V3's way; arXiv 2412.19437). Their configs differ in a few names and defaults only.
"""

from runtime.cpu.stated import Routing
from runtime.nn.route import CorrectedRouter, RuledRouter
from runtime.nn.sparse import SharedMoE
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class MixtureSpec:
    """The sizes of a mixture, and how its experts are chosen."""

    experts: int
    """How many there are, shared ones apart."""
    chosen: int
    """How many of them compute each token."""
    inner: int
    """The size of an expert."""
    shared: int = 0
    """The size of the shared experts together; 0: there are none."""
    groups: int = 1
    """Into how many equal groups the experts are divided."""
    top_groups: int = 1
    """From how many of the groups experts are chosen."""
    normalize: bool = True
    """The chosen experts' gates are divided by their sum."""
    scale: float = 1.0
    """Multiplies the gates."""


def softmax_mixture(hidden: int, spec: MixtureSpec, activation: str) -> SharedMoE:
    """The same where gates are shares of a softmax over all experts."""
    routing = Routing("softmax", spec.chosen, normalize=spec.normalize, scale=spec.scale)
    router = RuledRouter(hidden, spec.experts, routing)
    return SharedMoE(hidden, spec.inner, spec.experts, router, shared=spec.shared, activation=activation)


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
