"""T5, mT5 and UMT5: an encoder and a decoder, whose blocks are two stacks with numbers of their own.

llama.cpp has one architecture for them. UMT5 is told by biases of positions in every block; mT5 is T5 with a
head of its own. What a file does not say is whether hidden states are scaled before the head: T5's and UMT5's
are where the head is the embedding, and others are refused. The encoder by itself has an architecture of its
own; llama.cpp's converter does not write that its tokens see those behind them, and llama.cpp's way to
embeddings then masks these, so it is written here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from modelkit.source.gguf.architectures.architecture import Architecture, Kind, Stack
from modelkit.source.gguf.architectures.encoders import CAUSAL
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.moves import Link
from modelkit.source.gguf.architectures.parts import LAYER_NORM, rule, rules
from modelkit.source.gguf.architectures.rules import Kept, Members, Rule
from modelkit.source.gguf.architectures.settings import Always, Same, Special
from runtime.quoting import quoted
from runtime.records import dataclass

_BIASES = "enc.blk.{}.attn_rel_b.weight"
_GATES = "enc.blk.0.ffn_gate.weight"
_SHORT = {"gated-gelu": "gelu_new"}


def _feed_forward(facts: Facts) -> tuple[str, bool]:
    """Activation and whether a second projection gates it; newer files say each of the two by itself."""
    word = facts.get("feed_forward_proj", default="relu" if _kind(facts) == "t5" else "gated-gelu")
    named = _SHORT.get(word, word.removeprefix("gated-"))
    gated = facts.get("is_gated_act", default=word.startswith("gated-"))
    return facts.get("dense_act_fn", default=named), gated


def _decoder_layers(facts: Facts) -> int:
    return facts.count("num_decoder_layers", default=facts.layers)


def _kind(facts: Facts) -> str:
    return str(facts.get("model_type", default="t5"))


def _read_decoder(file: Reading) -> None:
    file.config["num_decoder_layers"] = file.count("decoder_block_count", file.blocks)
    file.config["is_encoder_decoder"] = True


def _write_decoder(out: Writing) -> None:
    facts = out.facts
    out.put("decoder_block_count", _decoder_layers(facts))
    tied = facts.get("tie_word_embeddings", default=True)
    scaled = _kind(facts) != "mt5" and facts.get("scale_decoder_outputs", default=tied)
    if scaled != tied:
        out.refuse(
            "hidden states are scaled before the head in another way than T5's are, which GGUF cannot say"
        )


def _read_blocks(file: Reading) -> None:
    del file.config["num_hidden_layers"]
    file.config["num_layers"] = file.blocks
    file.config["feed_forward_proj"] = "gated-gelu" if _GATES in file.shapes else "relu"
    size = file.count("attention.key_length")
    file.config["d_kv"] = size
    if file.count("attention.value_length", size) != size:
        file.unsupported("heads have keys and values of different sizes, which is not computed")


def _write_blocks(out: Writing) -> None:
    facts = out.facts
    size = facts.count("d_kv", default=64)
    out.put("attention.key_length", size)
    out.put("attention.value_length", size)
    out.put("attention.layer_norm_rms_epsilon", float(facts.get("layer_norm_epsilon", default=1e-6)))
    activation = _feed_forward(facts)
    if activation not in (("relu", False), ("gelu_new", True)):
        kind, gated = activation
        out.refuse(
            f"the feed-forward computes {quoted(kind)}, {'gated' if gated else 'not gated'}; "
            "llama.cpp knows relu, and gelu_new with a gate"
        )


def _start(facts: Facts) -> int:
    padding = facts.count("pad_token_id") if _kind(facts) == "t5" else 0
    return facts.count("decoder_start_token_id", default=padding)


@dataclass(frozen=True, slots=True)
class _IfGated:
    """One tensor is one tensor, in models whose feed-forward is gated, or in those where it is not."""

    gated: bool

    def link(self, members: Members) -> Link | None:
        return Kept().link(members) if _feed_forward(members.facts)[1] == self.gated else None


def _attention(theirs: str, ours: str) -> tuple[Rule, ...]:
    return rules(f"""
        {theirs}_q.weight = {ours}.q.weight
        {theirs}_k.weight = {ours}.k.weight
        {theirs}_v.weight = {ours}.v.weight
        {theirs}_o.weight = {ours}.o.weight
    """)


def _block(norms: Sequence[str], forward: int) -> tuple[Rule, ...]:
    """norms: GGUF's names, of the block's parts in order. forward: which part is the feed-forward."""
    home = f"layer.{forward}.DenseReluDense"
    return (
        *_attention("attn", "layer.0.SelfAttention"),
        rule("attn_rel_b.weight", "layer.0.SelfAttention.relative_attention_bias.weight"),
        *(rule(f"{norm}.weight", f"layer.{i}.layer_norm.weight") for i, norm in enumerate(norms)),
        rule("ffn_gate.weight", f"{home}.wi_0.weight"),
        rule("ffn_up.weight", f"{home}.wi_1.weight", _IfGated(True)),
        rule("ffn_up.weight", f"{home}.wi.weight", _IfGated(False)),
        rule("ffn_down.weight", f"{home}.wo.weight"),
    )


def _is_encoder(config: Mapping[str, Any]) -> bool:
    return str((config.get("architectures") or [""])[0]).endswith("EncoderModel")


_SETTINGS = (
    Same("context_length", ("n_positions",), default=512),
    Same("embedding_length", ("d_model",), needed=True),
    Same("feed_forward_length", ("d_ff",), needed=True),
    Same("attention.head_count", ("num_heads",), needed=True),
    Special(lambda file: file.skip("attention.layer_norm_rms_epsilon")),
    Same(LAYER_NORM, ("layer_norm_epsilon",), default=1e-6, absent=1e-6),
    Same("attention.relative_buckets_count", ("relative_attention_num_buckets",), default=32, needed=True),
    Always("relative_attention_max_distance", 128),
    Special(_read_blocks, _write_blocks),
)
_ENCODER = Stack("enc.blk.{}.", "encoder.block.{}.", _block(("attn_norm", "ffn_norm"), 1))


def _has_biases(file: Reading) -> bool:
    return _BIASES.format(1) in file.shapes


T5 = Architecture(
    "t5",
    (
        Kind("umt5", "UMT5ForConditionalGeneration", _has_biases),
        Kind("t5", "T5ForConditionalGeneration", aliases=("mt5",)),
    ),
    (
        *_SETTINGS,
        Special(_read_decoder, _write_decoder),
        Special(
            lambda file: file.config.update(decoder_start_token_id=file.count("decoder_start_token_id", 0)),
            lambda out: out.put("decoder_start_token_id", _start(out.facts)),
        ),
    ),
    rules("""
        token_embd.weight = shared.weight
        enc.output_norm.weight = encoder.final_layer_norm.weight
        dec.output_norm.weight = decoder.final_layer_norm.weight
        output.weight = lm_head.weight
    """),
    (),
    stacks=(
        _ENCODER,
        Stack(
            "dec.blk.{}.",
            "decoder.block.{}.",
            (
                *_block(("attn_norm", "cross_attn_norm", "ffn_norm"), 2),
                *_attention("cross_attn", "layer.1.EncDecAttention"),
            ),
            _decoder_layers,
        ),
    ),
    condition=lambda config: not _is_encoder(config),
)
ENCODER = Architecture(
    "t5encoder",
    (
        Kind("umt5", "UMT5EncoderModel", _has_biases),
        Kind("t5", "T5EncoderModel", aliases=("mt5",)),
    ),
    (*_SETTINGS, CAUSAL),
    rules("""
        token_embd.weight = shared.weight
        enc.output_norm.weight = encoder.final_layer_norm.weight
    """),
    (),
    stacks=(_ENCODER,),
    condition=_is_encoder,
    looks_ahead=True,
    always_ahead=True,
)
