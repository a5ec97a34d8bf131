"""JetMoE: mixtures in place of MLPs, and in attention, whose queries and last projection are experts', too.

A token asks as many experts for queries as for its MLP; each has as many heads as there are keys, and closes
what its own heads have seen. What both mixtures give has a bias. Norms of layers have an
epsilon of their own.

Sources: arXiv 2404.07413; transformers modeling_jetmoe.py.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import AttentionCache, Rotate
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.models.granitemoe import Router
from runtime.nn.attention.attend import attend, split_heads
from runtime.nn.feed_forward.experts import SwitchLinear
from runtime.nn.feed_forward.moe import SharedMoE
from runtime.nn.feed_forward.router import Choice
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import RMSNorm
from runtime.nn.operations import ops, plain
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.step import Adapters, Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, layer_ropes, rms_norms

_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    """`intermediate_size` is an expert's."""

    experts: int
    chosen: int
    """Experts asked per token."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("jetmoe",))
    experts = fields.count("num_local_experts", 8, high=1 << 16)
    chosen = fields.count("num_experts_per_tok", 2, high=experts)
    keys = fields.count("num_key_value_heads", 16, high=1024)
    shape = read_shape(
        Fields({**fields.raw, "num_attention_heads": keys * chosen, "num_key_value_heads": keys}),
        activation_field="activation_function",
        tied=True,
        vocab_size=32000,
        hidden_size=2048,
        intermediate_size=5632,
        head_dim=128,
        max_position_embeddings=4096,
    )
    layers = layer_count(fields, 12)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape),) * layers,
        experts=experts,
        chosen=chosen,
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class AttentionExperts(Module):
    """H heads for each expert. B rows, L tokens, D hidden size, K head size, E experts, k asked per token."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        inner = config.kv_heads * config.head_dim
        self.router = Router(config.hidden_size, config.experts, config.chosen)
        self.input_linear = SwitchLinear(config.hidden_size, inner, config.experts)
        self.output_linear = SwitchLinear(inner, config.hidden_size, config.experts)
        self.bias = mx.zeros((config.hidden_size,))
        self._experts = config.experts

    def queries(self, x: mx.array, chosen: mx.array, step: Step) -> mx.array:
        """[B, L, D], [B, L, k] -> [B, L, k, H * K]."""
        return self._asked(self.input_linear, x, chosen, step)

    def answers(self, seen: mx.array, choice: Choice, step: Step) -> mx.array:
        """[B, L, k, H * K] -> [B, L, D]."""
        chosen, weights = choice
        rows = seen.shape[0]
        each = self._asked(
            self.output_linear, seen.reshape(rows, -1, seen.shape[-1]), chosen.reshape(rows, -1, 1), step
        )
        each = each.reshape(*chosen.shape, -1)
        return ops.table.matmul(weights.astype(each.dtype)[..., None, :], each).squeeze(-2) + self.bias

    def _asked(self, stack: Module, x: mx.array, chosen: mx.array, step: Step) -> mx.array:
        """As `runtime.nn.feed_forward.experts.Experts` asks."""
        adapters = step.adapters
        mixed = adapters is not None and adapters.mixed(self)
        ask: Callable[..., mx.array] = plain.ask if mixed else ops.table.ask
        together = self._experts if isinstance(stack, SwitchLinear) else None
        return ask(x, chosen, partial(_product, stack, adapters), together)


def _product(
    stack: Module, adapters: Adapters | None, x: mx.array, chosen: mx.array, ordered: bool
) -> mx.array:
    y = stack(x, chosen, ordered=ordered)
    return y if adapters is None else adapters.gather(stack, x, chosen, y)


class Attention(Module):
    """[B, L, D] -> [B, L, D]."""

    def __init__(self, config: Config, rope: Rope) -> None:
        super().__init__()
        self.experts = AttentionExperts(config)
        self.kv_proj = nn.Linear(config.hidden_size, 2 * config.kv_heads * config.head_dim, bias=False)
        self._heads, self._size, self._rope = config.kv_heads, config.head_dim, rope

    def __call__(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        rows, width, _ = x.shape
        choice = self.experts.router(x, step)
        queries = self.experts.queries(x, choice[0], step)
        # All heads that read one key stand together.
        queries = queries.reshape(rows, width, -1, self._heads, self._size).transpose(0, 3, 2, 1, 4)
        keys, values = mx.split(linear(self.kv_proj, x, step), 2, axis=-1)
        seen = attend(
            step,
            cache,
            queries.flatten(1, 2),
            split_heads(keys, self._heads),
            split_heads(values, self._heads),
            scale=self._size**-0.5,
            rope=self._rope,
        )
        seen = seen.reshape(rows, width, self._heads, -1, self._size).swapaxes(2, 3)
        return self.experts.answers(seen.flatten(3), choice, step)

    @property
    def shift(self) -> Rotate | None:
        """As in `runtime.nn.attention.self_attention`."""
        return self._rope.shifted if self._rope.shifts else None


class Mixture(SharedMoE):
    """What experts answer, and a bias."""

    def __init__(self, config: Config) -> None:
        hidden, inner = config.hidden_size, config.intermediate_size
        router = Router(hidden, config.experts, config.chosen)
        super().__init__(hidden, inner, config.experts, router, shared=0, activation=config.activation)
        self.bias = mx.zeros((hidden,))

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        return super().__call__(x, step) + self.bias


def build(config: Config) -> CausalLM:
    def norm() -> RMSNorm:
        return RMSNorm(config.hidden_size, eps=_EPS)

    ropes = (rope for rope in layer_ropes(config) if rope is not None)
    layers = [PreNorm(Attention(config, rope), Mixture(config), norm) for rope in ropes]
    return CausalLM(config, layers, rms_norms(config)())


_STACKS = (
    (".mlp.input_linear.weight", ".mlp.experts.gate_up_proj"),
    (".mlp.output_linear.weight", ".mlp.experts.down_proj"),
)
_NAMES = (
    (".self_attention.", ".self_attn."),
    (".mlp.router.", ".mlp.gate."),
    (".mlp.input_linear.", ".mlp.experts.gate_up_proj."),
    (".mlp.output_linear.", ".mlp.experts.down_proj."),
)


def adapt(config: Config, weights: Weights) -> Weights:
    return to_switch(respelled(without_spares(config, weights), _NAMES), config.experts)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(Checkpoint(stacks=_STACKS)),
)
