"""MiMo-V2-Flash and MiMo V2.5: one full layer to five sliding ones, which have sinks and other key-value
heads.

Values are smaller than keys and scaled; a third of each head is rotated, by two bases. Experts are routed
by corrected sigmoids. Published configs say hybrid_layer_pattern, moe_layer_freq and swa_*, transformers
layer_types and mlp_layer_types. Files of V2.5 (`mimo_v2`) may have queries, keys and values in one matrix: as
many shares of all three, one below the other, as full layers have key-value heads. The draft heads in
published files (`model.mtp.`) are left out.

Sources: transformers modeling_mimo_v2_flash.py; SGLang's mimo_v2.py, and the modeling code in V2.5's files.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Full, LayerSpec, Rotating
from runtime.cache.protocol import AttentionCache
from runtime.config.decoder import key_heads, layer_count, read_shape
from runtime.config.fields import Fields
from runtime.config.rope_block import is_keyed, only_repeats
from runtime.errors import UnsupportedModel
from runtime.models.family import CORRECTIONS, Family
from runtime.nn.attention.attend import attend, split_heads
from runtime.nn.attention.attention_sublayer import AttentionSublayer
from runtime.nn.linear import linear
from runtime.nn.norm import Normalize
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec, read_rope
from runtime.nn.residual.block import PreNorm
from runtime.nn.residual.sublayer import attention_parts
from runtime.parts.attention import AttentionParts
from runtime.parts.heads import Heads
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.names import without_spares
from runtime.tensors.towers import Towers
from runtime.trunks.decoder import CausalLM, layer_ropes, rms_norms
from runtime.trunks.mixture import MixtureConfig, feed_forward, read_mixture

_KINDS = ("full_attention", "sliding_attention")
_UNSAID: dict[str, dict[str, Any]] = {
    "mimo_v2": {
        "attention_value_scale": 1.0,
        "add_swa_attention_sink_bias": False,
        "partial_rotary_factor": 1.0,
    }
}
"""What a file that leaves these out means, where it is not what Flash's class takes."""
_TOWERS = Towers(images=("visual.", "vision_model."), sound=("audio_encoder.", "speech_embeddings."))


@dataclass(frozen=True, slots=True)
class Config(MixtureConfig):
    sliding_kv_heads: int
    """Of layers with a sliding window; `kv_heads` is that of full layers."""
    value_dim: int
    """Elements of a value, per head; `head_dim` is that of queries and keys."""
    value_scale: float
    """Values are multiplied by it."""
    bias: bool
    sparse: tuple[bool, ...]
    """Of each layer: its feed-forward is a mixture."""

    def kv_heads_of(self, window: int | None) -> int:
        return self.kv_heads if window is None else self.sliding_kv_heads


def parse(raw: Mapping[str, Any]) -> Config:
    told = Fields(raw).raw
    kind = str(told.get("model_type"))
    fields = Fields({**_UNSAID.get(kind, {}), **told})
    _refuse_unknown(fields)
    shape = read_shape(
        fields,
        eps_field="layernorm_epsilon" if fields.has("layernorm_epsilon") else "rms_norm_eps",
        eps=1e-5,
        num_key_value_heads=4,
        head_dim=192,
        max_position_embeddings=131072,
    )
    layers = layer_count(fields, 48)
    sliding = _sliding(fields, layers)
    window = _window(fields)
    ropes = {kind: _rope(fields, shape, sliding=kind) for kind in set(sliding)}
    return Config(
        **shape,
        windows=tuple(window if slides else None for slides in sliding),
        ropes=tuple(ropes[slides] for slides in sliding),
        sliding_kv_heads=key_heads(
            fields, shape["heads"], 2 * shape["kv_heads"], name="swa_num_key_value_heads"
        ),
        value_dim=fields.count("v_head_dim", 128, high=4096),
        value_scale=fields.number(
            "attention_value_scale", 0.707 if "attention_value_scale" not in fields.raw else 1.0
        ),
        bias=fields.flag("attention_bias"),
        sparse=_sparse(fields, layers),
        mixture=read_mixture(fields, experts=256, chosen=8, inner=2048, scale=1.0, shared=0),
    )


def _refuse_unknown(fields: Fields) -> None:
    fields.choice("attention_projection_layout", ("split", "fused_qkv"), "split")
    for name, computed in (("add_swa_attention_sink_bias", True), ("add_full_attention_sink_bias", False)):
        if fields.flag(name, computed) != computed:
            raise UnsupportedModel(
                f"config.json: {name} is {not computed}, and only {computed} is computed here"
            )
    for own, sliding in (
        ("num_attention_heads", "swa_num_attention_heads"),
        ("head_dim", "swa_head_dim"),
        ("v_head_dim", "swa_v_head_dim"),
    ):
        if fields.has(sliding) and fields.raw[sliding] != fields.raw.get(own):
            raise UnsupportedModel(f"config.json: {sliding} differs from {own}, which is not computed here")
    if fields.raw.get("n_shared_experts"):
        raise UnsupportedModel("config.json: n_shared_experts is set, which this family is not computed with")


def _sliding(fields: Fields, layers: int) -> tuple[bool, ...]:
    kinds = fields.words("layer_types", layers, _KINDS)
    if kinds is not None:
        return tuple(kind == "sliding_attention" for kind in kinds)
    pattern = fields.switches("hybrid_layer_pattern", layers)
    sliding = pattern or (i != 0 and (i + 1) % 6 != 0 for i in range(layers))
    return fields.settle("layer_types", ("sliding_attention", "full_attention"), sliding)


def _sparse(fields: Fields, layers: int) -> tuple[bool, ...]:
    kinds = fields.words("mlp_layer_types", layers, ("dense", "sparse"))
    if kinds is not None:
        return tuple(kind == "sparse" for kind in kinds)
    return fields.switches("moe_layer_freq", layers) or tuple(i > 0 for i in range(layers))


def _window(fields: Fields) -> int:
    """Published configs count the tokens before the query, transformers counts the query in."""
    if fields.has("sliding_window_size"):
        return fields.count("sliding_window_size") + 1
    return fields.count("sliding_window", 129)


def _rope(fields: Fields, shape: dict[str, Any], *, sliding: bool) -> RopeSpec:
    if fields.has("rope_scaling") and not only_repeats(fields.raw):
        fields.refuse("rope_scaling", "none: here rope_parameters has a block for each type of layer")
    if fields.raw.get("model_type") == "mimo_v2" and not is_keyed(fields.raw):
        block = _only_block(fields, sliding=sliding)
    elif fields.has("rope_parameters"):
        block = fields.rope_parameters(_KINDS[sliding])
    elif sliding:
        block = {"rope_theta": fields.number("swa_rope_theta", 10000.0, low=2.0)}
    else:
        block = fields.rope_parameters(theta=5e6)
    outer = fields.number("partial_rotary_factor", 0.334, low=1e-4, high=1.0)
    scaled = block.get("rope_type", "default") != "default"
    if scaled and not fields.has("partial_rotary_factor") and "partial_rotary_factor" not in block:
        outer = 1.0  # the family's own share is that of its plain rotation
    share = block.get("partial_rotary_factor", outer)
    return read_rope(
        {**block, "partial_rotary_factor": share},
        head_dim=shape["head_dim"],
        max_positions=shape["context_length"],
    )


def _only_block(fields: Fields, *, sliding: bool) -> dict[str, Any]:
    """Of V2.5's files, which have one for both kinds, and the base of sliding layers beside it."""
    block = fields.rope_parameters()
    if block["rope_type"] != "default":
        fields.refuse("rope_parameters", "rope_type default, or a block for each type of layer")
    if not sliding:
        return block
    return {**block, "rope_theta": fields.number("swa_rope_theta", block["rope_theta"], low=2.0)}


def layout(config: Config) -> list[LayerSpec]:
    full = Full(config.kv_heads, config.head_dim, config.value_dim)
    return [
        full
        if window is None
        else Rotating(config.sliding_kv_heads, config.head_dim, window, config.value_dim)
        for window in config.windows
    ]


class Attention(AttentionSublayer):
    def __init__(self, config: Config, rope: Rope | None, window: int | None) -> None:
        super().__init__()
        hidden, heads, kv_heads = config.hidden_size, config.heads, config.kv_heads_of(window)
        self.q_proj = nn.Linear(hidden, heads * config.head_dim, bias=config.bias)
        self.k_proj = nn.Linear(hidden, kv_heads * config.head_dim, bias=config.bias)
        self.v_proj = nn.Linear(hidden, kv_heads * config.value_dim, bias=config.bias)
        self.o_proj = nn.Linear(heads * config.value_dim, hidden, bias=False)
        if window is not None:
            self.sinks = mx.zeros((heads,))
        self._config, self._kv_heads, self._rope = config, kv_heads, rope
        self._attends = Heads(heads, kv_heads, config.head_dim, config.head_dim**-0.5, rope)

    @property
    def head_counts(self) -> tuple[int, int]:
        """As in `runtime.nn.attention.self_attention`."""
        return self._config.heads, self._kv_heads

    def of_heads(self, heads: int, groups: int) -> dict[str, Any]:
        """As in `runtime.nn.attention.self_attention`."""
        attends = replace(self._attends, count=heads, groups=groups)
        return {"_config": replace(self._config, heads=heads), "_kv_heads": groups, "_attends": attends}

    def parts(self, norm: Normalize | None, after: Normalize | None) -> AttentionParts | None:
        opening = self.q_proj, self.k_proj, self.v_proj
        sinks, scale = self.get("sinks"), self._config.value_scale
        return attention_parts(
            AttentionParts(self._attends, norm, opening, None, self.o_proj, after, sinks, value_scale=scale)
        )

    def seen(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        config = self._config
        queries = split_heads(linear(self.q_proj, x, step), config.heads)
        keys = split_heads(linear(self.k_proj, x, step), self._kv_heads)
        values = split_heads(linear(self.v_proj, x, step), self._kv_heads) * config.value_scale
        scale = config.head_dim**-0.5
        return attend(
            step, cache, queries, keys, values, scale=scale, rope=self._rope, sinks=self.get("sinks")
        )


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)
    kinds = zip(layer_ropes(config), config.windows, config.sparse, strict=True)
    layers = [
        PreNorm(Attention(config, rope, window), feed_forward(config, sparse=sparse), norm)
        for rope, window, sparse in kinds
    ]
    return CausalLM(config, layers, norm())


_FUSED = re.compile(r"model\.layers\.(\d{1,5})\.self_attn\.qkv_proj\.\w+")


def adapt(config: Config, weights: Weights) -> Weights:
    adapted: Weights = {}
    for name, array in without_spares(config, weights).items():
        fused = _FUSED.fullmatch(name)
        rows = _rows(config, int(fused[1])) if fused else None
        if rows is None or array.shape[0] != sum(rows):
            adapted[name.replace(".attention_sink_bias", ".sinks")] = array
            continue
        for part, own in zip("qkv", _parted(array, rows, config.kv_heads), strict=True):
            adapted[name.replace(".qkv_proj.", f".{part}_proj.")] = own
    return to_switch(adapted, config.mixture.experts)


def _rows(config: Config, layer: int) -> tuple[int, int, int] | None:
    """Of a layer's queries, keys and values, where each is cut into as many shares; None where none is."""
    window = config.windows[layer] if layer < config.layers else None
    groups = config.kv_heads_of(window)
    if layer >= config.layers or groups % config.kv_heads:
        return None
    return config.heads * config.head_dim, groups * config.head_dim, groups * config.value_dim


def _parted(array: mx.array, rows: tuple[int, int, int], shares: int) -> list[mx.array]:
    cuts = [rows[0] // shares, (rows[0] + rows[1]) // shares]
    parts = mx.split(array.reshape(shares, -1, *array.shape[1:]), cuts, axis=1)
    return [part.reshape(-1, *array.shape[1:]) for part in parts]


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    wide=CORRECTIONS,
    checkpoint=always(Checkpoint(heads=("mtp.",), towers=_TOWERS)),
)
