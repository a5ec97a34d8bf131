"""Nomic BERT: an encoder that looks both ways, with rotations and gated feed-forward blocks, for embeddings.

A LayerNorm behind every sublayer, as in BERT, and no biases but the norms'. Two forms of files are read:
transformers' own, and the one that Nomic published, with other names for tensors and fields and one matrix
for queries, keys and values; what else that form can say is refused. Sources: arXiv 2402.01613; transformers
modeling_nomic_bert.py; modeling_hf_nomic_bert.py of nomic-ai/nomic-bert-2048.
"""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec, Stateless
from runtime.cache.protocol import Caches
from runtime.errors import UnsupportedModel, shown
from runtime.models.checkpoint import Checkpoint, always
from runtime.models.config import Fields, whole_heads
from runtime.models.encoder import Encoder
from runtime.models.family import Family
from runtime.models.quantizing import EIGHT_ELSE, SOURCE, Row
from runtime.models.tensor_names import renamed
from runtime.nn.attend import split_heads
from runtime.nn.bidirectional import attend_both_ways
from runtime.nn.linear import embed, linear
from runtime.nn.mlp import ACTIVATIONS, GatedMLP
from runtime.nn.module import Module
from runtime.nn.norm import LayerNorm
from runtime.nn.rope import Rope
from runtime.nn.rope_spec import RopeSpec, read_rope
from runtime.nn.sublayer import projections
from runtime.records import dataclass
from runtime.step import Step


@dataclass(frozen=True, slots=True)
class Config:
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    head_dim: int
    norm_eps: float
    """Added to the variance in each norm."""
    activation: str
    """A name of ACTIVATIONS, of the half that gates."""
    types: int
    """Rows of the table of token types, of which the first is every token's."""
    context_length: int
    """Tokens."""
    rope: RopeSpec


# Fields of Nomic's own form, and what transformers calls them.
_PUBLISHED = {
    "n_embd": "hidden_size",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "n_layer": "num_hidden_layers",
    "n_positions": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps",
    "rotary_emb_base": "rope_theta",
}
# Others of it, with the one value that is computed here; null is that, too.
_ONLY: dict[str, Any] = {
    "activation_function": "swiglu",
    "causal": False,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "moe_every_n_layers": 0,
    "parallel_block": False,
    "prenorm": False,
    "qkv_proj_bias": False,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "use_rms_norm": False,
}


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(_respelled(raw))
    hidden = fields.count("hidden_size", 768, high=1 << 20)
    heads = fields.count("num_attention_heads", 12, high=4096)
    head_dim = fields.count("head_dim", max(hidden // heads, 1), high=4096)
    context = fields.count("max_position_embeddings", 2048)
    rope = whole_heads(fields.rope_parameters(theta=1000.0))
    return Config(
        vocab_size=fields.count("vocab_size", 30528, high=1 << 24),
        hidden_size=hidden,
        intermediate_size=fields.count("intermediate_size", 3072, high=1 << 22),
        layers=fields.count("num_hidden_layers", 12, high=4096),
        heads=heads,
        head_dim=head_dim,
        norm_eps=fields.number("layer_norm_eps", 1e-12, low=1e-30),
        activation=fields.choice("hidden_act", tuple(ACTIVATIONS), "silu"),
        types=fields.count("type_vocab_size", 2, high=1 << 16),
        context_length=context,
        rope=read_rope(rope, head_dim=head_dim, max_positions=context),
    )


def _respelled(raw: Mapping[str, Any]) -> dict[str, Any]:
    """In transformers' names. UnsupportedModel for what Nomic's form can say and nothing here computes."""
    for name, value in _ONLY.items():
        if raw.get(name) is not None and raw[name] != value:
            raise UnsupportedModel(
                f"config.json: {name} is {shown(raw[name])}, and only {shown(value)} is computed here"
            )
    for other, name in _PUBLISHED.items():
        if raw.get(other) is not None and raw.get(name) not in (None, raw[other]):
            raise UnsupportedModel(
                f"config.json: {other} is {shown(raw[other])} and {name} is {shown(raw[name])}, "
                "and both are names of one thing"
            )
    found = {name: raw[other] for other, name in _PUBLISHED.items() if raw.get(other) is not None}
    return {**raw, **found}


def layout(config: Config) -> list[LayerSpec]:
    return [Stateless() for _ in range(config.layers)]


def _norm(config: Config) -> LayerNorm:
    return LayerNorm(config.hidden_size, eps=config.norm_eps)


class Embeddings(Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.types, config.hidden_size)
        self.LayerNorm = _norm(config)

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        types = mx.zeros(x.shape[:2], dtype=mx.int32)
        return self.LayerNorm(x + embed(self.token_type_embeddings, types, step))


class Attention(Module):
    def __init__(self, config: Config, rope: Rope) -> None:
        super().__init__()
        inner = config.heads * config.head_dim
        self.q_proj, self.k_proj, self.v_proj = (
            nn.Linear(config.hidden_size, inner, bias=False) for _ in range(3)
        )
        self.o_proj = nn.Linear(inner, config.hidden_size, bias=False)
        self._heads, self._rope, self._scale = config.heads, rope, config.head_dim**-0.5

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        parts = projections((self.q_proj, self.k_proj, self.v_proj), x, step)
        queries, keys, values = (split_heads(part, self._heads) for part in parts)
        queries, keys = self._rope(queries, step), self._rope(keys, step)
        seen = attend_both_ways(queries, keys, values, scale=self._scale, counts=step.counts)
        return linear(self.o_proj, seen, step)


class Layer(Module):
    def __init__(self, config: Config, rope: Rope) -> None:
        super().__init__()
        self.self_attn = Attention(config, rope)
        self.post_attention_layernorm = _norm(config)
        self.mlp = GatedMLP(config.hidden_size, config.intermediate_size, activation=config.activation)
        self.post_mlp_layernorm = _norm(config)

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        x = self.post_attention_layernorm(x + self.self_attn(x, step))
        return self.post_mlp_layernorm(x + self.mlp(x, step))


class NomicBert(Encoder):
    shifts: ClassVar[tuple[()]] = ()

    def __init__(self, config: Config) -> None:
        super().__init__()
        rope = Rope(config.rope)
        self.embeddings = Embeddings(config)
        self.layers = [Layer(config, rope) for _ in range(config.layers)]

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        x = self.embeddings(step.embedded(self.embed), step)
        for layer in self.layers:
            x = layer(x, step)
        return x

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return embed(self.embeddings.word_embeddings, ids, step)


def build(config: Config) -> NomicBert:
    return NomicBert(config)


_PREFIXES = ("nomic_bert.", "bert.")
_RENAMED = (
    (re.compile(r"^encoder\.layers\."), "layers."),
    (re.compile(r"^emb_ln\."), "embeddings.LayerNorm."),
    (re.compile(r"\.attn\.out_proj\."), ".self_attn.o_proj."),
    (re.compile(r"\.mlp\.fc11\."), ".mlp.up_proj."),
    (re.compile(r"\.mlp\.fc12\."), ".mlp.gate_proj."),
    (re.compile(r"\.mlp\.fc2\."), ".mlp.down_proj."),
    (re.compile(r"\.norm1\."), ".post_attention_layernorm."),
    (re.compile(r"\.norm2\."), ".post_mlp_layernorm."),
)
_FUSED = re.compile(r"(.*)\.attn\.Wqkv\.(\w+)")


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Either form's names, and a matrix for each of queries, keys and values. Rows are cut, so packed ones
    can be, too.
    """
    found: dict[str, mx.array] = {}
    for name, array in weights.items():
        name = renamed(name, _PREFIXES, _RENAMED)
        fused = _FUSED.fullmatch(name)
        if fused is None or array.shape[0] % 3:
            found[name] = array
            continue
        for part, rows in zip("qkv", mx.split(array, 3), strict=True):
            found[f"{fused[1]}.self_attn.{part}_proj.{fused[2]}"] = rows
    return found


ROWS: tuple[Row, ...] = (
    Row(lambda t, _: t.ends("token_type_embeddings.weight"), SOURCE, "table of types"),
    Row(
        lambda t, r: r.promotes and t.has(".attn.Wqkv.", ".k_proj.", ".v_proj.", ".fc2.", ".down_proj."),
        EIGHT_ELSE,
        "sensitive matrix",
    ),
)

FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    writes=False,
    checkpoint=always(
        Checkpoint(rows=ROWS, unread=("pooler", "cls", "classifier", "position_ids", "inv_freq"))
    ),
)
