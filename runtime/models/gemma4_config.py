"""The config of Gemma 4's text tower, and what its layers own. Gemma 3n and the assistants share parts."""

from collections.abc import Mapping, Sequence
from typing import Any

from runtime.cache.layout import Full, LayerSpec, Rotating, Shared
from runtime.config.decoder import key_heads, layer_count, read_shape, read_softcap, rope_of_kind
from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel
from runtime.nn.positions.rope_spec import RopeSpec
from runtime.quoting import quoted
from runtime.records import dataclass

_KINDS = ("full_attention", "sliding_attention")
_ROPES: dict[str, dict[str, Any]] = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
}


@dataclass(frozen=True, slots=True)
class Layer:
    """What one layer has of its own."""

    window: int | None
    """Sliding window in tokens; None: full attention."""
    rope: RopeSpec
    head_dim: int
    """Elements of a query, key or value, per head."""
    kv_heads: int
    """Of keys and values."""
    intermediate_size: int
    """Of the MLP."""
    donor: int | None
    """Index of the layer whose keys and values are read; None: its own."""
    keys_are_values: bool
    """Keys, before norm and rotation, are taken for values."""


@dataclass(frozen=True, slots=True)
class Mixture:
    experts: int
    chosen: int
    """Experts asked per token."""
    intermediate_size: int
    """Of an expert."""


@dataclass(frozen=True, slots=True)
class TowerConfig:
    """What text towers of Gemma 3n and of Gemma 4 say."""

    vocab_size: int
    hidden_size: int
    heads: int
    """Of queries."""
    norm_eps: float
    """Added to the mean square in each norm."""
    activation: str
    """A name of ACTIVATIONS, in the MLP."""
    tied: bool
    """The output head is the embedding table."""
    context_length: int
    """Tokens."""
    bias: bool
    """Of the attention's projections."""
    logit_softcap: float | None
    """Logits become cap * tanh(x / cap); None: they stay as they are."""
    per_layer_size: int
    """Elements of the vector that a second table gives each token per layer; 0: no such table."""
    per_layer_vocab: int
    """Rows of the second table; ids beyond it read row 0."""
    layers: tuple[Layer, ...]


@dataclass(frozen=True, slots=True)
class Config(TowerConfig):
    mixture: Mixture | None
    """None: layers have plain MLPs alone."""


def read_tower(fields: Fields) -> Config:
    """The config of a text tower; also of the assistants, whose layers are all donated to."""
    if fields.raw.get("use_bidirectional_attention") not in (None, False, "vision"):
        raise UnsupportedModel(
            "config.json: use_bidirectional_attention is set, and only causal text is computed"
        )
    shape = read_shape(
        fields,
        activation_field="hidden_activation",
        activation="gelu_pytorch_tanh",
        tied=True,
        vocab_size=262144,
        hidden_size=2304,
        intermediate_size=9216,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=256,
        max_position_embeddings=131072,
    )
    unified = fields.raw.get("model_type") in ("gemma4_unified_text", "gemma4_unified")
    return Config(
        **{name: shape[name] for name in OF_SHAPE},
        bias=fields.flag("attention_bias"),
        logit_softcap=read_softcap(fields, "final_logit_softcapping", None),
        per_layer_size=fields.count(
            "hidden_size_per_layer_input", 0 if unified else 256, low=0, high=1 << 16
        ),
        per_layer_vocab=fields.count("vocab_size_per_layer_input", 262144, low=0, high=1 << 24),
        mixture=_mixture(fields),
        layers=_layers(fields, shape, unified),
    )


OF_SHAPE = ("vocab_size", "hidden_size", "heads", "norm_eps", "activation", "tied", "context_length")


def _mixture(fields: Fields) -> Mixture | None:
    if not fields.flag("enable_moe_block"):
        return None
    experts = fields.count("num_experts", high=1 << 16)
    return Mixture(
        experts,
        fields.count("top_k_experts", high=experts),
        fields.count("moe_intermediate_size", high=1 << 22),
    )


def _layers(fields: Fields, shape: dict[str, Any], unified: bool) -> tuple[Layer, ...]:
    count = layer_count(fields, 30)
    kinds = layer_kinds(fields, count)
    shared = fields.count("num_kv_shared_layers", 0, low=0, high=count)
    first = count - shared
    wide = 2 if fields.flag("use_double_wide_mlp") else 1
    window = fields.count("sliding_window", 1024 if unified else 512)
    sizes = [_heads(fields, shape, i, kind) for i, kind in enumerate(kinds)]
    ropes: dict[tuple[str, int], RopeSpec] = {
        (kind, head_dim): rope_of_kind(
            fields, kind, _ROPES, head_dim=head_dim, max_positions=shape["context_length"]
        )
        for kind, (head_dim, _) in zip(kinds, sizes, strict=True)
    }
    donors = [donor_of(kinds[:first], kind) if i >= first else None for i, kind in enumerate(kinds)]
    _refuse_unlike_donors(sizes, donors)
    return tuple(
        Layer(
            window=window if kind == "sliding_attention" else None,
            rope=ropes[kind, head_dim],
            head_dim=head_dim,
            kv_heads=kv_heads,
            intermediate_size=shape["intermediate_size"] * (wide if i >= first else 1),
            donor=donors[i],
            keys_are_values=kind == "full_attention" and fields.flag("attention_k_eq_v"),
        )
        for i, (kind, (head_dim, kv_heads)) in enumerate(zip(kinds, sizes, strict=True))
    )


def layer_kinds(fields: Fields, count: int, *, every: int = 6) -> list[str]:
    """The last layer is always a full one; where none are listed, one in so many."""
    listed = fields.words("layer_types", count, _KINDS)
    full = ((i + 1) % every == 0 for i in range(count))
    kinds = listed or ["full_attention" if one else "sliding_attention" for one in full]
    kinds = [*kinds[:-1], "full_attention"]
    fields.take("layer_types", kinds)
    return kinds


def donor_of(owners: Sequence[str], kind: str) -> int:
    """The last layer of this kind that has keys and values; -1 if none of any kind has (assistants)."""
    if owners and kind not in owners:
        raise UnsupportedModel(
            f"config.json: num_kv_shared_layers leaves no {kind} layer with keys and values"
        )
    return max((i for i, owner in enumerate(owners) if owner == kind), default=-1)


def _refuse_unlike_donors(sizes: Sequence[tuple[int, int]], donors: Sequence[int | None]) -> None:
    """sizes: of each layer's heads, and how many of them have keys."""
    for i, donor in enumerate(donors):
        if donor is not None and donor >= 0 and sizes[i] != sizes[donor]:
            (size, count), (others, have) = sizes[i], sizes[donor]
            raise UnsupportedModel(
                f"config.json: layer {i} has {count} key heads of {size}, and reads the keys and values of "
                f"layer {donor}, which has {have} of {others}"
            )


def _heads(fields: Fields, shape: dict[str, Any], i: int, kind: str) -> tuple[int, int]:
    """Head size and number of key heads of layer i. `per_layer_config` of new files replaces `global_...`."""
    listed = listed_heads(fields, shape, i)
    if listed is not None:
        return listed
    if kind == "sliding_attention":
        return shape["head_dim"], shape["kv_heads"]
    kv_heads = shape["kv_heads"]
    if fields.flag("attention_k_eq_v"):
        kv_heads = key_heads(fields, shape["heads"], kv_heads, name="num_global_key_value_heads")
    return fields.count("global_head_dim", 512, high=4096), kv_heads


def listed_heads(fields: Fields, shape: dict[str, Any], i: int) -> tuple[int, int] | None:
    """What `per_layer_config` says of them; None in files without it."""
    table = fields.raw.get("per_layer_config")
    if not isinstance(table, Mapping):
        return None
    own = table.get(str(i)) or {}
    if not isinstance(own, Mapping) or set(own) - {"head_dim", "num_key_value_heads"}:
        raise UnsupportedModel(
            f"config.json: per_layer_config of layer {i} is {quoted(own)}; only head_dim and "
            "num_key_value_heads can differ between layers"
        )
    layer = Fields({"head_dim": shape["head_dim"], "num_key_value_heads": shape["kv_heads"], **own})
    return layer.count("head_dim", high=4096), key_heads(layer, shape["heads"])


def layers_layout(layers: Sequence[Layer]) -> list[LayerSpec]:
    return [_memory(layer) for layer in layers]


def _memory(layer: Layer) -> LayerSpec:
    if layer.donor is not None:
        return Shared(layer.donor)
    if layer.window is None:
        return Full(layer.kv_heads, layer.head_dim)
    return Rotating(layer.kv_heads, layer.head_dim, layer.window)


def unused_projections(layers: Sequence[Layer]) -> tuple[str, ...]:
    """Prefixes of the key and value tensors of layers that read another layer's memory."""
    shared = [i for i, layer in enumerate(layers) if layer.donor is not None]
    return tuple(f"model.layers.{i}.self_attn.{part}_" for i in shared for part in "kv")
