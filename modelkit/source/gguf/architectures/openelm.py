"""OpenELM: each layer has its own number of heads and size of MLP."""

import math

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.parts import CONTEXT, HIDDEN, RMS, rule, rules
from modelkit.source.gguf.architectures.rope import Rope
from modelkit.source.gguf.architectures.rules import Joined, Parted
from modelkit.source.gguf.architectures.settings import Always, Special


def _read(file: Reading) -> None:
    """Sizes of MLPs are told as shares of the hidden size, rounded to multiples of what divides them all."""
    inner, hidden = file.each("feed_forward_length"), file.config["hidden_size"]
    size = file.count("attention.key_length")
    if file.count("attention.value_length", size) != size or not all(inner):
        file.unsupported("keys and values differ in size, or a layer has no MLP, which is not computed")
    file.config |= {
        "num_query_heads": file.each("attention.head_count"),
        "num_kv_heads": file.each("attention.head_count_kv"),
        "ffn_dim_divisor": math.gcd(*inner),
        "ffn_multipliers": [one / max(hidden, 1) for one in inner],
        "head_dim": size,
        "model_dim": hidden,
        "num_transformer_layers": file.layers,
        "max_context_length": file.count("context_length", 2048),
        "rope_freq_constant": file.number("rope.freq_base", 10000.0),
    }


def _write(out: Writing) -> None:
    facts, size = out.facts, out.facts.head_dim
    out.put("feed_forward_length", [_rows(facts, layer)[0] for layer in range(facts.layers)])
    out.put("attention.head_count", list(facts.get("num_query_heads")))
    out.put("attention.head_count_kv", list(facts.get("num_kv_heads")))
    out.put("attention.key_length", size)
    out.put("attention.value_length", size)


def _rows(facts: Facts, layer: int) -> tuple[int, int]:
    """The MLP's size, twice: a share of the hidden size as the nearest multiple that is not much less."""
    shares = facts.get("ffn_multipliers")
    size = shares[layer] * facts.hidden if layer < len(shares) else 0
    by = facts.count("ffn_dim_divisor", default=256)
    found = max(by, int(size + by / 2) // by * by)
    inner = found + by if found < 0.9 * size else found
    return inner, inner


OPENELM = Architecture(
    "openelm",
    (Kind("openelm", "OpenELMForCausalLM"),),
    (
        CONTEXT,
        HIDDEN,
        RMS,
        Special(_read, _write),
        Rope(),
        Always("share_input_output_layers", True),
        Always("normalize_qk_projections", True),
        Always("activation_fn_name", "swish", ("silu",)),
    ),
    rules("token_embd.* = transformer.token_embeddings.*\noutput_norm.* = transformer.norm.*"),
    (
        *rules("""
            attn_norm.* = attn_norm.*
            attn_qkv.* = attn.qkv_proj.*
            attn_q_norm.* = attn.q_norm.*
            attn_k_norm.* = attn.k_norm.*
            attn_output.* = attn.out_proj.*
            ffn_norm.* = ffn_norm.*
            ffn_down.* = ffn.proj_2.*
        """),
        rule(("ffn_gate.weight", "ffn_up.weight"), "ffn.proj_1.weight", Joined(Parted(_rows))),
    ),
    home="transformer.layers.{}.",
    exact="bits; an MLP's multiple of the hidden size comes back as another of the same size",
)
