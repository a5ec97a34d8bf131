"""GPT-NeoX and Pythia: LayerNorms, a quarter of each head rotated, sublayers side by side on norms of their
own.

Queries, keys and values are one matrix whose rows go head by head.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import AttentionCache, Caches, StepCache, by_layout
from runtime.cpu.stated import Attends, Decodes, Feeds
from runtime.models.checkpoint import Checkpoint, always
from runtime.models.config import Fields
from runtime.models.decoder import attention_layout, layer_ropes
from runtime.models.decoder_config import DecoderConfig, layer_count, read_shape
from runtime.models.family import Family
from runtime.models.headed import Headed, untied_head
from runtime.nn import ops
from runtime.nn.attend import attend
from runtime.nn.block import Block as Sublayers
from runtime.nn.block import Place
from runtime.nn.heads import Heads
from runtime.nn.linear import embed, linear
from runtime.nn.mlp import ACTIVATIONS
from runtime.nn.module import Module
from runtime.nn.norm import LayerNorm, Normalize
from runtime.nn.rope import Rope
from runtime.nn.rope_spec import RopeSpec, read_rope
from runtime.nn.sublayer import added, attends, feeds
from runtime.records import dataclass
from runtime.step import Step


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    bias: bool
    parallel: bool


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape = read_shape(fields, eps_field="layer_norm_eps", eps=1e-5, activation="gelu")
    layers = layer_count(fields)
    return Config(
        **{**shape, "kv_heads": shape["heads"]},
        windows=(None,) * layers,
        ropes=(_rope(fields, shape),) * layers,
        bias=fields.flag("attention_bias", True),
        parallel=fields.flag("use_parallel_residual", True),
    )


def _rope(fields: Fields, shape: dict[str, Any]) -> RopeSpec:
    """Older files call the base rotary_emb_base, and the share of the head rotary_pct; other families' names
    for them mean nothing to transformers here.
    """
    base = fields.number("rotary_emb_base", 10000.0, low=1.0)
    share = fields.number("rotary_pct", 0.25, low=0.0)
    parameters = {"partial_rotary_factor": share, **fields.rope_parameters(theta=base)}
    named = {"rope_theta": base, "partial_rotary_factor": share}
    own = {"partial_rotary_factor": share, **Fields({**fields.raw, **named}).rope_parameters()}
    for name, older in (("rope_theta", "rotary_emb_base"), ("partial_rotary_factor", "rotary_pct")):
        if parameters[name] != own[name]:
            fields.refuse(name, f"it as {older}, which is this family's name for it")
    return read_rope(parameters, head_dim=shape["head_dim"], max_positions=shape["context_length"])


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class Attention(Module):
    def __init__(self, config: Config, rope: Rope) -> None:
        super().__init__()
        inner = config.heads * config.head_dim
        self.query_key_value = nn.Linear(config.hidden_size, 3 * inner, bias=config.bias)
        self.dense = nn.Linear(inner, config.hidden_size, bias=config.bias)
        self._heads, self._scale, self._rope = config.heads, config.head_dim**-0.5, rope
        size, scale = config.head_dim, self._scale
        self._attends = Heads(config.heads, config.heads, size, scale, rope, by_head=True)

    def __call__(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        batch, width, _ = x.shape
        mixed = linear(self.query_key_value, x, step).reshape(batch, width, self._heads, -1).swapaxes(1, 2)
        queries, keys, values = mx.split(mixed, 3, axis=-1)
        seen = attend(step, cache, queries, keys, values, scale=self._scale, rope=self._rope)
        return linear(self.dense, seen, step)

    def states(self, norm: Normalize | None, after: Normalize | None) -> Attends | None:
        """See `sublayer.added`."""
        return attends(self._attends, norm, (self.query_key_value,), None, self.dense, after)


class MLP(Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.dense_h_to_4h = nn.Linear(config.hidden_size, config.intermediate_size)
        self.dense_4h_to_h = nn.Linear(config.intermediate_size, config.hidden_size)
        self._activation = ACTIVATIONS[config.activation]

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        return linear(self.dense_4h_to_h, self._activation(linear(self.dense_h_to_4h, x, step)), step)

    def states(self, norm: Normalize | None, after: Normalize | None) -> Feeds | None:
        """See `sublayer.added`."""
        return feeds(norm, (self.dense_h_to_4h,), self._activation, self.dense_4h_to_h, after)


class Block(Sublayers):
    def __init__(self, config: Config, rope: Rope) -> None:
        super().__init__()
        self.input_layernorm = LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.post_attention_layernorm = LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.attention = Attention(config, rope)
        self.mlp = MLP(config)
        self.parallel = config.parallel

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        heard = added(x, self.attention, step, cache, norm=self.input_layernorm)
        if self.parallel:
            return heard + self.mlp(self.post_attention_layernorm(x), step)
        return added(heard, self.mlp, step, norm=self.post_attention_layernorm)

    def sublayers(self) -> tuple[Place, Place]:
        return (self.attention, self.input_layernorm, None), (self.mlp, self.post_attention_layernorm, None)


class Trunk(Module):
    in_turn: ClassVar[str] = "layers"

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed_in = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = [Block(config, rope) for rope in layer_ropes(config) if rope is not None]
        self.final_layer_norm = LayerNorm(config.hidden_size, eps=config.norm_eps)

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        x = ops.table.layers(self.layers, step.embedded(self.embed), step, by_layout(caches))
        return self.final_layer_norm(x)

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return embed(self.embed_in, ids, step)


class GPTNeoX(Headed):
    trunk_name, table_name = "gpt_neox", "embed_in"
    norm_name, head_name = "final_layer_norm", "embed_out"

    def __init__(self, config: Config) -> None:
        super().__init__(Trunk(config), untied_head(config))

    def stated(self) -> Decodes:
        return self.decodes()


def build(config: Config) -> GPTNeoX:
    return GPTNeoX(config)


_BUFFERS = (".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq")


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Without stored masks and rotary tables; transformers 5 calls the head lm_head, MLX conversions the
    trunk model.
    """
    named = {_named(name): array for name, array in weights.items() if not name.endswith(_BUFFERS)}
    spare_head = ("embed_out.",) if config.tied else ()
    return {name: array for name, array in named.items() if not name.startswith(spare_head)}


_SPELLINGS = (
    ("lm_head.", "embed_out."),
    ("model.embed_out.", "embed_out."),
    ("model.h.", "gpt_neox.layers."),
    ("model.", "gpt_neox."),
)


def _named(name: str) -> str:
    for theirs, ours in _SPELLINGS:
        if name.startswith(theirs):
            return ours + name.removeprefix(theirs)
    return name


CHECKPOINT = Checkpoint(spare=_BUFFERS, modules=(("embed_out.", "lm_head."),))

FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(CHECKPOINT),
)
