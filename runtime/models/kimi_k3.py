"""Kimi K3 (the text model): Kimi Linear's layers, in front of which a softmax over earlier sums says what is
read.

Every few layers what has been added up is put by, and the sum begins anew. In front of each sublayer, and
behind the last layer, all that was put by and the sum are mixed, each by how well its norm answers a vector.
They lie side by side, the sum first, so that the stream has one width everywhere. Experts are asked about a
smaller vector, latent attention has a gate for every number, and gates are bounded (`own_gate.situ`).

Source: mlx-lm models/kimi_k3.py; llama.cpp src/models/kimi-k3.cpp.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import AttentionCache, StepCache
from runtime.config.decoder import layer_count, read_shape, read_softcap, sparse_layers
from runtime.config.fields import Fields
from runtime.models import kimi_linear
from runtime.models.family import CORRECTIONS, RATES, Family
from runtime.nn.activation import sigmoid
from runtime.nn.attention.mla import LatentAttention
from runtime.nn.feed_forward.custom_gate import CustomGateExperts, CustomGateMLP, Gate, situ
from runtime.nn.feed_forward.router import RuledRouter
from runtime.nn.layer import FeedForward, Layer
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import Norm, Normalize, RMSNorm
from runtime.nn.operations import ops
from runtime.nn.recurrent.kimi_delta import KimiDelta, KimiDeltaSpec, WideDelta
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights
from runtime.tensors.joined_rows import alike
from runtime.tensors.names import text_tower
from runtime.tensors.quantizing import SOURCE, Row
from runtime.tensors.towers import Towers
from runtime.trunks.decoder import CausalLM, Trunk, rms_norms
from runtime.trunks.mixture import read_mixture


@dataclass(frozen=True, slots=True)
class Config(kimi_linear.Config):
    wide_gate: bool
    """Delta nets open by a whole matrix."""
    gated: bool
    """Latent attention has a gate."""
    beta: float
    """Bound of gates."""
    linear_beta: float | None
    """Bound of what passes them; None: there is none."""
    inside: int | None
    """Size of what experts are asked about; None: the hidden size."""
    normed: bool
    """What they answer is normed, inside."""
    every: int
    """Layers from one sum to the next."""

    @property
    def sums(self) -> int:
        """How many are put by."""
        return -(-self.layers // self.every)


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("kimi_k3", "kimi_linear"))
    layers = layer_count(fields, 93)
    fields.only({"mla_use_nope": True})
    fields.choice("moe_router_activation_func", ("sigmoid",), "sigmoid")
    fields.count("moe_layer_freq", 1, high=1)
    shape, own = _shape(fields), fields.block("linear_attn_config")
    inside = fields.has("routed_expert_hidden_size")
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(None,) * layers,
        delta=_delta(fields, own, shape["norm_eps"]),
        latent=kimi_linear.read_latent(fields, shape),
        mixture=read_mixture(  # mlx-lm's defaults
            fields, name="num_local_experts", experts=256, chosen=16, inner=1024, scale=1.0, shared=0
        ),
        recurrent=kimi_linear.read_recurrent(fields, layers),
        sparse=sparse_layers(fields, layers, 0),
        wide_gate=own.flag("use_full_rank_gate"),
        gated=fields.flag("mla_use_output_gate"),
        beta=fields.number("activation_situ_beta", 1.0, low=1e-6),
        linear_beta=read_softcap(fields, "activation_situ_linear_beta", None),
        inside=fields.count("routed_expert_hidden_size", high=1 << 20) if inside else None,
        normed=fields.flag("latent_moe_use_norm") and inside,
        every=fields.count("attn_res_block_size", high=4096),
    )


def _shape(fields: Fields) -> dict[str, Any]:
    fields.choice("hidden_act", ("situ",), "situ")
    return read_shape(
        Fields({**fields.raw, "hidden_act": "silu"}),
        eps=1e-5,
        vocab_size=163840,
        hidden_size=7168,
        intermediate_size=33792,
        num_attention_heads=96,
        num_key_value_heads=96,
        max_position_embeddings=1 << 20,
    )


def _delta(fields: Fields, own: Fields, eps: float) -> KimiDeltaSpec:
    """own: the block of linear attention."""
    lowest = own.number("gate_lower_bound", high=-1e-6) if own.has("gate_lower_bound") else None
    return replace(kimi_linear.read_delta(fields, eps), lowest=lowest)


def layout(config: Config) -> list[LayerSpec]:
    return kimi_linear.layout(config)


class GatedAttention(LatentAttention):
    """A sigmoid is multiplied to each number that heads see."""

    def __init__(self, config: Config) -> None:
        super().__init__(config.latent, None)
        inner = config.latent.heads * config.latent.value
        self.g_proj = nn.Linear(config.hidden_size, inner, bias=False)

    def seen(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        return super().seen(x, step, cache) * sigmoid(linear(self.g_proj, x, step))


class Mixture(Module):
    def __init__(self, config: Config, gate: Gate) -> None:
        super().__init__()
        hidden, spec = config.hidden_size, config.mixture
        inside = config.inside or hidden
        self.gate = RuledRouter(hidden, spec.experts, spec.routing("sigmoid"), corrected=True)
        self.switch_mlp = CustomGateExperts(inside, spec.inner, spec.experts, gate)
        if config.inside is not None:
            self.routed_expert_down_proj = nn.Linear(hidden, inside, bias=False)
            self.routed_expert_up_proj = nn.Linear(inside, hidden, bias=False)
        if config.normed:
            self.routed_expert_norm = RMSNorm(inside, eps=config.norm_eps)
        if spec.shared:
            self.shared_experts = CustomGateMLP(hidden, spec.shared, gate)

    @property
    def adds(self) -> tuple[str, ...]:
        """See `SoftmaxMoE`. What leads out of a smaller vector may follow a norm."""
        return () if "routed_expert_up_proj" in self else ("switch_mlp", "shared_experts")

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        choice, inner = self.gate(x, step), x
        if "routed_expert_down_proj" in self:
            inner = linear(self.routed_expert_down_proj, x, step)
        answer = self.switch_mlp(inner, choice, step)
        if "routed_expert_norm" in self:
            answer = self.routed_expert_norm(answer)
        if "routed_expert_up_proj" in self:
            answer = linear(self.routed_expert_up_proj, answer, step)
        return answer + self.shared_experts(x, step) if "shared_experts" in self else answer


def mixed(sums: Sequence[mx.array], norm: Normalize, vector: nn.Module, step: Step) -> mx.array:
    """Each [B, L, D] by its share of a softmax of how well its norm answers the vector [1, D]."""
    apart = mx.stack([one.astype(mx.float32) for one in sums], axis=-2)
    scores = linear(vector, norm(apart), step)[..., 0]
    return (ops.table.softmax(scores)[..., None] * apart).sum(axis=-2).astype(sums[0].dtype)


class Block(Module):
    """place: which of the layers it is."""

    def __init__(self, config: Config, place: int, norm: Norm) -> None:
        super().__init__()
        hidden, gate = config.hidden_size, situ(config.beta, config.linear_beta)
        self.self_attn = _mixer(config, folds=config.recurrent[place])
        self.mlp: FeedForward = (
            Mixture(config, gate)
            if config.sparse[place]
            else CustomGateMLP(hidden, config.intermediate_size, gate)
        )
        self.input_layernorm, self.post_attention_layernorm = norm(), norm()
        self.self_attention_res_norm, self.mlp_res_norm = norm(), norm()
        self.self_attention_res_proj = nn.Linear(hidden, 1, bias=False)
        self.mlp_res_proj = nn.Linear(hidden, 1, bias=False)
        self._sums, self._before = 1 + config.sums, -(-place // config.every)
        self._starts = place % config.every == 0

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        """x [B, L, S D], S vectors of D numbers: the sum, and those that were put by, zeros where that is yet
        to come.
        """
        total, *by = mx.split(x, self._sums, axis=-1)
        count = self._before
        read = mixed([*by[:count], total], self.self_attention_res_norm, self.self_attention_res_proj, step)
        answer = self.self_attn(self.input_layernorm(read), step, cache)
        if self._starts:
            by[count], total, count = total, answer, count + 1
        else:
            total = total + answer
        read = mixed([*by[:count], total], self.mlp_res_norm, self.mlp_res_proj, step)
        total = total + self.mlp(self.post_attention_layernorm(read), step)
        return mx.concatenate([total, *by], axis=-1)


def _mixer(config: Config, *, folds: bool) -> Any:
    if folds:
        return (WideDelta if config.wide_gate else KimiDelta)(config.hidden_size, config.delta)
    return GatedAttention(config) if config.gated else LatentAttention(config.latent, None)


class Sums(Trunk):
    """What leaves it is mixed of all sums."""

    is_even = False

    def __init__(
        self, config: Config, layers: Sequence[Layer], norm: Normalize, embed_scale: float | None
    ) -> None:
        super().__init__(config, layers, norm, embed_scale)
        self.output_attn_res_norm = rms_norms(config)()
        self.output_attn_res_proj = nn.Linear(config.hidden_size, 1, bias=False)
        self._sums = 1 + config.sums

    def entering(self, step: Step) -> mx.array:
        x = super().entering(step)
        return mx.pad(x, [(0, 0), (0, 0), (0, x.shape[-1] * (self._sums - 1))])

    def leaving(self, x: mx.array, step: Step) -> mx.array:
        total, *by = mx.split(x, self._sums, axis=-1)
        return self.norm(mixed([*by, total], self.output_attn_res_norm, self.output_attn_res_proj, step))


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)
    layers = [Block(config, place, norm) for place in range(config.layers)]
    return CausalLM(config, layers, norm(), trunk=Sums)


_SCORES = re.compile(r"_res\.(norm|proj)_weight$")


def adapt(config: Config, weights: Weights) -> Weights:
    """As Kimi Linear's. Rates of heads may be padded."""
    named: Weights = {}
    for name, array in text_tower(weights).items():
        if name.endswith(".A_log"):
            array = array.flatten()[: config.delta.heads]
        if name.endswith(".block_sparse_moe.e_score_correction_bias"):
            name = name.replace(".e_score", ".gate.e_score")
        named[_SCORES.sub(r"_res_\1.weight", name)] = array
    return kimi_linear.adapt(config, named)


_ROWS = (alike(kimi_linear.MATRICES), Row(lambda t, _: t.has("_res_proj."), SOURCE, "one row of scores"))
_TOWERS = Towers(images=("vision_tower.",), projectors=("mm_projector.", "multi_modal_projector."))

FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    wide=(*RATES, *CORRECTIONS),
    checkpoint=always(
        Checkpoint(
            rows=_ROWS,
            joined=(kimi_linear.MATRICES,),
            matrices=(("w1", "gate_proj"), ("w2", "down_proj"), ("w3", "up_proj")),
            singles=True,
            inside=("language_model.model.", "language_model."),
            towers=_TOWERS,
            heads=("mtp.", "model.mtp."),
            heads_behind=True,
            default_layers=93,
        )
    ),
)
