"""MiniCPM 1, 2 and 4: Granite's multipliers, told in other units. MiniCPM-MoE has a mixture in each layer."""

from collections.abc import Mapping
from dataclasses import fields as fields_of
from typing import Any

from runtime.config.decoder import layer_count
from runtime.config.fields import Fields
from runtime.models import granite
from runtime.models.family import Family
from runtime.models.granite import Granite, layout
from runtime.nn.feed_forward.moe import SoftmaxMoE
from runtime.nn.layer import FeedForward
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights, numbered_names, to_switch
from runtime.tensors.names import without_spares


@dataclass(frozen=True, slots=True)
class Config(granite.Config):
    experts: int
    """0: each layer has one MLP."""
    chosen: int


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("minicpm",))
    if fields.raw.get("sparse_config"):
        fields.refuse("sparse_config", "none: what it asks for is not computed here")
    hidden = fields.count("hidden_size", high=1 << 20)
    heads = fields.count("num_attention_heads", high=4096)
    own = {
        "tie_word_embeddings": True,
        **fields.raw,
        "model_type": "granite",
        "attention_multiplier": (hidden / heads) ** -0.5,
        "embedding_multiplier": fields.number("scale_emb", 1.0),
        "residual_multiplier": fields.number("scale_depth", 1.0) * layer_count(fields) ** -0.5,
        "logits_scaling": hidden / fields.number("dim_model_base", 1.0, low=1e-6),
    }
    dense = granite.parse({name: value for name, value in own.items() if name != "head_dim"})
    experts = fields.count("num_experts", 0, low=0, high=1 << 16)
    return Config(
        **{field.name: getattr(dense, field.name) for field in fields_of(dense)},
        experts=experts,
        chosen=fields.count("num_experts_per_tok", high=experts) if experts else 0,
    )


def build(config: Config) -> Granite:
    if not config.experts:
        return granite.build(config)
    sizes = config.hidden_size, config.intermediate_size, config.experts, config.chosen

    def mlp() -> FeedForward:
        return SoftmaxMoE(*sizes, normalize=True, activation=config.activation)

    return Granite(config, mlp)


def adapt(config: Config, weights: Weights) -> Weights:
    adapted = without_spares(config, weights)
    return to_switch(numbered_names(adapted), config.experts) if config.experts else adapted


_EXPERT = (("w1", "gate_proj"), ("w2", "down_proj"), ("w3", "up_proj"))

FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(Checkpoint(matrices=_EXPERT, singles=True)),
)
