"""Nemotron-H: one sublayer per layer, a Mamba-2 mixer (M), attention without positions (*), an MLP (-) or
experts (E).

Each reads the normed stream and adds to it. MLPs and experts are up, squared relu, down, without a gate;
experts may work in a smaller latent space. The step size is bounded by `time_step_limit`, as in the
kernels the models were trained with; transformers bounds it by `time_step_min` in prefill and not at all
in decoding.
"""

import re
from typing import ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Full, LayerSpec, Stateless
from runtime.cache.protocol import Caches, StepCache, by_layout
from runtime.models.family import CORRECTIONS, RATES, Family
from runtime.models.nemotron_h_config import Config, ExpertSpec, parse
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.feed_forward.experts import Experts
from runtime.nn.feed_forward.mlp import ACTIVATIONS, MLP
from runtime.nn.feed_forward.router import RuledRouter
from runtime.nn.linear import embed, linear
from runtime.nn.module import Module
from runtime.nn.norm import Normalize, RMSNorm
from runtime.nn.operations import ops
from runtime.nn.recurrent.conv import with_filters
from runtime.nn.recurrent.mamba2 import Mamba2
from runtime.nn.residual.block import Block as Sublayers
from runtime.nn.residual.block import NormedSublayer
from runtime.nn.residual.sublayer import Always, added, mixture_parts
from runtime.parts.decoder import DecoderParts
from runtime.parts.feed_forward import MixtureParts
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights, stacked_experts, switch_names
from runtime.tensors.quantizing import EIGHT_ELSE, REQUESTED, SOURCE, Row, more_bits
from runtime.tensors.towers import USUAL, Towers
from runtime.trunks.headed import Headed, untied_head


def layout(config: Config) -> list[LayerSpec]:
    of_kind = {"M": config.mixer.memory, "*": Full(config.kv_heads, config.head_dim)}
    return [of_kind.get(kind, Stateless()) for kind in config.kinds]


class SparseMLP(Module):
    """Routed experts, in a latent space if there is one, and a block that every token passes."""

    def __init__(self, config: Config, spec: ExpertSpec) -> None:
        super().__init__()
        hidden, bias = config.hidden_size, config.mlp_bias
        activation = ACTIVATIONS[config.activation]
        self.gate = RuledRouter(hidden, spec.experts, spec.routing("sigmoid"), corrected=True)
        inside = spec.latent or hidden
        if spec.latent:
            self.fc1_latent_proj = nn.Linear(hidden, inside, bias=bias)
            self.fc2_latent_proj = nn.Linear(inside, hidden, bias=bias)
        self.switch_mlp = Experts(inside, spec.inner, spec.experts, activation=config.activation, gated=False)
        self.shared_experts = MLP(hidden, spec.shared, activation, bias=bias)
        self._latent = spec.latent is not None

    @property
    def adds(self) -> tuple[str, ...]:
        """See `SoftmaxMoE`. What leads out of a latent space may have a bias, which is added once."""
        return () if self._latent else ("switch_mlp", "shared_experts")

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        choice = self.gate(x, step)
        if not self._latent:
            return self.switch_mlp(x, choice, step) + self.shared_experts(x, step)
        routed = linear(
            self.fc2_latent_proj, self.switch_mlp(linear(self.fc1_latent_proj, x, step), choice, step), step
        )
        return routed + self.shared_experts(x, step)

    def parts(self, norm: Normalize | None, after: Normalize | None) -> MixtureParts | None:
        """See `sublayer.added`."""
        if self._latent:
            return None
        return mixture_parts(norm, self.gate, None, self.switch_mlp, after, Always(self.shared_experts))


class Block(Sublayers):
    def __init__(self, config: Config, kind: str) -> None:
        super().__init__()
        self.norm = RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.mixer = _sublayer(config, kind)

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        memory = (cache,) if isinstance(self.mixer, Mamba2 | SelfAttention) else ()
        return added(x, self.mixer, step, *memory, norm=self.norm)

    def sublayers(self) -> tuple[NormedSublayer, ...]:
        return ((self.mixer, self.norm, None),)


def _sublayer(config: Config, kind: str) -> Mamba2 | SelfAttention | SparseMLP | MLP:
    if kind == "M":
        return Mamba2(config.mixer)
    if kind == "*":
        bias = config.attention_bias
        return SelfAttention(config, None, qkv_bias=bias, output_bias=bias)
    if config.expert and kind == "E":
        return SparseMLP(config, config.expert)
    activation = ACTIVATIONS[config.activation]
    return MLP(config.hidden_size, config.intermediate_size, activation, bias=config.mlp_bias)


class Backbone(Module):
    in_turn: ClassVar[str] = "layers"

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = [Block(config, kind) for kind in config.kinds]
        self.norm_f = RMSNorm(config.hidden_size, eps=config.norm_eps)

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        step.refuse_positions("no layer of this network goes by positions")
        x = ops.table.layers(self.layers, step.embedded(self.embed), step, by_layout(caches))
        return self.norm_f(x)

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return embed(self.embeddings, ids, step)


class NemotronH(Headed):
    trunk_name, table_name, norm_name = "backbone", "embeddings", "norm_f"

    def __init__(self, config: Config) -> None:
        super().__init__(Backbone(config), untied_head(config))

    def decoder_parts(self) -> DecoderParts:
        return self.decodes()


def build(config: Config) -> NemotronH:
    return NemotronH(config)


_LANGUAGE_MODEL = re.compile(r"(?:model\.)?language_model\.")


def adapt(config: Config, weights: Weights) -> Weights:
    """Published names are `backbone.`, transformers' own `model.`; the omni models wrap either in
    `language_model.`.
    """
    adapted: Weights = {}
    for name, array in weights.items():
        name = _LANGUAGE_MODEL.sub("", name, count=1) if _LANGUAGE_MODEL.match(name) else name
        if config.tied and name.startswith("lm_head."):
            continue
        if name.startswith("model."):
            name = f"backbone.{name.removeprefix('model.').removeprefix('backbone.')}"
        name = name.replace(".switch_mlp.fc1.", ".switch_mlp.up_proj.")
        name = name.replace(".switch_mlp.fc2.", ".switch_mlp.down_proj.")
        adapted[name] = array
    adapted = with_filters(adapted)
    return switch_names(stacked_experts(adapted, config.expert.experts)) if config.expert else adapted


_ROWS: tuple[Row, ...] = (
    Row(lambda t, _: t.name.startswith("mlp1."), SOURCE, "tower or projector"),
    Row(
        lambda t, r: r.float4 and t.has(".q_proj", ".k_proj", ".v_proj", ".o_proj"),
        EIGHT_ELSE,
        "attention is rare here",
    ),
    Row(
        lambda t, r: (
            r.float4
            and t.has("mixer.out_proj", "down_proj")
            and (t.layer is None or more_bits(t.layer, r.layers))
        ),
        EIGHT_ELSE,
        "sensitive matrix, sensitive layer",
    ),
    Row(lambda t, r: r.float4 and t.has("mixer.out_proj", "down_proj"), REQUESTED, "as requested"),
)

_TOWERS = Towers(
    images=("vision_model.", "vision_projection.", "vision_final_layernorm."),
    sound=(*USUAL.sound, "sound_encoder.", "sound_projection."),
    projectors=(*USUAL.projectors, "mlp1."),
)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    wide=(*RATES, *CORRECTIONS),
    checkpoint=always(
        Checkpoint(
            rows=_ROWS,
            matrices=(("up_proj", "fc1"), ("down_proj", "fc2")),
            modules=(("backbone.", "model."),),
            towers=_TOWERS,
            heads=("mtp.",),
        )
    ),
)
