"""What config.json says of BERT, RoBERTa, XLM-RoBERTa and DistilBERT.

Their classes read the same fields, DistilBERT some under names of its own, and differ in three facts: where
positions begin, whether tokens have types, and what the norms add.
"""

from collections.abc import Mapping
from typing import Any

from runtime.errors import UnsupportedModel, shown
from runtime.models.config import Fields
from runtime.models.decoder_config import layer_count
from runtime.nn.mlp import ACTIVATIONS
from runtime.records import dataclass

_KINDS = ("bert", "roberta", "xlm-roberta", "distilbert")


@dataclass(frozen=True, slots=True)
class Config:
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    heads: int
    layers: int
    norm_eps: float
    """Added to the variance in each norm."""
    activation: str
    """A name of ACTIVATIONS."""
    types: int
    """Rows of the table of token types, of which the first is every token's; 0 for no table."""
    places: int
    """Rows of the table of positions."""
    padding: int | None
    """RoBERTa: positions begin behind this row, and tokens with this id have it and are not counted."""

    @property
    def context_length(self) -> int:
        """In tokens."""
        return self.places if self.padding is None else self.places - self.padding - 1


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    kind = fields.choice("model_type", _KINDS, "bert")
    _refuse_decoders(fields)
    distilled = kind == "distilbert"
    hidden = fields.count("dim" if distilled else "hidden_size", 768, high=1 << 20)
    heads = fields.count("n_heads" if distilled else "num_attention_heads", 12, high=4096)
    if hidden % heads:
        fields.refuse("dim" if distilled else "hidden_size", f"a multiple of the {heads} heads")
    vocab = fields.count("vocab_size", 50265 if kind == "roberta" else 30522, high=1 << 24)
    places = fields.count("max_position_embeddings", 512, high=1 << 24)
    return Config(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=fields.count(
            "hidden_dim" if distilled else "intermediate_size", 3072, high=1 << 22
        ),
        heads=heads,
        layers=fields.count("n_layers", 6, high=4096) if distilled else layer_count(fields, 12),
        norm_eps=1e-12 if distilled else fields.number("layer_norm_eps", 1e-12, low=1e-30),
        activation=fields.choice("activation" if distilled else "hidden_act", tuple(ACTIVATIONS), "gelu"),
        types=0 if distilled else fields.count("type_vocab_size", 2, high=1 << 16),
        places=places,
        padding=_padding(fields, kind, min(vocab, places - 1)),
    )


def _padding(fields: Fields, kind: str, rows: int) -> int | None:
    """rows: ids and positions that there may be."""
    if kind not in ("roberta", "xlm-roberta"):
        return None
    if "pad_token_id" in fields.raw and not fields.has("pad_token_id"):
        fields.refuse("pad_token_id", "an id: positions are counted from it")
    return fields.count("pad_token_id", 1, low=0, high=rows - 1)


def _refuse_decoders(fields: Fields) -> None:
    for name in ("is_decoder", "add_cross_attention"):
        if fields.flag(name):
            raise UnsupportedModel(
                f"config.json: {name} is true, and of this family encoders are computed, which look both ways"
            )
    kind = fields.raw.get("position_embedding_type")
    if kind not in (None, "absolute"):
        raise UnsupportedModel(
            f"config.json: position_embedding_type is {shown(kind)}, and only absolute positions are computed"
        )
