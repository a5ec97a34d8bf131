"""Laguna, MiMo V2, Mellum, Spark: layers of two kinds that differ in heads, rotation and what they see."""

from typing import Any

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.moe import (
    ALWAYS_NORMALIZED,
    CORRECTION,
    GROUPS,
    MOE_INNER,
    PLAIN_SOFTMAX,
    ROUTER,
    SIGMOID,
    dense_count,
    expert_settings,
    experts,
    gating,
    read_sparse,
    routed_scale,
    shared_expert,
    shared_inner,
)
from modelkit.source.gguf.architectures.parts import (
    ATTENTION,
    CONTEXT,
    HEAD_COUNT,
    HEAD_DIM,
    HEAD_NORMS,
    HIDDEN,
    INNER,
    MLP,
    NORMS,
    RMS,
    TOP,
    VOCAB,
    bias_flag,
    decoder,
    qkv_rows,
    rule,
    rules,
)
from modelkit.source.gguf.architectures.rope import read_scaling, rope_blocks, write_scaling
from modelkit.source.gguf.architectures.rules import Joined, Parted
from modelkit.source.gguf.architectures.settings import Always, Special, Written
from modelkit.source.gguf.architectures.windows import sliding_layers, windows
from runtime.quoting import quoted


def _read_ropes(file: Reading) -> None:
    size = file.config["head_dim"]
    base = file.number("rope.freq_base", 10000.0)
    rotated = file.count("rope.dimension_count", size)
    window = file.count("rope.dimension_count_swa", rotated)
    file.config["rope_parameters"] = {
        "full_attention": {"rope_theta": base, "partial_rotary_factor": rotated / size} | read_scaling(file),
        "sliding_attention": {
            "rope_type": "default",
            "rope_theta": file.number("rope.freq_base_swa", base),
            "partial_rotary_factor": window / size,
        },
    }


def _write_ropes(out: Writing) -> None:
    full, window = rope_blocks(out.facts)
    size = out.facts.head_dim
    base = float(full.get("rope_theta", 10000.0))
    out.put("rope.freq_base", base)
    write_scaling(out, {**full, "rope_theta": base})
    out.put("rope.dimension_count", int(size * full.get("partial_rotary_factor", 1.0)))
    if window:
        if window.get("rope_type", "default") != "default":
            out.refuse("layers with a window have a rotation that is scaled, which GGUF cannot say")
        out.put("rope.freq_base_swa", float(window.get("rope_theta", 10000.0)))
        out.put("rope.dimension_count_swa", int(size * window.get("partial_rotary_factor", 1.0)))


def _read_laguna_heads(file: Reading) -> None:
    heads = file.each("attention.head_count")
    if not all(heads):
        file.refuse(f"`{file.full('attention.head_count')}` is {quoted(heads)}")
    file.config |= {
        "num_attention_heads": heads[0],
        "num_attention_heads_per_layer": heads,
        "num_key_value_heads": file.count("attention.head_count_kv"),
    }


def _write_laguna_heads(out: Writing) -> None:
    facts = out.facts
    listed = facts.get("num_attention_heads_per_layer")
    out.put("attention.head_count", list(listed) if listed else [facts.heads] * facts.layers)
    out.put("attention.head_count_kv", facts.kv_heads)


def _gate(file: Reading) -> None:
    """One gate for a head, or for each of its numbers: by the rows of the gate's matrix."""
    rows = file.rows(0, "attn_gate")
    heads = file.config["num_attention_heads_per_layer"][0]
    if rows not in (heads, heads * file.config["head_dim"]):
        file.refuse(f"`blk.0.attn_gate.weight` has {rows} rows, and the block {heads} heads")
    file.config["gating"] = True if rows == heads else "per-element"


def _full_first(file: Reading) -> None:
    """llama.cpp takes every fourth layer, from the first on, to see everything."""
    size = file.count("attention.sliding_window", 0)
    told = file.get("attention.sliding_window_pattern")
    kinds = [bool(size) and bool(i % 4) for i in range(file.layers)]
    listed = [bool(one) for one in told[: file.layers]] if isinstance(told, list) else kinds
    if listed != kinds or (type(told) is int and told != 4):
        file.unsupported(
            f"`{file.full('attention.sliding_window_pattern')}` is not every fourth, from the first"
        )
    file.config["sliding_window"] = size or None
    file.config["layer_types"] = ["sliding_attention" if one else "full_attention" for one in kinds]


def _write_window(out: Writing) -> None:
    told = sliding_layers(out)
    if not any(told):
        return
    if told != [bool(i % 4) for i in range(len(told))]:
        out.refuse("layer_types are not those that llama.cpp takes for laguna")
    out.put("attention.sliding_window", out.facts.get("sliding_window"))


LAGUNA = Architecture(
    "laguna",
    (Kind("laguna", "LagunaForCausalLM"),),
    (
        CONTEXT,
        HIDDEN,
        INNER,
        HEAD_DIM,
        RMS,
        VOCAB,
        Special(_read_laguna_heads, _write_laguna_heads),
        Special(_full_first, _write_window),
        Special(_read_ropes, _write_ropes),
        *expert_settings(),
        MOE_INNER,
        shared_inner("shared_expert_intermediate_size"),
        ALWAYS_NORMALIZED,
        routed_scale("moe_routed_scaling_factor", default=1.0),
        gating(SIGMOID),
        Special(read_sparse, lambda out: out.put("leading_dense_block_count", dense_count(out, "", 1))),
        Written("leading_dense_block_count", lambda _: None),
        Special(_gate),
        bias_flag("attention_bias", "attn_q"),
    ),
    TOP,
    (
        *NORMS,
        *ATTENTION,
        *HEAD_NORMS,
        rule("attn_gate.*", "self_attn.g_proj.*"),
        *MLP,
        ROUTER,
        rule("exp_probs_b.bias", "mlp.experts.e_score_correction_bias"),
        *experts(),
        *shared_expert("mlp.shared_expert"),
    ),
)


def _write_mellum_ropes(out: Writing) -> None:
    """llama.cpp takes one base for all layers, and scales the rotation of those that see everything."""
    full, window = rope_blocks(out.facts)
    base = float(full.get("rope_theta", 500000.0))
    if window and float(window.get("rope_theta", 10000.0)) != base:
        out.refuse("layers with a window turn by another base, which llama.cpp does not compute for mellum")
    if window and window.get("rope_type", "default") != "default":
        out.refuse("layers with a window have a rotation that is scaled, which GGUF cannot say")
    out.put("rope.freq_base", base)
    out.put("rope.freq_base_swa", base)
    write_scaling(out, {**full, "rope_theta": base})


def _all_sparse(out: Writing) -> None:
    if "dense" in out.facts.get("mlp_layer_types", default=()):
        out.refuse("mlp_layer_types has dense layers, which llama.cpp does not have in mellum")


MELLUM = Architecture(
    "mellum",
    (Kind("mellum", "MellumForCausalLM"),),
    decoder(
        *windows(period=4),
        Special(_read_ropes, _write_mellum_ropes),
        *expert_settings("num_experts", "num_local_experts"),
        MOE_INNER,
        *PLAIN_SOFTMAX,
        Special(writing=_all_sparse),
        Always("norm_topk_prob", True),
        Always("attention_bias", False),
    ),
    TOP,
    (*NORMS, *ATTENTION, *HEAD_NORMS, ROUTER, *experts()),
)


def _read_mimo(file: Reading) -> None:
    size, value = file.count("attention.key_length"), file.count("attention.value_length")
    kinds, counts = file.config["layer_types"], file.each("attention.head_count_kv")
    full = {n for n, kind in zip(counts, kinds, strict=False) if kind == "full_attention"}
    window = {n for n, kind in zip(counts, kinds, strict=False) if kind == "sliding_attention"}
    if len(full) != 1 or len(window) > 1:
        file.unsupported("layers of one kind have different numbers of key heads")
    heads = full.pop()
    if window and window != {2 * heads}:
        file.unsupported("layers with a window have to have twice the key heads of the others")
    rotated = file.count("rope.dimension_count", size)
    share = rotated / size
    block: dict[str, Any] = {"rope_type": "default", "partial_rotary_factor": share}
    base = file.number("rope.freq_base", 10000.0)
    file.config |= {
        "head_dim": size,
        "v_head_dim": value,
        "num_key_value_heads": heads,
        "rope_parameters": {
            "full_attention": {**block, "rope_theta": base},
            "sliding_attention": {**block, "rope_theta": file.number("rope.freq_base_swa", 10000.0)},
        },
        "attention_value_scale": file.number("attention.value_scale", 0.0) or 1.0,
    }


def _write_mimo(out: Writing) -> None:
    facts = out.facts
    heads, told = facts.kv_heads, sliding_layers(out)
    out.put("attention.key_length", facts.head_dim)
    out.put("attention.value_length", facts.count("v_head_dim", default=128))
    out.put("attention.head_count_kv", [2 * heads if one else heads for one in told])
    full, window = rope_blocks(facts)
    share = full.get("partial_rotary_factor", 0.334)
    if window.get("partial_rotary_factor", share) != share:
        out.refuse("the kinds of layers rotate different shares, which GGUF cannot say for mimo2")
    out.put("rope.dimension_count", int(facts.head_dim * share))
    out.put("rope.freq_base", float(full.get("rope_theta", 5000000.0)))
    out.put("rope.freq_base_swa", float(window.get("rope_theta", 10000.0)))
    scale = facts.get("attention_value_scale")
    if scale is not None:
        out.put("attention.value_scale", float(scale))
    out.put("attention.sliding_window", facts.get("sliding_window"))
    out.put("attention.sliding_window_pattern", [int(one) for one in told])


def _rows(facts: Facts, layer: int) -> tuple[int, ...]:
    kinds = facts.get("layer_types", default=())
    heads = facts.kv_heads * (2 if kinds and kinds[layer % len(kinds)] == "sliding_attention" else 1)
    return (
        facts.heads * facts.head_dim,
        heads * facts.head_dim,
        heads * facts.count("v_head_dim", default=128),
    )


_QKV = ("self_attn.q_proj.*", "self_attn.k_proj.*", "self_attn.v_proj.*")

MIMO2 = Architecture(
    "mimo2",
    (Kind("mimo_v2_flash", "MiMoV2FlashForCausalLM"),),
    (
        CONTEXT,
        HIDDEN,
        INNER,
        HEAD_COUNT,
        RMS,
        *windows(),
        Special(_read_mimo, _write_mimo),
        *expert_settings("n_routed_experts", "num_local_experts", "num_experts"),
        *GROUPS,
        MOE_INNER,
        gating(SIGMOID),
        Special(read_sparse),
        Always("norm_topk_prob", True),
        Always("routed_scaling_factor", 1.0),
        bias_flag("attention_bias", "attn_q"),
    ),
    TOP,
    (
        *NORMS,
        *ATTENTION,
        rule("attn_qkv.*", _QKV, Parted(_rows)),
        rule("attn_sinks.weight", "self_attn.attention_sink_bias"),
        *MLP,
        ROUTER,
        CORRECTION,
        *experts(),
    ),
)


def _turns_plainly(file: Reading) -> None:
    full = file.config["rope_parameters"]["full_attention"]
    if full.get("rope_type", "default") != "default":
        file.unsupported("the rotation is scaled, which is not computed for this family")


SPARK = Architecture(
    "spark2_5",
    (Kind("spark2_5", "Spark2_5ForCausalLM"),),
    decoder(
        VOCAB,
        *windows(period=4),
        Special(_read_ropes, _write_ropes),
        Special(_turns_plainly),
        Always("hidden_act", "gelu"),
        Always("headwise_attn_output_gate", True),
        Always("gate_attn_act_mode", "sigmoid"),
        Always("attention_bias", False),
        Always("mlp_bias", False),
    ),
    rules(
        """
        token_embd.* = model.embedding.*
        output_norm.* = model.norm.*
        output.* = lm_head.*
        """
    ),
    (
        *NORMS,
        rule("attn_qkv.*", "self_attn.q_k_v_proj.*"),
        rule(
            ("attn_q.*", "attn_k.*", "attn_v.*"),
            "self_attn.q_k_v_proj.*",
            Joined(Parted(qkv_rows)),
            written=False,
        ),
        rule("attn_gate.*", "self_attn.g_proj.*"),
        rule("attn_output.*", "self_attn.out_proj.*"),
        *MLP,
    ),
)
