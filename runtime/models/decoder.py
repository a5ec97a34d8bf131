"""What decoder-only families share: the common part of their configs, embedding and head, tensor names.

A family's file reads the rest of its config and makes its layers; `CausalLM` runs them. Names are those that
transformers writes for a text model (`model.embed_tokens`, `model.layers.N`, `model.norm`, `lm_head`); what a
multimodal wrapper puts around them is taken off by `text_tower`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Full, LayerSpec, Rotating
from runtime.cache.protocol import Rotate
from runtime.errors import UnsupportedModel, shown
from runtime.models.config import Fields, whole_heads
from runtime.models.taps import Taps
from runtime.nn.mlp import ACTIVATIONS, GatedMLP
from runtime.nn.norm import Norm
from runtime.nn.rope import Rope
from runtime.nn.rope_spec import RopeSpec, read_rope
from runtime.step import Step


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """windows[i]: layer i's sliding window in tokens, None for full attention. ropes[i]: how its positions
    are rotated, None for not at all.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    activation: str
    tied: bool
    context_length: int
    windows: tuple[int | None, ...]
    ropes: tuple[RopeSpec | None, ...]

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
    head_dim = defaults.get("head_dim", max(hidden // heads, 1))
    context = defaults.get("max_position_embeddings", 2048)
    return {
        "vocab_size": fields.count("vocab_size", defaults.get("vocab_size"), high=1 << 24),
        "hidden_size": hidden,
        "intermediate_size": fields.count(
            "intermediate_size", defaults.get("intermediate_size"), high=1 << 22
        ),
        "heads": heads,
        "kv_heads": fields.count("num_key_value_heads", kv_heads, high=heads),
        "head_dim": fields.count("head_dim", head_dim, high=4096),
        "norm_eps": fields.number(eps_field, eps, low=1e-30),
        "activation": fields.choice(activation_field, tuple(activations), activation),
        "tied": fields.flag("tie_word_embeddings", tied),
        "context_length": fields.count("max_position_embeddings", context),
    }


def read_windows(
    fields: Fields, layers: int, *, full_every: int, window: int | None
) -> tuple[int | None, ...]:
    """Sliding windows by `layer_types`; without them every `full_every`-th layer is full and the others
    slide.
    """
    kinds = fields.words("layer_types", layers, ("full_attention", "sliding_attention"))
    if kinds is None:
        return tuple(None if (i + 1) % full_every == 0 else window for i in range(layers))
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def rotated_layers(fields: Fields, layers: int) -> tuple[bool, ...]:
    """Which layers have positions: `no_rope_layers` is 1 where they do. Without it every fourth has none."""
    listed = fields.raw.get("no_rope_layers")
    if not listed:
        interval = fields.count("no_rope_layer_interval", 4)
        return tuple((i + 1) % interval != 0 for i in range(layers))
    if not isinstance(listed, list) or len(listed) != layers or any(item not in (0, 1) for item in listed):
        raise UnsupportedModel(
            f"config.json: no_rope_layers should list 0 or 1 for each of {layers} layers; "
            f"it is {shown(listed)}"
        )
    return tuple(bool(item) for item in listed)


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
        whole_heads(parameters) if partial is None else {"partial_rotary_factor": partial, **parameters},
        head_dim=shape["head_dim"],
        max_positions=shape["context_length"],
        traditional=traditional,
    )


def two_ropes(
    fields: Fields,
    shape: dict[str, Any],
    windows: Sequence[int | None],
    *,
    theta: float,
    local_theta: float | None = None,
) -> tuple[RopeSpec, ...]:
    """Rotations of full and of sliding layers: two blocks in new files; in old ones rope_scaling is for full
    layers only, and sliding ones take `rope_local_base_freq`.

    local_theta: the base of sliding layers where the file does not say; None for that of full layers.
    """
    full = fields.rope_parameters("full_attention", theta=theta)
    if local_theta is None:
        local_theta = fields.number("rope_theta", theta, low=2.0)
    base = fields.number("rope_local_base_freq", local_theta, low=2.0)
    sliding = fields.rope_parameters("sliding_attention", theta=base)
    sizes = {"head_dim": shape["head_dim"], "max_positions": shape["context_length"]}
    specs = read_rope(whole_heads(full), **sizes), read_rope(whole_heads(sliding), **sizes)
    return tuple(specs[0] if window is None else specs[1] for window in windows)


def attention_layout(config: DecoderConfig) -> list[LayerSpec]:
    return [
        Full(config.kv_heads, config.head_dim)
        if window is None
        else Rotating(config.kv_heads, config.head_dim, window)
        for window in config.windows
    ]


def layer_ropes(config: DecoderConfig) -> list[Rope | None]:
    """One Rope for each layer; layers that turn alike share it."""
    made = {spec: Rope(spec) for spec in set(config.ropes) if spec is not None}
    return [None if spec is None else made[spec] for spec in config.ropes]


def rms_norms(config: DecoderConfig) -> Norm:
    """Makes the norms of the residual stream."""
    return lambda: nn.RMSNorm(config.hidden_size, eps=config.norm_eps)


def head_norms(config: DecoderConfig) -> Callable[[int], nn.Module]:
    """Makes norms that all heads share."""
    return lambda _heads: nn.RMSNorm(config.head_dim, eps=config.norm_eps)


def gated_mlp(config: DecoderConfig, *, bias: bool = False, inner: int | None = None) -> GatedMLP:
    """inner: where it is not the config's intermediate size."""
    inner = config.intermediate_size if inner is None else inner
    return GatedMLP(config.hidden_size, inner, activation=config.activation, bias=bias)


class Trunk(Taps):
    """Everything below the output head."""

    def __init__(
        self, config: DecoderConfig, layers: Sequence[nn.Module], norm: nn.Module, embed_scale: float | None
    ) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers: Any = list(layers)
        self.norm: Any = norm
        self._embed_scale = embed_scale
        self._turned = any(rope is not None for rope in config.ropes)

    def __call__(self, step: Step, caches: Sequence[Any]) -> mx.array:
        if not self._turned:
            step.refuse_positions("no layer of this network goes by positions")
        x = step.embedded(self.embed)
        last = len(self.layers) - 1
        for place, (layer, cache) in enumerate(zip(self.layers, caches, strict=True)):
            x = layer(x, step, cache)
            if place in self._wanted and place != last:
                self.note(place, x, step)
        x = self.norm(x)
        if last in self._wanted:
            self.note(last, x, step)
        return x

    def embed(self, ids: mx.array) -> mx.array:
        """What enters the first layer, [B, L, D]."""
        x = self.embed_tokens(ids)
        return x if self._embed_scale is None else x * self._embed_scale


class CausalLM(nn.Module):
    """A Network of `layers` called as layer(x, step, cache). Families may override `logits`."""

    def __init__(
        self,
        config: DecoderConfig,
        layers: Sequence[nn.Module],
        norm: nn.Module,
        *,
        embed_scale: float | None = None,
        head_bias: bool = False,
    ) -> None:
        super().__init__()
        self.model = Trunk(config, layers, norm, embed_scale)
        if not config.tied:
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=head_bias)
        self._tied = config.tied

    def __call__(self, step: Step, caches: Sequence[Any]) -> mx.array:
        return self.model(step, caches)

    def embed(self, ids: mx.array) -> mx.array:
        return self.model.embed(ids)

    @property
    def shifts(self) -> list[Rotate | None]:
        """Per layer how its keys are moved, for `LayerMemory.remove` of tokens in the middle of a row."""
        return [getattr(getattr(layer, "self_attn", None), "shift", None) for layer in self.model.layers]

    def logits(self, hidden: mx.array) -> mx.array:
        return self.model.embed_tokens.as_linear(hidden) if self._tied else self.lm_head(hidden)


def softcapped(logits: mx.array, cap: float) -> mx.array:
    """cap * tanh(logits / cap)."""
    return mx.tanh(logits / cap) * cap


_WRAPPERS = (
    ("model.language_model.", "model."),
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
)


def text_tower(weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """The tensors of a multimodal checkpoint's text model, named as in a text-only one.

    Wrappers are named `language_model.model.` (transformers 4, MLX) or `model.language_model.` (since 4.52).
    """
    return {_unwrapped(name): array for name, array in weights.items()}


def _unwrapped(name: str) -> str:
    for wrapped, plain in _WRAPPERS:
        if name.startswith(wrapped):
            return plain + name.removeprefix(wrapped)
    return name


def without_spares(config: DecoderConfig, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Drop what carries no information: stored rotary tables, and a head that repeats a tied embedding."""
    spare_head = ("lm_head.",) if config.tied else ()
    return {
        name: array
        for name, array in weights.items()
        if not name.endswith("rotary_emb.inv_freq") and not name.startswith(spare_head)
    }
