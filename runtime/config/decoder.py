"""The part of their configs that decoder-only families share, and how it is read.

A family's `parse` reads the rest. Defaults are what the family's class in transformers takes for a field that
a file leaves out.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from runtime.config.fields import Fields, whole_heads
from runtime.config.rope_block import only_repeats
from runtime.errors import UnsupportedModel
from runtime.nn.feed_forward.mlp import ACTIVATIONS
from runtime.nn.positions.rope_spec import RopeSpec, read_rope
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """What configs of decoder-only families have in common."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    """Of the MLP."""
    heads: int
    """Of queries."""
    kv_heads: int
    """Of keys and values; `heads` is a multiple of it."""
    head_dim: int
    """Elements of a query, key or value, per head."""
    norm_eps: float
    """Added to the mean square, or variance, in each norm."""
    activation: str
    """A name of ACTIVATIONS, in the MLP."""
    tied: bool
    """The output head is the embedding table."""
    context_length: int
    """Tokens."""
    windows: tuple[int | None, ...]
    """Of each layer: its sliding window in tokens; None: full attention."""
    ropes: tuple[RopeSpec | None, ...]
    """Of each layer: how its positions are rotated; None: not at all."""

    @property
    def layers(self) -> int:
        return len(self.windows)


def layer_count(fields: Fields, default: int | None = None) -> int:
    return fields.count("num_hidden_layers", default, high=4096)


def read_shape(
    fields: Fields,
    *,
    eps_field: str = "rms_norm_eps",
    eps: float = 1e-6,
    activation_field: str = "hidden_act",
    activation: str | None = "silu",
    activations: Sequence[str] = tuple(ACTIVATIONS),
    tied: bool = False,
    **defaults: int,
) -> dict[str, Any]:
    """The fields of DecoderConfig but windows and ropes.

    defaults: what the family's transformers class takes for a field that the file leaves out, by the field's
    name; files of multimodal models leave out much.
    """
    hidden = fields.count("hidden_size", defaults.get("hidden_size"), high=1 << 20)
    heads = fields.count("num_attention_heads", defaults.get("num_attention_heads"), high=4096)
    kv_heads = min(defaults.get("num_key_value_heads", heads), heads)
    size = defaults.get("head_dim")
    equal = size is None and not fields.has("head_dim")
    context = defaults.get("max_position_embeddings", 2048)
    return {
        "vocab_size": fields.count("vocab_size", defaults.get("vocab_size"), high=1 << 24),
        "hidden_size": hidden,
        "intermediate_size": fields.count(
            "intermediate_size", defaults.get("intermediate_size"), high=1 << 22
        ),
        "heads": heads,
        "kv_heads": key_heads(fields, heads, kv_heads),
        "head_dim": max(hidden // heads, 1) if equal else fields.count("head_dim", size, high=4096),
        "norm_eps": fields.number(eps_field, eps, low=1e-30),
        "activation": fields.choice(activation_field, tuple(activations), activation),
        "tied": fields.flag("tie_word_embeddings", tied),
        "context_length": fields.count("max_position_embeddings", context),
    }


def read_older_shape(
    fields: Fields,
    *,
    inner: str | None = None,
    length: str = "max_position_embeddings",
    eps_field: str = "layer_norm_epsilon",
    **more: Any,
) -> dict[str, Any]:
    """The same for families from before keys had fewer heads and heads a size of their own: what a file says
    of these is not looked at.

    inner: the field for the MLP's size; without it four times the hidden size. length: for the context's.
    """
    given = fields.count(length, more.pop("max_position_embeddings", 2048))
    hidden = fields.count("hidden_size", more.get("hidden_size"), high=1 << 20)
    size = 4 * hidden if inner is None else fields.count(inner, 4 * hidden, high=1 << 22)
    meant = {name: value for name, value in fields.raw.items() if name not in _LATER}
    meant |= {"intermediate_size": size, "max_position_embeddings": given}
    shape = read_shape(Fields(meant), eps_field=eps_field, eps=1e-5, **more)
    if hidden % shape["heads"]:
        fields.refuse("hidden_size", f"a multiple of num_attention_heads, {shape['heads']}")
    return shape


_LATER = ("num_key_value_heads", "head_dim", "intermediate_size", "max_position_embeddings")


def key_heads(
    fields: Fields, heads: int, default: int | None = None, *, name: str = "num_key_value_heads"
) -> int:
    """Heads of keys and values. Each serves equally many of the `heads` of queries."""
    count = fields.count(name, default, high=heads)
    if heads % count:
        fields.refuse(name, f"a divisor of num_attention_heads, {heads}")
    return count


def read_softcap(fields: Fields, name: str, default: float | None) -> float | None:
    """An explicit null switches a cap off; a field that is left out takes the family's default."""
    if fields.raw.get(name, default) is None:
        return None
    return fields.number(name, default, low=1e-6)


def read_windows(
    fields: Fields, layers: int, *, full_every: int, window: int | None, full_first: bool = False
) -> tuple[int | None, ...]:
    """Sliding windows by `layer_types`; without them one of `full_every` layers is full, the last or the
    first, and the others slide.
    """
    kinds = fields.words("layer_types", layers, ("full_attention", "sliding_attention"))
    if kinds is None:
        full = [(i + (not full_first)) % full_every == 0 for i in range(layers)]
        kinds = fields.take("layer_types", [f"{'full' if one else 'sliding'}_attention" for one in full])
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def without_windows(fields: Fields, layers: int) -> tuple[int | None, ...]:
    """All layers full, as use_sliding_window is off or no window is told. A file that lists sliding ones all
    the same has no one meaning: to transformers they see nothing.
    """
    kinds = fields.raw.get("layer_types")
    if isinstance(kinds, list | tuple) and "sliding_attention" in kinds:
        why = "use_sliding_window is not true or sliding_window null"
        fields.refuse("layer_types", f"full_attention alone, as {why}")
    return (None,) * layers


def rotated_layers(fields: Fields, layers: int) -> tuple[bool, ...]:
    """Which layers have positions: `no_rope_layers` is 1 where they do. Without it every fourth has none."""
    said = fields.switches("no_rope_layers", layers) if fields.raw.get("no_rope_layers") else None
    if said is not None:
        return said
    interval = fields.count("no_rope_layer_interval", 4)
    return tuple((i + 1) % interval != 0 for i in range(layers))


def sparse_layers(fields: Fields, layers: int, dense: int) -> tuple[bool, ...]:
    """Which layers have experts: those that `mlp_layer_types` says, else those behind first_k_dense_replace
    others, without that field `dense`.
    """
    kinds = fields.words("mlp_layer_types", layers, ("dense", "sparse"))
    if kinds is not None:
        return tuple(kind == "sparse" for kind in kinds)
    first = fields.count("first_k_dense_replace", dense, low=0)
    return tuple(i >= first for i in range(layers))


def listed_layers(fields: Fields, name: str, layers: int) -> tuple[bool, ...] | None:
    """For each layer, whether the field's list of indices has it; None without the field."""
    listed = fields.raw.get(name)
    if listed is None:
        return None
    if not isinstance(listed, list) or any(type(i) is not int or not 0 <= i < layers for i in listed):
        fields.refuse(name, f"a list of layers below {layers}")
    listed = set(listed)
    return tuple(i in listed for i in range(layers))


def one_rope(
    fields: Fields,
    shape: dict[str, Any],
    *,
    theta: float = 10000.0,
    partial: float | None = None,
    traditional: bool = False,
) -> RopeSpec:
    """The rotation of a model that has one for all layers. theta and partial: where the file does not say.

    partial None: the family rotates whole heads, whatever a file says; one that says otherwise is refused.
    """
    parameters = fields.rope_parameters(theta=theta)
    return read_rope(
        whole_heads(parameters) if partial is None else _with_share(fields, parameters, partial),
        head_dim=shape["head_dim"],
        max_positions=shape["context_length"],
        traditional=traditional,
    )


def _with_share(fields: Fields, parameters: Mapping[str, Any], partial: float) -> Mapping[str, Any]:
    """The block with the family's own share of a head where it has none. An explicit null beside the block is
    the whole head to some classes of transformers, this share or an error to others.
    """
    name = "partial_rotary_factor"
    if partial != 1.0 and name not in parameters and name in fields.raw:
        fields.refuse(name, f"a number; without the field it is {partial:g}")
    return {name: partial, **parameters}


def own_rope(fields: Fields, block: Mapping[str, Any], *, theta: float = 10000.0) -> Mapping[str, Any]:
    """What a file says of rotation, else the `block` that the family's class in transformers has by itself.

    That is taken whole: a lone rope_theta does not change it, and meant something else in older versions.
    theta: the base of a file's block that gives none.
    """
    if fields.raw.get("rope_parameters") or fields.raw.get("rope_scaling"):
        return fields.rope_parameters(theta=theta)
    if fields.number("rope_theta", block["rope_theta"]) != block["rope_theta"]:
        fields.refuse("rope_theta", f"{block['rope_theta']:g}, or all of it in rope_parameters")
    fields.take("rope_parameters", dict(block))
    return block


def rope_of_kind(
    fields: Fields, kind: str, own: Mapping[str, Mapping[str, Any]], *, head_dim: int, max_positions: int
) -> RopeSpec:
    """The rotation of layers of one kind, where files have a block for each and no other way to say it.
    own: the blocks that the family's class in transformers takes where a file has none.
    """
    if fields.has("rope_scaling") and not only_repeats(fields.raw):
        fields.refuse("rope_scaling", "none: here rope_parameters has a block for each type of layer")
    parameters: Mapping[str, Any] = fields.rope_parameters(kind)
    blocks = fields.raw.get("rope_parameters")
    block = blocks.get(kind) if isinstance(blocks, Mapping) else None
    if block is None:
        fields.take("rope_parameters", own)
        parameters = own[kind]
    elif block.get("rope_theta") is None:  # which transformers refuses, or fills from elsewhere
        raise UnsupportedModel(f"config.json: rope_parameters.{kind} has no rope_theta, and needs its own")
    if parameters["rope_type"] == "default":  # for which transformers does not look at the share
        whole_heads(parameters, "rope_type default")
    return read_rope(parameters, head_dim=head_dim, max_positions=max_positions)


def two_ropes(
    fields: Fields,
    shape: dict[str, Any],
    windows: Sequence[int | None],
    *,
    theta: float,
    local_theta: float,
    local_field: str | None = "rope_local_base_freq",
) -> tuple[RopeSpec, ...]:
    """Rotations of full and of sliding layers: two blocks in new files; in old ones rope_scaling is for full
    layers only, and sliding ones take `local_field`, where the family has it.

    theta, local_theta: the bases of full and of sliding layers where the file does not say.
    """
    full = fields.rope_parameters("full_attention", theta=theta)
    base = local_theta if local_field is None else fields.number(local_field, local_theta, low=2.0)
    sliding = fields.rope_parameters("sliding_attention", theta=base)
    sizes = {"head_dim": shape["head_dim"], "max_positions": shape["context_length"]}
    specs = read_rope(whole_heads(full), **sizes), read_rope(whole_heads(sliding), **sizes)
    return tuple(specs[0] if window is None else specs[1] for window in windows)
