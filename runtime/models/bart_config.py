"""Configs of BART and its kin: translators, summarizers and talkers of one make, which differ in where norms
stand and in what positions are.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from runtime.config.fields import Fields
from runtime.nn.feed_forward.mlp import ACTIVATIONS
from runtime.records import dataclass

Sinusoids = Literal["", "to the last", "to the whole"]
"""How the wavelengths of positions are spread: the longest is 10,000, or what comes behind the last would be.
"": positions are a learned table.
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a model_type says of itself alone."""

    norms_first: bool = False
    """Norms before sublayers and one behind each stack; False: behind sublayers."""
    norms_entering: bool = False
    """Of tokens and positions together."""
    norms_tokens: bool = False
    """In the decoder that one is of tokens alone, before positions are added."""
    sinusoids: Sinusoids = ""
    before: int = 0
    """Rows of the tables of positions that no token has."""
    biased: bool = True
    """A bias is added to logits."""
    scaled: bool = False
    """What is taken for scale_embedding."""
    activation: str = "gelu"
    start: int | None = None
    """What is taken for decoder_start_token_id; None: a file has to say it."""
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    """What is taken for sizes that a file leaves out, where it is not what BART takes."""


def _both(size: str, value: int) -> dict[str, int]:
    return {f"{stack}_{size}": value for stack in ("encoder", "decoder")}


KINDS = {
    "bart": Kind(norms_entering=True, before=2, start=2),
    "mbart": Kind(norms_first=True, norms_entering=True, before=2),
    "m2m_100": Kind(
        norms_first=True,
        sinusoids="to the last",
        before=2,
        biased=False,
        scaled=True,
        activation="relu",
        start=2,
    ),
    "marian": Kind(sinusoids="to the whole", start=58100),
    "pegasus": Kind(norms_first=True, sinusoids="to the whole", start=0),
    "blenderbot": Kind(
        norms_first=True,
        start=1,
        sizes={
            "vocab_size": 8008,
            "max_position_embeddings": 128,
            "d_model": 2560,
            "encoder_layers": 2,
            "decoder_layers": 24,
            **_both("attention_heads", 32),
            **_both("ffn_dim", 10240),
        },
    ),
    "blenderbot-small": Kind(
        norms_entering=True,
        norms_tokens=True,
        start=1,
        sizes={
            "max_position_embeddings": 512,
            "d_model": 512,
            **_both("layers", 8),
            **_both("ffn_dim", 2048),
        },
    ),
    "plbart": Kind(
        norms_entering=True,
        before=2,
        scaled=True,
        sizes={
            "vocab_size": 50005,
            "d_model": 768,
            **_both("layers", 6),
            **_both("attention_heads", 12),
            **_both("ffn_dim", 3072),
        },
    ),
    "mvp": Kind(norms_entering=True, before=2, start=2, sizes={"vocab_size": 50267}),
}
"""By model_type. NLLB is an m2m_100, mBART 50 an mbart."""


@dataclass(frozen=True, slots=True)
class StackConfig:
    kind: Kind
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    places: int
    """Rows of the table of positions."""
    activation: str
    """A name of ACTIVATIONS."""


@dataclass(frozen=True, slots=True)
class Config:
    vocab_size: int
    hidden_size: int
    kind: Kind
    encoder: StackConfig
    decoder: StackConfig
    embed_scale: float | None
    """Embeddings are multiplied by it; None: they are not."""
    start_id: int
    """What every answer begins with."""
    context_length: int
    """Tokens of a prompt, and of an answer."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    kind = KINDS[fields.choice("model_type", tuple(KINDS))]
    fields = Fields({**kind.sizes, **fields.raw})
    fields.only({"is_encoder_decoder": True, "is_decoder": False, "add_cross_attention": False})
    if not fields.flag("tie_word_embeddings", True):
        fields.refuse("tie_word_embeddings", "true: else each stack has a table of its own, too")
    _refuse_older(fields, kind)
    vocab = fields.count("vocab_size", 50265, high=1 << 24)
    _refuse_others(fields, kind, vocab)
    hidden = fields.count("d_model", 1024, high=1 << 20)
    context = fields.count("max_position_embeddings", 1024, high=1 << 24)
    encoder, decoder = (_stack(fields, kind, name, hidden, context) for name in ("encoder", "decoder"))
    return Config(
        vocab_size=vocab,
        hidden_size=hidden,
        kind=kind,
        encoder=encoder,
        decoder=decoder,
        embed_scale=hidden**0.5 if fields.flag("scale_embedding", kind.scaled) else None,
        start_id=fields.count("decoder_start_token_id", kind.start, low=0, high=vocab - 1),
        context_length=context,
    )


def _refuse_older(fields: Fields, kind: Kind) -> None:
    """Fields of files from 2020, with the values that the classes have taken for granted since."""
    fields.only(
        {
            "add_bias_logits": False,
            "add_final_layer_norm": kind.norms_first,
            "normalize_before": kind.norms_first,
            "normalize_embedding": kind.norms_entering,
            "static_position_embeddings": bool(kind.sinusoids),
        }
    )
    if not kind.sinusoids:
        fields.count("extra_pos_embeddings", kind.before, low=kind.before, high=kind.before)


def _refuse_others(fields: Fields, kind: Kind, vocab: int) -> None:
    """What is computed for one value alone."""
    fields.only({"use_prompt": False})
    if kind == KINDS["marian"]:
        fields.only({"share_encoder_decoder_embeddings": True})
        fields.count("decoder_vocab_size", vocab, low=vocab, high=vocab)
    if kind == KINDS["m2m_100"]:  # the first token's position follows it
        fields.count("pad_token_id", 1, low=1, high=1)


def _stack(fields: Fields, kind: Kind, name: str, hidden: int, context: int) -> StackConfig:
    heads = fields.count(f"{name}_attention_heads", 16, high=4096)
    if hidden % heads:
        fields.refuse("d_model", f"a multiple of {name}_attention_heads, {heads}")
    if kind.sinusoids and (hidden % 2 or hidden < 4):
        fields.refuse("d_model", "an even number from 4 on")
    return StackConfig(
        kind=kind,
        hidden_size=hidden,
        layers=fields.count(f"{name}_layers", 12, high=4096),
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        intermediate_size=fields.count(f"{name}_ffn_dim", 4096, high=1 << 22),
        places=context + kind.before,
        activation=fields.choice("activation_function", tuple(ACTIVATIONS), kind.activation),
    )
