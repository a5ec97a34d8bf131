"""Granite, its mixtures, and those with windows (SWA)."""

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.moe import (
    PLAIN_SOFTMAX,
    ROUTER,
    expert_rows,
    expert_settings,
    experts,
    has_experts,
)
from modelkit.source.gguf.architectures.parts import (
    BIASES,
    MLP,
    NORMS,
    PAIRED_ATTENTION,
    TOP,
    VOCAB,
    decoder,
    rule,
)
from modelkit.source.gguf.architectures.phi import LONG_FACTORS, LongRope
from modelkit.source.gguf.architectures.rope import Rope, rope_block
from modelkit.source.gguf.architectures.rules import Joined, Parted
from modelkit.source.gguf.architectures.settings import Same, Special
from modelkit.source.gguf.architectures.windows import windows


def _attention(file: Reading) -> None:
    """llama.cpp scales by the size of a head where the file does not say, or says 0."""
    size = file.config.get("head_dim") or Facts(file.config).head_dim
    file.config["attention_multiplier"] = file.number("attention.scale", 0.0) or size**-0.5


def _rotated(file: Reading) -> None:
    if file.get("rope.scaling.finetuned") is False:
        file.unsupported(
            "`granite.rope.scaling.finetuned` is false: nothing is rotated, which is not computed"
        )


MULTIPLIERS = (
    Special(
        _attention,
        lambda out: out.put("attention.scale", float(out.facts.get("attention_multiplier", default=1.0))),
    ),
    *(
        Same(key, (name,), default=1.0, absent=1.0, zero=1.0, kind=float)
        for key, name in (
            ("embedding_scale", "embedding_multiplier"),
            ("residual_scale", "residual_multiplier"),
        )
    ),
    Same("logit_scale", ("logits_scaling",), default=1.0, absent=1.0, kind=float),
)

GRANITE = Architecture(
    "granite",
    (Kind("granite", "GraniteForCausalLM"),),
    decoder(Rope(), VOCAB, *MULTIPLIERS, *BIASES, Special(_rotated)),
    TOP,
    (*NORMS, *PAIRED_ATTENTION, *MLP),
)


def _read_minicpm(file: Reading) -> None:
    """Files from before there were keys for them are of MiniCPM 1 and 2, whose numbers these are."""
    hidden, layers = file.count("embedding_length"), file.layers
    for key, name, usual in (
        ("embedding_scale", "embedding_multiplier", 12.0),
        ("residual_scale", "residual_multiplier", 1.4 / layers**0.5),
        ("logit_scale", "logits_scaling", hidden / 256),
    ):
        file.config[name] = float(file.number(key, usual))


def _write_minicpm(out: Writing) -> None:
    if out.facts.count("num_experts"):
        out.put("expert_count", out.facts.count("num_experts"))
        out.put("expert_used_count", out.facts.count("num_experts_per_tok"))
    for key, name in (
        ("embedding_scale", "embedding_multiplier"),
        ("residual_scale", "residual_multiplier"),
        ("logit_scale", "logits_scaling"),
    ):
        out.put(key, float(out.facts.get(name)))


def _read_turns(file: Reading) -> None:
    (LongRope() if LONG_FACTORS in file.shapes else Rope()).read(file)


def _write_turns(out: Writing) -> None:
    long = rope_block(out.facts)["rope_type"] in ("longrope", "su")
    (LongRope() if long else Rope()).write(out)
    if long:
        out.put("rope.scaling.type", "longrope")


def _inner(facts: Facts, _: int) -> tuple[int, ...]:
    return (facts.count("intermediate_size"),) * 2


def _shared_inner(facts: Facts, _: int) -> tuple[int, ...]:
    return (facts.count("shared_intermediate_size"),) * 2


SHARED = Same("expert_shared_feed_forward_length", ("shared_intermediate_size",))
MIXTURE = (
    rule("ffn_gate_inp.weight", "block_sparse_moe.router.layer.weight"),
    *experts("block_sparse_moe.switch_mlp"),
    rule(
        ("ffn_gate_exps.weight", "ffn_up_exps.weight"),
        "block_sparse_moe.input_linear.weight",
        Joined(Parted(_inner)),
    ),
    rule("ffn_down_exps.weight", "block_sparse_moe.output_linear.weight"),
    rule(
        ("ffn_gate_shexp.weight", "ffn_up_shexp.weight"),
        "shared_mlp.input_linear.weight",
        Joined(Parted(_shared_inner)),
    ),
    rule("ffn_down_shexp.weight", "shared_mlp.output_linear.weight"),
)

_COUNTED = (*expert_settings("num_local_experts"), *PLAIN_SOFTMAX)

MINICPM = Architecture(
    "minicpm",
    (
        Kind("granitemoe", "GraniteMoeForCausalLM", has_experts, settings=_COUNTED),
        Kind("granite", "GraniteForCausalLM", aliases=("minicpm",)),
    ),
    decoder(
        Special(_read_turns, _write_turns),
        VOCAB,
        Special(_attention),
        Special(_read_minicpm, _write_minicpm),
        *BIASES,
    ),
    TOP,
    (*NORMS, *PAIRED_ATTENTION, *MLP, *MIXTURE, ROUTER, *experts()),
    exact="function, as Granite",
)
GRANITEMOE = Architecture(
    "granitemoe",
    (
        Kind(
            "granitemoeshared",
            "GraniteMoeSharedForCausalLM",
            lambda file: file.has(0, "ffn_up_shexp"),
            settings=(SHARED,),
        ),
        Kind("granitemoe", "GraniteMoeForCausalLM"),
    ),
    decoder(Rope(), VOCAB, *_COUNTED, *MULTIPLIERS, BIASES[0]),
    TOP,
    (*NORMS, *PAIRED_ATTENTION, *MIXTURE),
)


def _read_bases(file: Reading) -> None:
    """Which layers are rotated, for which the converter looks in another field than transformers."""
    turned, base = file.get("attention.rope_pattern"), file.config["rope_parameters"]["rope_theta"]
    if turned is not None:
        if not isinstance(turned, list) or len(turned) != file.layers:
            file.refuse(f"`{file.full('attention.rope_pattern')}` is not a list of {file.layers} layers")
        file.config["layer_rope_theta"] = [base if one else 0 for one in turned]


def _write_bases(out: Writing) -> None:
    listed = out.facts.get("layer_rope_theta")
    bases = sorted({float(base) for base in listed or () if base})
    if len(bases) > 1:
        out.refuse(f"layer_rope_theta has {bases}, and a GGUF file has one base for all layers")
    if bases:
        out.put("rope.freq_base", bases[0])
    if listed and not all(listed):
        out.put("attention.rope_pattern", [bool(base) for base in listed])


_STACKS = "block_sparse_moe.switch_mlp"

GRANITE_SWA = Architecture(
    "granite_swa",
    (
        Kind(
            "granitemoe_swa",
            "GraniteMoeSWAForCausalLM",
            has_experts,
            settings=(*_COUNTED, SHARED),
        ),
        Kind("granite_swa", "GraniteSWAForCausalLM", settings=(BIASES[1],)),
    ),
    decoder(
        Rope(),
        VOCAB,
        Special(_read_bases, _write_bases),
        *windows(period=4, full_first=True),
        *MULTIPLIERS,
        BIASES[0],
    ),
    TOP,
    (
        *NORMS,
        *PAIRED_ATTENTION,
        rule("attn_sinks.weight", "self_attn.sinks"),
        *MLP,
        rule("ffn_gate_inp.weight", "block_sparse_moe.router.weight"),
        rule("ffn_gate_up_exps.*", (f"{_STACKS}.gate_proj.*", f"{_STACKS}.up_proj.*"), Parted(expert_rows)),
        *experts(_STACKS),
        rule("ffn_up_shexp.weight", "shared_mlp.input_linear.weight"),
        rule("ffn_down_shexp.weight", "shared_mlp.output_linear.weight"),
    ),
)
