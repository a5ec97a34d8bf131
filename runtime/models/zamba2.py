"""Zamba2: Mamba-2 layers, and one or two transformer blocks that many layers share, each with its own
low-rank adapters.

The step size has no bounds, as in the kernels the models were trained with; transformers bounds it by
`time_step_min` in prefill only.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import AttentionCache
from runtime.config.decoder import read_shape
from runtime.config.fields import Fields, whole_heads
from runtime.errors import UnsupportedModel
from runtime.models.family import RATES, Family
from runtime.nn.attention.attend import attend, split_heads
from runtime.nn.feed_forward.mlp import ACTIVATIONS
from runtime.nn.linear import MATRICES, linear
from runtime.nn.module import Module
from runtime.nn.norm import RMSNorm
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import read_rope
from runtime.nn.recurrent.conv import with_filters
from runtime.nn.recurrent.mamba2 import Mamba2, Mamba2Spec
from runtime.nn.residual.sublayer import attention_parts, defined_together, feed_forward_parts
from runtime.parts.attention import AttentionParts
from runtime.parts.feed_forward import FeedForwardParts
from runtime.parts.heads import Heads
from runtime.parts.streams import AppendInput, UpdateAppended
from runtime.quoting import quoted
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights
from runtime.tensors.names import without_spares
from runtime.trunks.headed import Headed
from runtime.trunks.shared_block import SharingConfig, SharingTrunk, sharing_layout, without_repeats

_KINDS = {"mamba": False, "linear_attention": False, "hybrid": True}


@dataclass(frozen=True, slots=True)
class Config(SharingConfig):
    rank: int
    """Of the adapters."""
    adapted_attention: bool
    """Queries, keys and values have adapters too."""
    bias: bool
    mixer: Mamba2Spec


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    hidden = fields.count("hidden_size", 2560, high=1 << 20)
    heads = fields.count("num_attention_heads", 32, high=4096)
    hybrid = read_hybrid(fields)
    fields.only({"use_long_context": False})
    require_tied(fields)
    size = 2 * hidden // heads
    shape = read_shape(
        fields,
        eps=1e-5,
        activation="gelu",
        tied=True,
        intermediate_size=4 * hidden,
        max_position_embeddings=4096,
    )
    shape["head_dim"] = size
    rope = None
    if fields.flag("use_mem_rope"):
        parameters = whole_heads(fields.rope_parameters())
        rope = read_rope(parameters, head_dim=size, max_positions=shape["context_length"])
    bias = fields.flag("add_bias_linear")
    return Config(
        **shape,
        windows=(None,) * len(hybrid),
        ropes=(rope,) * len(hybrid),
        hybrid=hybrid,
        blocks=fields.count("num_mem_blocks", 1, high=64),
        rank=fields.count("adapter_rank", 128, high=1 << 16),
        adapted_attention=fields.flag("use_shared_attention_adapter"),
        bias=bias,
        mixer=_mixer(fields, hidden, bias),
    )


def require_tied(fields: Fields) -> None:
    if not fields.flag("tie_word_embeddings", True):
        raise UnsupportedModel(
            "config.json: tie_word_embeddings is false; transformers would then not share blocks either"
        )


def read_hybrid(fields: Fields) -> tuple[bool, ...]:
    """Of each layer: it runs a shared block, too."""
    listed = fields.raw.get("layers_block_type") or fields.raw.get("layer_types")
    if not isinstance(listed, list | tuple) or not 0 < len(listed) <= 4096:
        raise UnsupportedModel("config.json: Zamba needs layers_block_type, a list of mamba and hybrid")
    if any(kind not in _KINDS for kind in listed):
        raise UnsupportedModel(f"config.json: layers_block_type is {quoted(listed)}, known: mamba, hybrid")
    hybrid = tuple(_KINDS[kind] for kind in listed)
    places = fields.raw.get("hybrid_layer_ids")
    if places is not None and places != [i for i, is_hybrid in enumerate(hybrid) if is_hybrid]:
        fields.refuse("hybrid_layer_ids", "the places of hybrid in layers_block_type, in their order")
    return hybrid


def _mixer(fields: Fields, hidden: int, bias: bool) -> Mamba2Spec:
    heads = fields.count("n_mamba_heads", 8, high=1 << 16)
    groups = fields.count("mamba_ngroups", 1, high=4096)
    inner = fields.count("mamba_expand", 2, high=64) * hidden
    if inner % heads:
        raise UnsupportedModel(f"config.json: {inner} mamba channels do not divide into {heads} heads")
    return Mamba2Spec(
        hidden=hidden,
        heads=heads,
        head_dim=inner // heads,
        groups=groups,
        state=fields.count("mamba_d_state", 64, high=4096),
        taps=fields.count("mamba_d_conv", 4, low=2, high=64),
        eps=1e-5,
        in_bias=bias,
        out_bias=bias,
        norm_groups=groups,
    )


def layout(config: Config) -> list[LayerSpec]:
    return sharing_layout(config, config.mixer.memory)


Adapter = list[nn.Linear]


def _adapters(config: Config, block: int, inputs: int, outputs: int) -> list[Adapter]:
    """One low-rank pair for each use of a shared block, empty where another block is used; named as
    stored.
    """
    return [
        [nn.Linear(inputs, config.rank, bias=False), nn.Linear(config.rank, outputs, bias=False)]
        if use % config.blocks == block
        else []
        for use in range(config.uses)
    ]


def _attention_adapters(config: Config, block: int) -> dict[str, list[Adapter]]:
    if not config.adapted_attention:
        return {}
    sizes = {"q": config.heads, "k": config.kv_heads, "v": config.kv_heads}
    wide = 2 * config.hidden_size
    return {part: _adapters(config, block, wide, heads * config.head_dim) for part, heads in sizes.items()}


def _adapted(base: nn.Linear, adapter: Adapter, x: mx.array, step: Step) -> mx.array:
    down, up = adapter
    return linear(base, x, step) + linear(up, linear(down, x, step), step)


def _ups(module: Any, name: str) -> list[str]:
    """The paths of what ends each of these pairs."""
    return [f"{name}.{use}.1" for use, adapter in enumerate(module[name]) if adapter]


def _low(*adapters: Adapter) -> list[tuple[nn.Module, nn.Module]] | None:
    """As `runtime.parts.streams` has them; None: they are not as kernels have them."""
    known = all(type(each) in MATRICES for adapter in adapters for each in adapter)
    return [(down, up) for down, up in adapters] if known else None


class SharedAttention(Module):
    """Over the stream and the embeddings side by side, [B, L, 2D] -> [B, L, D]."""

    def __init__(
        self, config: SharingConfig, rope: Rope | None, adapters: Mapping[str, list[Adapter]]
    ) -> None:
        """adapters: of queries (q), keys and values, one for each use; {} for none."""
        super().__init__()
        wide, inner = 2 * config.hidden_size, config.heads * config.head_dim
        shared = config.kv_heads * config.head_dim
        self.q_proj = nn.Linear(wide, inner, bias=False)
        self.k_proj = nn.Linear(wide, shared, bias=False)
        self.v_proj = nn.Linear(wide, shared, bias=False)
        self.o_proj = nn.Linear(inner, config.hidden_size, bias=False)
        for part, uses in adapters.items():
            setattr(self, f"linear_{part}_adapter_list", uses)
        self._adapted = bool(adapters)
        self._config = config
        self._rope = rope
        self._scale = (config.head_dim / 2) ** -0.5

    @property
    def head_counts(self) -> tuple[int, int]:
        """As in `runtime.nn.attention.self_attention`."""
        return self._config.heads, self._config.kv_heads

    def of_heads(self, heads: int, groups: int) -> dict[str, Any]:
        """As in `runtime.nn.attention.self_attention`."""
        return {"_config": replace(self._config, heads=heads, kv_heads=groups)}

    @property
    def added_to(self) -> dict[str, str]:
        """Matrices, by their paths, whose products are added to those of others."""
        lists = {f"linear_{part}_adapter_list": f"{part}_proj" for part in "qkv"}
        return {path: to for name, to in lists.items() if name in self for path in _ups(self, name)}

    def __call__(self, x: mx.array, use: int, step: Step, cache: AttentionCache) -> mx.array:
        config = self._config
        queries, keys, values = (self._project(part, x, use, step) for part in "qkv")
        queries, keys = split_heads(queries, config.heads), split_heads(keys, config.kv_heads)
        values = split_heads(values, config.kv_heads)
        seen = attend(step, cache, queries, keys, values, scale=self._scale, rope=self._rope)
        return linear(self.o_proj, seen, step)

    def _project(self, part: str, x: mx.array, use: int, step: Step) -> mx.array:
        base = self[f"{part}_proj"]
        if not self._adapted:
            return linear(base, x, step)
        return _adapted(base, self[f"linear_{part}_adapter_list"][use], x, step)

    def parts_for(self, use: int, heads: Heads, norm: RMSNorm) -> AttentionParts | None:
        """What it does with norm(x), the `use`-th time; None: it is not as kernels have it."""
        low = _low(*(self[f"linear_{part}_adapter_list"][use] for part in "qkv")) if self._adapted else ()
        if low is None or not defined_together(type(self), "__call__", "parts_for"):
            return None
        opening = self.q_proj, self.k_proj, self.v_proj
        return attention_parts(AttentionParts(heads, norm, opening, None, self.o_proj, None, low=low))

    def heads(self) -> Heads:
        """Of one use."""
        config = self._config
        return Heads(config.heads, config.kv_heads, config.head_dim, self._scale, self._rope)


class SharedMLP(Module):
    by_inner: ClassVar[bool] = True

    def __init__(self, config: Config, block: int) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.gate_up_proj = nn.Linear(hidden, 2 * inner, bias=config.bias)
        self.down_proj = nn.Linear(inner, hidden, bias=config.bias)
        self.gate_up_proj_adapter_list = _adapters(config, block, hidden, 2 * inner)
        self._activation = ACTIVATIONS[config.activation]

    @property
    def added_to(self) -> dict[str, str]:
        """As in `SharedAttention`."""
        return dict.fromkeys(_ups(self, "gate_up_proj_adapter_list"), "gate_up_proj")

    def __call__(self, x: mx.array, use: int, step: Step) -> mx.array:
        both = _adapted(self.gate_up_proj, self.gate_up_proj_adapter_list[use], x, step)
        gate, up = mx.split(both, 2, axis=-1)
        return linear(self.down_proj, self._activation(gate) * up, step)

    def parts_for(self, use: int, norm: RMSNorm) -> FeedForwardParts | None:
        """As `SharedAttention.parts_for`."""
        low = _low(self.gate_up_proj_adapter_list[use])
        if low is None or not defined_together(type(self), "__call__", "parts_for"):
            return None
        said = feed_forward_parts(
            norm, (self.gate_up_proj,), self._activation, self.down_proj, None, halves=True
        )
        return None if said is None else said._replace(low=low)


class SharedBlock(Module):
    def __init__(self, config: Config, block: int, rope: Rope | None) -> None:
        super().__init__()
        self.self_attn = SharedAttention(config, rope, _attention_adapters(config, block))
        self.feed_forward = SharedMLP(config, block)
        self.input_layernorm = RMSNorm(2 * config.hidden_size, eps=config.norm_eps)
        self.pre_ff_layernorm = RMSNorm(config.hidden_size, eps=config.norm_eps)

    def __call__(
        self, x: mx.array, embedded: mx.array, use: int, step: Step, cache: AttentionCache
    ) -> mx.array:
        joined = self.input_layernorm(mx.concatenate([x, embedded], axis=-1))
        return self.feed_forward(self.pre_ff_layernorm(self.self_attn(joined, use, step, cache)), use, step)

    def parts_for(self, use: int, heads: Heads) -> tuple[AppendInput, UpdateAppended, UpdateAppended] | None:
        """As `SharedAttention.parts_for`: what it makes of the embeddings behind the stream."""
        attended = self.self_attn.parts_for(use, heads, self.input_layernorm)
        fed = self.feed_forward.parts_for(use, self.pre_ff_layernorm)
        if attended is None or fed is None or not defined_together(type(self), "__call__", "parts_for"):
            return None
        return AppendInput(self.pre_ff_layernorm.weight.size), UpdateAppended(attended), UpdateAppended(fed)


class Zamba2(Headed):
    def __init__(self, config: Config) -> None:
        rope = Rope(config.ropes[0]) if config.ropes[0] is not None else None
        blocks = [SharedBlock(config, block, rope) for block in range(min(config.blocks, config.uses))]
        super().__init__(SharingTrunk(config, blocks, lambda: Mamba2(config.mixer)), None)


def build(config: Config) -> Zamba2:
    return Zamba2(config)


def adapt(config: Config, weights: Weights) -> Weights:
    """Filters to MLX's axis order; shared blocks once, where a file repeats them at every layer that runs
    them.
    """
    return with_filters(without_repeats(config, without_spares(config, weights)))


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    wide=RATES,
    checkpoint=always(Checkpoint(repeated="shared_transformer")),
)
