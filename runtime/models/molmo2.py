"""The text model of Molmo 2: Qwen 3, or OLMo's way of norms: over all heads together, and behind sublayers.

The table has more ids than the head, for images, which are never drawn. Layers may be listed whose rotation
is scaled; the others turn by the same base without it.

Sources: transformers modeling_molmo2.py; the names are those of its published files, too.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import StepCache
from runtime.config.decoder import DecoderConfig, layer_count, listed_layers, read_shape
from runtime.config.fields import Fields, whole_heads
from runtime.models.family import Family
from runtime.nn.attention.self_attention import HeadNormAttention, SelfAttention, WideNormAttention
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec, read_rope
from runtime.nn.residual.block import NormedSublayer, PreNorm
from runtime.nn.residual.sublayer import added
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, gated_mlp, head_norms, layer_ropes, rms_norms
from runtime.trunks.pruned import Pruned


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    """`vocab_size` is the table's."""

    bias: bool
    """Of queries, keys and values."""
    together: bool
    """One norm for the heads of all queries, and one for those of all keys; else one for each head."""
    behind: bool
    """Norms stand behind the sublayers."""
    drawn: int
    """So many ids, from the first on, have a row in the head."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("molmo2_text",))
    fields.only({"use_qk_norm": True})  # files have it, and transformers' class has norms whatever it says
    shape = read_shape(
        fields,
        vocab_size=151936,
        hidden_size=4096,
        intermediate_size=12288,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=36864,
    )
    drawn, more = shape["vocab_size"], fields.count("additional_vocab_size", 128, low=0, high=1 << 20)
    # The head is one of its own, whatever a file says of its being tied.
    sizes: dict[str, Any] = {**shape, "vocab_size": drawn + more, "tied": False}
    return Config(
        **sizes,
        windows=(None,) * layer_count(fields, 36),
        ropes=_ropes(fields, shape, layer_count(fields, 36)),
        bias=fields.flag("attention_bias"),
        together=fields.choice("qk_norm_type", ("qwen3", "olmo"), "qwen3") == "olmo",
        behind=fields.flag("norm_after"),
        drawn=drawn,
    )


def _ropes(fields: Fields, shape: dict[str, Any], layers: int) -> tuple[RopeSpec, ...]:
    told = whole_heads(fields.rope_parameters())
    sizes = {"head_dim": shape["head_dim"], "max_positions": shape["context_length"]}
    scaled = read_rope(told, **sizes)
    plain = read_rope({"rope_type": "default", "rope_theta": told["rope_theta"]}, **sizes)
    which = listed_layers(fields, "rope_scaling_layers", layers) or (True,) * layers
    return tuple(scaled if one else plain for one in which)


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class NormedBehind(PreNorm):
    """Under the names of norms before sublayers."""

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        x = added(x, self.self_attn, step, cache, after=self.input_layernorm)
        return added(x, self.mlp, step, after=self.post_attention_layernorm)

    def sublayers(self) -> tuple[NormedSublayer, NormedSublayer]:
        return (
            (self.self_attn, None, self.input_layernorm),
            (self.mlp, None, self.post_attention_layernorm),
        )


def build(config: Config) -> CausalLM:
    norm, block = rms_norms(config), NormedBehind if config.behind else PreNorm
    layers = [block(_attention(config, rope), gated_mlp(config), norm) for rope in layer_ropes(config)]
    if config.drawn != config.vocab_size:
        return Pruned(config, layers, config.drawn)
    return CausalLM(config, layers, norm())


def _attention(config: Config, rope: Rope | None) -> SelfAttention:
    if config.together:
        return WideNormAttention(config, rope, config.norm_eps, qkv_bias=config.bias)
    return HeadNormAttention(config, rope, head_norms(config), qkv_bias=config.bias)


_NAMES = (
    ("model.transformer.ln_f.", "model.norm."),
    ("model.transformer.blocks.", "model.layers."),
    (".attn_norm.", ".input_layernorm."),
    (".ff_norm.", ".post_attention_layernorm."),
    (".attn_out.", ".o_proj."),
    (".ff_out.", ".down_proj."),
)
_TABLES = ("model.transformer.wte.embedding", "model.transformer.wte.new_embedding")


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Published files have queries, keys and values in one matrix, what passes a gate before it in one, and
    two tables.
    """
    inner, shared = config.heads * config.head_dim, config.kv_heads * config.head_dim
    fused = {
        ".att_proj.": (("q_proj", "k_proj", "v_proj"), [inner, inner + shared]),
        ".ff_proj.": (("up_proj", "gate_proj"), [config.intermediate_size]),
    }
    adapted = dict[str, mx.array]()
    for name, array in respelled(weights, _NAMES).items():
        found = next((part for part in fused if part in name), None)
        if found is None:
            adapted[name] = array
            continue
        parts, cuts = fused[found]
        for part, rows in zip(parts, mx.split(array, cuts), strict=True):
            adapted[name.replace(found, f".{part}.")] = rows
    tables = [adapted.pop(name) for name in _TABLES if name in adapted]
    if tables:
        adapted["model.embed_tokens.weight"] = mx.concatenate(tables)
    return without_spares(config, adapted)


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
