"""The mixture that many families share: independent gates with a stored correction, in groups, beside shared
experts (DeepSeek-V3's way; arXiv 2412.19437). Their configs differ in a few names and defaults only.
"""

from collections.abc import Callable
from typing import Literal

from runtime.config.decoder import DecoderConfig
from runtime.config.expert_groups import read_groups
from runtime.config.fields import Fields
from runtime.nn.feed_forward.moe import SharedMoE
from runtime.nn.feed_forward.router import RuledRouter
from runtime.nn.layer import FeedForward
from runtime.parts.feed_forward import Routing
from runtime.records import dataclass
from runtime.trunks.decoder import gated_mlp


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

    def routing(self, gates: Literal["softmax", "sigmoid"]) -> Routing:
        return Routing(
            gates,
            self.chosen,
            groups=self.groups,
            top_groups=self.top_groups,
            normalize=self.normalize,
            scale=self.scale,
        )


def read_mixture(
    fields: Fields,
    *,
    experts: int,
    chosen: int,
    inner: int,
    scale: float,
    name: str = "n_routed_experts",
    groups: tuple[int, int] = (1, 1),
    shared: int = 1,
) -> MixtureSpec:
    """As DeepSeek spells its fields. name: of the field for how many there are. The others are what is taken
    where a file does not say; groups: how many, and how many are open.
    """
    experts = fields.count(name, experts, high=1 << 16)
    chosen = fields.count("num_experts_per_tok", chosen, high=experts)
    inner = fields.count("moe_intermediate_size", inner, high=1 << 22)
    of, opened = read_groups(fields, experts, chosen, default=groups[0], open_by_default=groups[1])
    return MixtureSpec(
        experts=experts,
        chosen=chosen,
        inner=inner,
        shared=inner * fields.count("n_shared_experts", shared, low=0, high=1 << 10),
        groups=of,
        top_groups=opened,
        normalize=fields.flag("norm_topk_prob", True),
        scale=fields.number("routed_scaling_factor", scale),
    )


@dataclass(frozen=True, slots=True)
class MixtureConfig(DecoderConfig):
    mixture: MixtureSpec


def corrected_mixture(config: MixtureConfig) -> SharedMoE:
    return _mixture(config, config.mixture.routing("sigmoid"), corrected=True)


def sigmoid_mixture(config: MixtureConfig) -> SharedMoE:
    """The same without a correction."""
    return _mixture(config, config.mixture.routing("sigmoid"))


def softmax_mixture(config: MixtureConfig, *, judges: int = 2) -> SharedMoE:
    """The same where gates are shares of a softmax over all experts. judges: how many of its experts a group
    is judged by.
    """
    return _mixture(config, config.mixture.routing("softmax")._replace(judges=judges))


def _mixture(config: MixtureConfig, routing: Routing, *, corrected: bool = False) -> SharedMoE:
    hidden, spec = config.hidden_size, config.mixture
    router = RuledRouter(hidden, spec.experts, routing, corrected=corrected)
    return SharedMoE(
        hidden, spec.inner, spec.experts, router, shared=spec.shared, activation=config.activation
    )


def feed_forward(
    config: MixtureConfig,
    *,
    sparse: bool,
    mixture: Callable[[MixtureConfig], SharedMoE] = corrected_mixture,
) -> FeedForward:
    """A mixture where a layer is sparse, else one gated MLP."""
    return mixture(config) if sparse else gated_mlp(config)
