"""What config.json says of BERT, RoBERTa, XLM-RoBERTa, DistilBERT, MPNet, ERNIE, ELECTRA and ALBERT.

Their classes read the same fields, DistilBERT some under names of its own, and differ in a few facts: where
positions begin, whether tokens have types, what the norms add, whether scores have a bias by distance, how
wide embeddings are, and which layers are run several times.
"""

from collections.abc import Mapping
from typing import Any

from runtime.config.decoder import layer_count
from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel
from runtime.nn.feed_forward.mlp import ACTIVATIONS
from runtime.quoting import quoted
from runtime.records import dataclass

_KINDS = (
    *("bert", "roberta", "camembert", "xlm-roberta", "distilbert", "mpnet", "ernie"),
    *("electra", "albert"),
)
_ROBERTAS = ("roberta", "camembert", "xlm-roberta")
_TYPELESS = ("distilbert", "mpnet")
BUCKETS = 32
"""Of MPNet's distances, whatever a file says of how many its table has."""
_NARROW = ("electra", "albert")
"""Kinds whose embeddings have a size of their own."""
_DEFAULTS: dict[str, dict[str, Any]] = {
    "roberta": {"vocab_size": 50265},
    "mpnet": {"vocab_size": 30527},
    "electra": {"hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 4},
    "albert": {
        "vocab_size": 30000,
        "hidden_size": 4096,
        "intermediate_size": 16384,
        "num_attention_heads": 64,
        "hidden_act": "gelu_new",
    },
}
"""What is taken for fields that a file leaves out, where it is not what BERT takes."""


@dataclass(frozen=True, slots=True)
class Config:
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    heads: int
    order: tuple[int, ...]
    """Which of the stored layers are run, one after the other."""
    norm_eps: float
    """Added to the variance in each norm."""
    activation: str
    """A name of ACTIVATIONS."""
    types: int
    """Rows of the table of token types, of which the first is every token's; 0 for no table."""
    places: int
    """Rows of the table of positions."""
    padding: int | None
    """RoBERTa, MPNet: positions begin behind this row; tokens with this id have it and are not counted."""
    buckets: int
    """MPNet: rows of the table of biases by distance; 0 for no table."""
    tasks: int
    """ERNIE: rows of the table of tasks, of which the first is every token's; 0 for no table."""
    embedding_size: int
    widened: bool
    """A matrix stands between embeddings and layers."""

    @property
    def context_length(self) -> int:
        """In tokens."""
        return self.places if self.padding is None else self.places - self.padding - 1


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    kind = fields.choice("model_type", _KINDS, "bert")
    fields = Fields({**_DEFAULTS.get(kind, {}), **fields.raw})
    _refuse_decoders(fields)
    distilled = kind == "distilbert"
    hidden = fields.count("dim" if distilled else "hidden_size", 768, high=1 << 20)
    heads = fields.count("n_heads" if distilled else "num_attention_heads", 12, high=4096)
    if hidden % heads:
        fields.refuse("dim" if distilled else "hidden_size", f"a multiple of the {heads} heads")
    vocab = fields.count("vocab_size", 30522, high=1 << 24)
    narrow = fields.count("embedding_size", 128, high=1 << 20) if kind in _NARROW else hidden
    places = fields.count("max_position_embeddings", 512, high=1 << 24)
    return Config(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=fields.count(
            "hidden_dim" if distilled else "intermediate_size", 3072, high=1 << 22
        ),
        heads=heads,
        order=_order(fields, kind),
        norm_eps=1e-12 if distilled else fields.number("layer_norm_eps", 1e-12, low=1e-30),
        activation=fields.choice("activation" if distilled else "hidden_act", tuple(ACTIVATIONS), "gelu"),
        types=0 if kind in _TYPELESS else fields.count("type_vocab_size", 2, high=1 << 16),
        places=places,
        padding=_padding(fields, kind, min(vocab, places - 1)),
        buckets=0 if kind != "mpnet" else _buckets(fields),
        tasks=_tasks(fields) if kind == "ernie" else 0,
        embedding_size=narrow,
        widened=kind == "albert" or narrow != hidden,
    )


def _order(fields: Fields, kind: str) -> tuple[int, ...]:
    layers = fields.count("n_layers", 6, high=4096) if kind == "distilbert" else layer_count(fields, 12)
    if kind != "albert":
        return tuple(range(layers))
    fields.count("inner_group_num", 1, high=1)
    groups = fields.count("num_hidden_groups", 1, high=layers)
    return tuple(int(place / (layers / groups)) for place in range(layers))


def _tasks(fields: Fields) -> int:
    return fields.count("task_type_vocab_size", 3, high=1 << 16) if fields.flag("use_task_id") else 0


def _padding(fields: Fields, kind: str, rows: int) -> int | None:
    """rows: ids and positions that there may be."""
    if kind == "mpnet":
        return 1  # whatever it says of the id
    if kind not in _ROBERTAS:
        return None
    if "pad_token_id" in fields.raw and not fields.has("pad_token_id"):
        fields.refuse("pad_token_id", "an id: positions are counted from it")
    return fields.count("pad_token_id", 1, low=0, high=rows - 1)


def _buckets(fields: Fields) -> int:
    return fields.count("relative_attention_num_buckets", BUCKETS, low=BUCKETS, high=1 << 16)


def _refuse_decoders(fields: Fields) -> None:
    for name in ("is_decoder", "add_cross_attention"):
        if fields.flag(name):
            raise UnsupportedModel(
                f"config.json: {name} is true, and of this family encoders are computed, which look both ways"
            )
    kind = fields.raw.get("position_embedding_type")
    if kind not in (None, "absolute"):
        raise UnsupportedModel(
            f"config.json: position_embedding_type is {quoted(kind)}; only absolute positions are computed"
        )
