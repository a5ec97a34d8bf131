"""Step 3.5: layers of two kinds that differ in heads and rotation, gates of heads, clipped mixtures.

llama.cpp turns half of `rope.dimension_count` in layers that see everything, and all of it under a window.
"""

from collections.abc import Mapping
from typing import Any

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.llama3 import llama3_factors
from modelkit.source.gguf.architectures.moe import (
    ALWAYS_NORMALIZED,
    MOE_INNER,
    SIGMOID,
    expert_settings,
    experts,
    gating,
    is_sparse,
    routed_scale,
    shared_expert,
    shared_inner,
)
from modelkit.source.gguf.architectures.parts import (
    ATTENTION,
    CONTEXT,
    HEAD_DIM,
    HIDDEN,
    INNER,
    MLP,
    RMS,
    SHIFTED,
    rule,
    rules,
)
from modelkit.source.gguf.architectures.rope import FREQS, read_scaling, rope_blocks
from modelkit.source.gguf.architectures.settings import Always, Setting, Special, Written
from modelkit.source.gguf.architectures.windows import WORDS, sliding_layers, windows

_FULL, _SLIDING = WORDS[False], WORDS[True]


def _read_heads(file: Reading) -> None:
    kinds = file.config["layer_types"]
    heads, shared = file.each("attention.head_count"), set(file.each("attention.head_count_kv"))
    own = {
        kind: {n for n, one in zip(heads, kinds, strict=True) if one == kind} for kind in (_FULL, _SLIDING)
    }
    if len(shared) > 1 or any(len(counts) > 1 for counts in own.values()):
        file.unsupported("layers of one kind have different numbers of heads")
    full, groups = (own[_FULL] or own[_SLIDING]).pop(), shared.pop()
    other = {
        "attention_type": _SLIDING,
        "num_attention_heads": next(iter(own[_SLIDING]), full),
        "num_attention_groups": groups,
        "head_dim": file.config["head_dim"],
    }
    file.config |= {
        "num_attention_heads": full,
        "num_attention_groups": groups,
        "attention_other_setting": other,
    }


def _write_heads(out: Writing) -> None:
    facts, slides = out.facts, sliding_layers(out)
    other = facts.count("num_sliding_attention_heads", default=facts.heads)
    if facts.get("query_pre_attn_scalar", default=facts.head_dim) != facts.head_dim:
        out.refuse("query_pre_attn_scalar is not the size of a head, which GGUF cannot say for step35")
    out.put("attention.head_count", [other if one else facts.heads for one in slides])
    out.put("attention.head_count_kv", [facts.kv_heads] * facts.layers)


def _read_ropes(file: Reading) -> None:
    size, kinds = file.config["head_dim"], file.config["layer_types"]
    base = file.number("rope.freq_base", 10000.0)
    bases = {_FULL: base, _SLIDING: file.number("rope.freq_base_swa", base)}
    rotated = file.count("rope.dimension_count", size)
    turned = {_FULL: rotated // 2, _SLIDING: file.count("rope.dimension_count_swa", rotated)}
    if any(not 0 < one <= size for one in turned.values()):
        file.refuse(f"`{file.full('rope.dimension_count')}` is {rotated}, and a head has {size} numbers")
    block = read_scaling(file, turned[_FULL])
    if block["rope_type"] not in ("default", "llama3"):
        file.unsupported("the rotation of layers with a window is scaled, too, which is not computed")
    file.config |= {
        "rope_theta": [bases[kind] for kind in kinds],
        "partial_rotary_factors": [turned[kind] / size for kind in kinds],
    }
    if block["rope_type"] != "default":
        file.config |= {"rope_scaling": block, "yarn_only_types": [_FULL]}


def _write_ropes(out: Writing) -> None:
    facts, blocks = out.facts, _blocks(out)
    full, window = blocks[_FULL], blocks[_SLIDING]
    size = facts.head_dim
    turned, others = (int(size * float(one.get("partial_rotary_factor", 1.0))) for one in (full, window))
    base = float(full.get("rope_theta", 10000.0))
    out.put("rope.freq_base", base)
    out.put("rope.freq_base_swa", float(window.get("rope_theta", 10000.0)))
    if (2 * turned, others) != (size, size):
        out.put("rope.dimension_count", 2 * turned)
        out.put("rope.dimension_count_swa", others)
    kind = full.get("rope_type", "default")
    if kind == "llama3" and any(sliding_layers(out)):
        factors = llama3_factors({**full, "rope_theta": base}, turned)
        out.extra[FREQS] = (*factors, *[1.0] * (others // 2 - len(factors)))
    elif kind != "default":
        out.refuse(f"the rotation is scaled ({kind}), which GGUF cannot say so for step35")


def _blocks(out: Writing) -> dict[str, Mapping[str, Any]]:
    """The rotation of each kind of layers."""
    facts, slides = out.facts, sliding_layers(out)
    if any(isinstance(one, Mapping) for one in (facts.get("rope_parameters", default={}) or {}).values()):
        return dict(zip((_FULL, _SLIDING), rope_blocks(facts), strict=True))
    told = {"rope_theta": "rope_theta", "partial_rotary_factor": "partial_rotary_factors"}
    found: dict[str, Mapping[str, Any]] = {}
    for kind, slide in ((_FULL, False), (_SLIDING, True)):
        block: dict[str, Any] = {} if slide else dict(facts.get("rope_scaling", default={}))
        for name, field in told.items():
            given = facts.get(field)
            listed = given if isinstance(given, list) else [given] * facts.layers
            values = {one for one, own in zip(listed, slides, strict=False) if own == slide}
            if len(values) > 1:
                out.refuse(f"layers of one kind have different values of {field}, which GGUF cannot say")
            value = next(iter(values), None)
            block |= {} if value is None else {name: value}
        found[kind] = block
    return found


def _read_sparse(file: Reading) -> None:
    sparse = is_sparse(file)
    file.config["moe_layers_enum"] = ",".join(str(i) for i, one in enumerate(sparse) if one)


def _first_sparse(out: Writing) -> int:
    layers = range(out.facts.layers)
    return next((i for i in layers if f"model.layers.{i}.moe.gate.weight" in out.shapes), 0)


def _limits(key: str, name: str) -> Setting:
    """One for each layer, 0 for none."""

    def read(file: Reading) -> None:
        listed = file.each_number(key)
        if listed is not None:
            file.config[name] = listed

    def write(out: Writing) -> None:
        listed = out.facts.get(name)
        if listed is not None:
            out.put(key, [float(one or 0.0) for one in listed[: out.facts.layers]])

    return Special(read, write)


STEP35 = Architecture(
    "step35",
    (Kind("step3p5", "Step3p5ForCausalLM"),),
    (
        CONTEXT,
        HIDDEN,
        INNER,
        HEAD_DIM,
        RMS,
        *windows(),
        Special(_read_heads, _write_heads),
        Special(_read_ropes, _write_ropes),
        *expert_settings("moe_num_experts", "n_routed_experts"),
        MOE_INNER,
        shared_inner("share_expert_dim"),
        routed_scale("moe_router_scaling_factor", default=1.0),
        ALWAYS_NORMALIZED,
        gating(SIGMOID, written=False),
        Special(_read_sparse),
        Written("leading_dense_block_count", _first_sparse),
        Written("moe_every_n_layers", lambda _: 1),
        _limits("swiglu_clamp_exp", "swiglu_limits"),
        _limits("swiglu_clamp_shexp", "swiglu_limits_shared"),
        Always("attention_bias", False),
        Always("mlp_bias", False),
    ),
    (
        *rules("""
            token_embd.* = model.embed_tokens.*
            output.* = lm_head.*
        """),
        rule("output_norm.weight", "model.norm.weight", SHIFTED),
    ),
    (
        *rules(
            """
            attn_norm.weight = input_layernorm.weight
            ffn_norm.weight = post_attention_layernorm.weight
            attn_q_norm.weight = self_attn.q_norm.weight
            attn_k_norm.weight = self_attn.k_norm.weight
            """,
            SHIFTED,
        ),
        *ATTENTION,
        rule("attn_gate.weight", "self_attn.g_proj.weight"),
        *MLP,
        rule("ffn_gate_inp.weight", "moe.gate.weight"),
        rule("exp_probs_b.bias", "moe.router_bias"),
        *experts(),
        *shared_expert("share_expert"),
    ),
)
