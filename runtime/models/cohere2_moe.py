"""Command-A MoE (Cohere 2 MoE): Cohere 2's parallel block with a mixture of experts for the MLP.

Sliding layers rotate neighbouring pairs, full layers leave positions out (NoPE), except that dense layers
may rotate whatever they see. Shared experts are summed with the routed answers, or averaged.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape, sparse_layers
from runtime.config.fields import Fields
from runtime.config.rope_block import only_repeats
from runtime.models.family import Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.feed_forward.mlp import GatedMLP
from runtime.nn.feed_forward.moe import SharedMoE
from runtime.nn.feed_forward.router import Choice, best, top_then_softmax
from runtime.nn.layer import FeedForward
from runtime.nn.linear import Takes, added
from runtime.nn.module import Module
from runtime.nn.norm import LayerNorm, Normalize, RMSNorm
from runtime.nn.operations import ops
from runtime.nn.positions.rope_spec import RopeSpec
from runtime.nn.residual.block import Parallel
from runtime.parts.feed_forward import MixtureParts, Routing
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.names import without_spares
from runtime.tensors.quantizing import EIGHT_ELSE, REQUESTED, Row, in_cadence, sensitive
from runtime.trunks.decoder import CausalLM, attention_layout, layer_ropes


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    bias: bool
    """Of the attention's projections, that of its output too."""
    rms: bool
    """Norms are RMSNorms, else LayerNorms without biases."""
    logit_scale: float
    """Logits are multiplied by it."""
    sparse: tuple[bool, ...]
    """Of each layer: its feed-forward is a mixture."""
    dense_size: int
    """Size of the MLP in layers that are not mixtures."""
    experts: int
    chosen: int
    """Experts asked per token."""
    shared: int
    """Size of the shared experts together; 0: none."""
    sigmoid: bool
    """Weights of experts are sigmoids of their scores, else a softmax over the chosen ones."""
    normalize: bool
    """Sigmoid weights are scaled to sum to one."""
    average: bool
    """Shared and routed answers are averaged, else summed."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    if fields.has("rope_scaling") and not only_repeats(fields.raw):
        fields.refuse("rope_scaling", "none: this family is told by rope_parameters how to rotate")
    shape, layers = _shape(fields), layer_count(fields, 40)
    sparse = sparse_layers(fields, layers, 0)
    windows = _windows(fields, layers)
    experts = fields.count("num_experts", 8, high=1 << 16)
    gates, ends = ("softmax", "sigmoid"), ("average", "sum")
    return Config(
        **shape,
        windows=windows,
        ropes=_ropes(fields, shape, windows, sparse),
        bias=fields.flag("attention_bias"),
        rms=fields.has("rms_norm_eps"),
        logit_scale=fields.number("logit_scale", 0.0625),
        sparse=sparse,
        dense_size=fields.count("prefix_dense_intermediate_size", shape["intermediate_size"], high=1 << 22),
        experts=experts,
        chosen=fields.count("num_experts_per_tok", 2, high=experts),
        shared=shape["intermediate_size"] * fields.count("num_shared_experts", 0, low=0, high=256),
        sigmoid=fields.choice("expert_selection_fn", gates, "softmax") == "sigmoid",
        normalize=fields.flag("norm_topk_prob", True),
        average=fields.choice("shared_expert_combination_strategy", ends, "average") == "average",
    )


def _shape(fields: Fields) -> dict[str, Any]:
    return read_shape(
        fields,
        eps_field="rms_norm_eps" if fields.has("rms_norm_eps") else "layer_norm_eps",
        eps=1e-5,
        tied=True,
        head_dim=128,
        max_position_embeddings=8192,
    )


def _windows(fields: Fields, layers: int) -> tuple[int | None, ...]:
    """Without layer_types, dense and sparse layers count their patterns apart."""
    dense = fields.count("first_k_dense_replace", 0, low=0, high=layers)
    window = fields.count("sliding_window", 4096)
    kinds = fields.words("layer_types", layers, ("full_attention", "sliding_attention"))
    if kinds is not None:
        return tuple(window if kind == "sliding_attention" else None for kind in kinds)
    every = fields.count("prefix_dense_sliding_window_pattern", 1), fields.count("sliding_window_pattern", 4)
    places = [(i, every[0]) for i in range(dense)] + [(i, every[1]) for i in range(layers - dense)]
    full = ((i + 1) % pattern == 0 for i, pattern in places)
    full = fields.settle("layer_types", ("full_attention", "sliding_attention"), full)
    return tuple(None if one else window for one in full)


def _ropes(
    fields: Fields, shape: dict[str, Any], windows: Sequence[int | None], sparse: Sequence[bool]
) -> tuple[RopeSpec | None, ...]:
    """Layers with a window rotate; dense ones, whatever they see, where their pattern is 1."""
    rope = one_rope(fields, shape, traditional=True)
    forced = fields.count("prefix_dense_sliding_window_pattern", 1) == 1
    return tuple(
        rope if window is not None or (forced and not mixture) else None
        for window, mixture in zip(windows, sparse, strict=True)
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class Router(Module):
    """The best experts by score; their weights are a softmax over those, or sigmoids."""

    takes_pairs: ClassVar[Takes] = "matrix"

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.weight = mx.zeros((config.experts, config.hidden_size))
        self._config = config

    def __call__(self, x: mx.array, step: Step) -> Choice:
        config = self._config
        scores = added(self, x, ops.table.matmul(x, self.weight, transposed=True), step)
        if not config.sigmoid:
            return top_then_softmax(scores, config.chosen)
        chosen = best(scores, config.chosen)
        weights = mx.sigmoid(mx.take_along_axis(scores, chosen, axis=-1).astype(mx.float32))
        return chosen, weights / weights.sum(axis=-1, keepdims=True) if config.normalize else weights

    def ruled(self) -> tuple[nn.Module, Routing | None]:
        """As `RuledRouter` says it. Sigmoids are chosen by scores here, which tell apart what is 1 in all."""
        return self, None if self._config.sigmoid else Routing("best", self._config.chosen)


class Mixture(SharedMoE):
    adds = SharedMoE.adds  # said again beside this call, or it would not count

    def __init__(self, config: Config) -> None:
        super().__init__(
            config.hidden_size,
            config.intermediate_size,
            config.experts,
            Router(config),
            shared=config.shared,
            activation=config.activation,
        )
        self._share = 0.5 if config.shared and config.average else 1.0

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        return super().__call__(x, step) * self._share

    def parts(self, norm: Normalize | None, after: Normalize | None) -> MixtureParts | None:
        """See `sublayer.added`."""
        said = super().parts(norm, after)
        return None if said is None or after is not None else said._replace(share=self._share)


class Cohere2MoE(CausalLM):
    def __init__(self, config: Config) -> None:
        def norm() -> Normalize:
            if config.rms:
                return RMSNorm(config.hidden_size, eps=config.norm_eps)
            return LayerNorm(config.hidden_size, eps=config.norm_eps, bias=False)

        def mlp(sparse: bool) -> FeedForward:
            if sparse:
                return Mixture(config)
            return GatedMLP(config.hidden_size, config.dense_size, activation=config.activation)

        bias = config.bias
        blocks = [
            Parallel(SelfAttention(config, rope, qkv_bias=bias, output_bias=bias), mlp(sparse), norm)
            for rope, sparse in zip(layer_ropes(config), config.sparse, strict=True)
        ]
        super().__init__(config, blocks, norm(), logit_scale=config.logit_scale)


def build(config: Config) -> Cohere2MoE:
    return Cohere2MoE(config)


def adapt(config: Config, weights: Weights) -> Weights:
    return to_switch(without_spares(config, weights), config.experts)


_ROWS: tuple[Row, ...] = (
    Row(
        lambda t, r: r.promotes and sensitive(t) and in_cadence(t, r),
        EIGHT_ELSE,
        "sensitive matrix, sensitive layer",
    ),
    Row(lambda t, r: r.promotes and sensitive(t), REQUESTED, "as requested"),
)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(Checkpoint(rows=_ROWS)),
)
