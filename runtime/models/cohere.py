"""Command-R (Cohere) and Command-A, R7B (Cohere 2): attention and MLP side by side on one LayerNorm without
bias.

Positions rotate neighbouring pairs and the logits are scaled. Cohere may norm each query and key head with
weights of its own; Cohere 2 alternates sliding layers with full ones that leave positions out (NoPE). In
Compass, the text model of North Vision, halves of heads rotate, for each kind of layer as the config says.
"""

from collections.abc import Mapping
from typing import Any

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape, read_windows
from runtime.config.fields import Fields, whole_heads
from runtime.models.family import Family
from runtime.nn.attention.self_attention import HeadNormAttention, SelfAttention
from runtime.nn.norm import HeadLayerNorm, LayerNorm, Normalize
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec, read_rope
from runtime.nn.residual.block import Parallel
from runtime.records import dataclass
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, gated_mlp, layer_ropes


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    bias: bool
    head_norm: bool
    logit_scale: float


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    family = fields.choice("model_type", ("cohere", "cohere2", "cohere_compass_text"))
    if family == "cohere_compass_text":
        return _compass(fields)
    shape = read_shape(fields, eps_field="layer_norm_eps", eps=1e-5, tied=True, max_position_embeddings=8192)
    layers = layer_count(fields)
    windows: tuple[int | None, ...] = (None,) * layers
    if family == "cohere2":
        every, window = fields.count("sliding_window_pattern", 4), fields.count("sliding_window", 4096)
        windows = read_windows(fields, layers, full_every=every, window=window)
    rope = one_rope(fields, shape, theta=10000.0 if family == "cohere2" else 500000.0, traditional=True)
    return Config(
        **shape,
        windows=windows,
        ropes=tuple(None if family == "cohere2" and window is None else rope for window in windows),
        bias=fields.flag("attention_bias"),
        head_norm=family == "cohere" and fields.flag("use_qk_norm"),
        logit_scale=fields.number("logit_scale", 0.0625),
    )


def _compass(fields: Fields) -> Config:
    """Each kind of layer has a rotation of its own, or none, of halves of heads."""
    own = {name: value for name, value in fields.raw.items() if name != "head_dim"}
    shape = read_shape(
        Fields(own),
        eps_field="layer_norm_eps",
        eps=1e-5,
        tied=True,
        vocab_size=256000,
        hidden_size=8192,
        intermediate_size=22528,
        num_attention_heads=64,
        max_position_embeddings=8192,
    )
    layers = layer_count(fields, 40)
    windows = read_windows(fields, layers, full_every=1, window=fields.count("sliding_window", 4096))
    blocks = fields.raw.get("rope_parameters")
    ropes: dict[bool, RopeSpec | None] = {}
    for slides in {window is not None for window in windows}:
        kind = "sliding_attention" if slides else "full_attention"
        if not isinstance(blocks, Mapping) or kind not in blocks:
            fields.refuse("rope_parameters", f"a block for {kind}, or null in its place")
        if blocks[kind] is not None:
            sizes = {"head_dim": shape["head_dim"], "max_positions": shape["context_length"]}
            ropes[slides] = read_rope(whole_heads(fields.rope_parameters(kind)), **sizes)
    return Config(
        **shape,
        windows=windows,
        ropes=tuple(ropes.get(window is not None) for window in windows),
        bias=fields.flag("attention_bias"),
        head_norm=False,
        logit_scale=fields.number("logit_scale", 1.0),
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class Cohere(CausalLM):
    def __init__(self, config: Config) -> None:
        def norm() -> Normalize:
            return LayerNorm(config.hidden_size, eps=config.norm_eps, bias=False)

        ropes = layer_ropes(config)
        blocks = [Parallel(_attention(config, rope), gated_mlp(config), norm) for rope in ropes]
        super().__init__(config, blocks, norm(), logit_scale=config.logit_scale)


def _attention(config: Config, rope: Rope | None) -> SelfAttention:
    bias = config.bias
    if not config.head_norm:
        return SelfAttention(config, rope, qkv_bias=bias, output_bias=bias)

    def norm(heads: int) -> Normalize:
        return HeadLayerNorm(heads, config.head_dim, config.norm_eps)

    return HeadNormAttention(config, rope, norm, qkv_bias=bias, output_bias=bias)


def build(config: Config) -> Cohere:
    return Cohere(config)


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=without_spares)
