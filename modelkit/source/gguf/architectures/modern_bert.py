"""ModernBERT: norms before the sublayers, none before the first attention; windows that reach to both sides,
with a rotation of their own.

A window is told whole (`local_attention`), as checkpoints do; half of it is seen to either side. llama.cpp
has no biases for it.
"""

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.encoders import CAUSAL, CLASSIFIER
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.parts import (
    CONTEXT,
    HEAD_COUNT,
    HIDDEN,
    INNER,
    LAYER_NORM,
    VOCAB,
    rules,
)
from modelkit.source.gguf.architectures.rope import rope_blocks
from modelkit.source.gguf.architectures.settings import Special
from modelkit.source.gguf.architectures.windows import WORDS, shown_pattern, told_kinds
from runtime.quoting import quoted

_THETA, _WINDOW_THETA, _EVERY = 160000.0, 10000.0, 3
"""How a head for classes pools, which nothing here computes."""
_GATES = {
    "gelu": "gelu",
    "geglu": "gelu",
    "gelu_new": "gelu_new",
    "gelu_fast": "gelu_fast",
    "gelu_pytorch_tanh": "gelu_pytorch_tanh",
    "silu": "silu",
    "swish": "swish",
    "swiglu": "silu",
}
"""What files call the function of the half that gates, and what configs do. llama.cpp knows two, and takes
the first for every name that it does not know, as those of its approximations are."""


def _read_windows(file: Reading) -> None:
    size = file.count("attention.sliding_window", 0)
    sliding = told_kinds(file, _EVERY, full_first=True) if size else [False] * file.layers
    file.config["local_attention"] = size or 128
    file.config["layer_types"] = [WORDS[one] for one in sliding]


def _write_windows(out: Writing) -> None:
    whole = out.facts.count("local_attention", default=128)
    half = out.facts.count("sliding_window", default=whole // 2)  # transformers' name of it, which counts
    every = out.facts.count("global_attn_every_n_layers")
    listed = out.facts.get("layer_types", default=())
    told = [one == WORDS[True] for one in listed] or [
        bool(i % (every or _EVERY)) for i in range(out.facts.layers)
    ]
    shown = shown_pattern(told, every or _EVERY, full_first=True)
    if any(told):  # llama.cpp fails on a window that no layer has
        out.put("attention.sliding_window", whole if whole // 2 == half else 2 * half)
        if every or shown is told:
            out.put("attention.sliding_window_pattern", shown)


def _read_ropes(file: Reading) -> None:
    if file.get("rope.scaling.type") not in (None, "none"):
        file.unsupported(f"`{file.full('rope.scaling.type')}` scales the rotation, which is not computed")
    bases = file.number("rope.freq_base", 10000.0), file.number("rope.freq_base_swa", _WINDOW_THETA)
    file.config["rope_parameters"] = {
        kind: {"rope_type": "default", "rope_theta": base}
        for kind, base in zip((WORDS[False], WORDS[True]), bases, strict=True)
    }


def _write_ropes(out: Writing) -> None:
    usual = (
        ("rope.freq_base", "global_rope_theta", _THETA),
        ("rope.freq_base_swa", "local_rope_theta", _WINDOW_THETA),
    )
    for block, (key, field, default) in zip(rope_blocks(out.facts), usual, strict=True):
        if block.get("rope_type", "default") != "default":
            out.refuse("the rotation is scaled, which GGUF cannot say for modern-bert")
        theta = block.get("rope_theta", out.facts.get(field, default=default))
        out.put(key, float(theta))
    out.put("rope.scaling.type", "none")


def _read_gate(file: Reading) -> None:
    name = file.get("hidden_activation", str) or "gelu"
    if name not in _GATES:
        file.unsupported(
            f"`{file.full('hidden_activation')}` is {quoted(name)}; known are {', '.join(_GATES)}"
        )
    file.config["hidden_activation"] = _GATES[name]


def _write_gate(out: Writing) -> None:
    name = out.facts.get("hidden_activation", default="gelu")
    if name not in _GATES.values():
        out.refuse(f"hidden_activation is {quoted(name)}, which llama.cpp does not compute for modern-bert")
    out.put("hidden_activation", name)


def _read_eps(file: Reading) -> None:
    """The converter writes one name, the other or both, as its config does; llama.cpp reads the first."""
    rms = file.get("attention.layer_norm_rms_epsilon")
    file.config["norm_eps"] = file.number(LAYER_NORM, rms)


def _write_eps(out: Writing) -> None:
    for key in (LAYER_NORM, "attention.layer_norm_rms_epsilon"):
        out.put(key, out.facts.get("norm_eps", default=1e-5))


def _read_biases(file: Reading) -> None:
    file.config |= dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias"), False)


MODERN_BERT = Architecture(
    "modern-bert",
    (Kind("modernbert", "ModernBertModel"),),
    (
        CONTEXT,
        HIDDEN,
        INNER,
        HEAD_COUNT,
        Special(_read_eps, _write_eps),
        CAUSAL,
        Special(_read_biases),
        Special(_read_windows, _write_windows),
        Special(_read_ropes, _write_ropes),
        Special(_read_gate, _write_gate),
        CLASSIFIER,
        VOCAB,
    ),
    rules("""
        token_embd.weight = embeddings.tok_embeddings.weight
        token_embd_norm.weight = embeddings.norm.weight
        output_norm.weight = final_norm.weight
    """),
    rules("""
        attn_norm.weight = attn_norm.weight
        attn_qkv.weight = attn.Wqkv.weight
        attn_output.weight = attn.Wo.weight
        ffn_norm.weight = mlp_norm.weight
        ffn_up.weight = mlp.Wi.weight
        ffn_down.weight = mlp.Wo.weight
    """),
    home="layers.{}.",
    looks_ahead=True,
)
