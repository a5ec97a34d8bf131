"""Gemma 4's text model: layers of two shapes, keys as values, vectors per layer, experts beside the MLP."""

from collections.abc import Mapping
from typing import Any

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.gemma import Cap
from modelkit.source.gguf.architectures.moe import experts
from modelkit.source.gguf.architectures.parts import (
    ATTENTION,
    CONTEXT,
    HEAD_COUNT,
    HEAD_NORMS,
    HIDDEN,
    MLP,
    RMS,
    rules,
)
from modelkit.source.gguf.architectures.rope import FREQS, rope_blocks
from modelkit.source.gguf.architectures.settings import Always, Same, Special
from modelkit.source.gguf.architectures.windows import sliding_layers, windows
from runtime.config.text import wrapped
from runtime.quoting import quoted

_STILL = 1e30
"""Pairs that are not rotated have this factor: they turn so slowly that they do not."""


def _read_heads(file: Reading) -> None:
    """Layers with a window are the config's own shape; the others are told apart."""
    full = {"head_dim": file.count("attention.key_length")}
    file.skip("attention.value_length", "attention.value_length_swa")
    file.config["head_dim"] = file.count("attention.key_length_swa")
    kinds = file.config["layer_types"]
    counts = file.each("attention.head_count_kv")
    by_kind = {kind: {n for n, k in zip(counts, kinds, strict=False) if k == kind} for kind in kinds}
    if any(len(found) > 1 for found in by_kind.values()):
        file.unsupported("layers of one kind have different numbers of key heads")
    windowed = by_kind.get("sliding_attention") or by_kind["full_attention"]
    file.config["num_key_value_heads"] = next(iter(windowed))
    if by_kind.get("full_attention", windowed) != windowed:
        full["num_key_value_heads"] = next(iter(by_kind["full_attention"]))
    own = {str(i): dict(full) for i, kind in enumerate(kinds) if kind == "full_attention"}
    file.config["per_layer_config"] = own


def _full(out: Writing, field: str, other: str, default: int) -> int:
    """What layers without a window have, in either spelling."""
    own = out.facts.get("per_layer_config", default={})
    kinds = out.facts.get("layer_types", default=())
    places = [own.get(str(i), {}) for i, kind in enumerate(kinds) if kind == "full_attention"]
    found = {place.get(field, default) for place in places}
    if len(found) > 1:
        out.refuse(f"layers without a window differ in {field}, which GGUF cannot say for gemma4")
    told = out.facts.get(other)
    return told if told is not None else next(iter(found), default)


def _write_heads(out: Writing) -> None:
    facts = out.facts
    size = facts.head_dim
    whole = _full(out, "head_dim", "global_head_dim", size)
    out.put("attention.key_length", whole)
    out.put("attention.value_length", whole)
    out.put("attention.key_length_swa", size)
    out.put("attention.value_length_swa", size)
    heads = facts.kv_heads
    other = _full(out, "num_key_value_heads", "num_global_key_value_heads", heads)
    listed = [heads if one else other for one in sliding_layers(out)]
    out.put("attention.head_count_kv", heads if other == heads else listed)
    out.put("rope.dimension_count", whole)
    out.put("rope.dimension_count_swa", size)
    full, window = rope_blocks(facts)
    out.put("rope.freq_base", float(full.get("rope_theta", 1000000.0)))
    out.put("rope.freq_base_swa", float(window.get("rope_theta", 10000.0)))
    turning = int(whole * full.get("partial_rotary_factor", 0.25) / 2)
    out.extra[FREQS] = (1.0,) * turning + (_STILL,) * (whole // 2 - turning)


def _read_rope(file: Reading) -> None:
    if FREQS not in file.shapes:
        file.refuse(f"the tensor `{FREQS}` is missing, which says how much of a head is rotated")
    file.used_tensors.add(FREQS)
    factors = [float(number) for number in file.values(FREQS)]
    turning = factors.count(1.0)
    if any(number != 1.0 for number in factors[:turning]) or any(
        number < 1e29 for number in factors[turning:]
    ):
        file.unsupported(f"the factors in `{FREQS}` are not those of a share that is rotated")
    for rotated, whole in (
        ("rope.dimension_count", "key_length"),
        ("rope.dimension_count_swa", "key_length_swa"),
    ):
        size = file.count(f"attention.{whole}")
        if file.count(rotated, size) != size:
            file.unsupported(
                f"`{file.full(rotated)}` is not the {size} numbers of a head, which is not computed"
            )
    file.config["rope_parameters"] = {
        "full_attention": {
            "rope_type": "proportional",
            "rope_theta": file.number("rope.freq_base", 10000.0),
            "partial_rotary_factor": turning / len(factors),
        },
        "sliding_attention": {
            "rope_type": "default",
            "rope_theta": file.number("rope.freq_base_swa", 10000.0),
        },
    }


def _read_widths(file: Reading) -> None:
    """Layers that use the keys of others may have an MLP of twice the width."""
    shared = file.count("attention.shared_kv_layers", 0)
    widths = file.each("feed_forward_length")
    first = file.layers - shared
    wide = [2 * widths[0] if i >= first else widths[0] for i in range(file.layers)]
    if widths not in (wide, [widths[0]] * file.layers):
        file.unsupported(f"`{file.full('feed_forward_length')}` is {quoted(widths)}, which no config can say")
    file.config |= {
        "intermediate_size": widths[0],
        "use_double_wide_mlp": bool(shared) and widths == wide,
        "num_kv_shared_layers": shared,
    }


def _write_widths(out: Writing) -> None:
    facts = out.facts
    width, shared = facts.count("intermediate_size"), facts.count("num_kv_shared_layers")
    first = facts.layers - shared
    out.put("attention.shared_kv_layers", shared)
    wide = [2 * width if i >= first else width for i in range(facts.layers)]
    out.put("feed_forward_length", wide if facts.get("use_double_wide_mlp") else width)


def _read_more(file: Reading) -> None:
    own = file.shapes.get("per_layer_token_embd.weight")
    sparse = file.has(0, "ffn_gate_inp")
    shared = file.layers - file.config["num_kv_shared_layers"]
    full = [i for i, kind in enumerate(file.config["layer_types"][:shared]) if kind == "full_attention"]
    file.config |= {
        "vocab_size_per_layer_input": own[0] if own else file.config["vocab_size"],
        "enable_moe_block": sparse,
        "attention_k_eq_v": any(not file.has(layer, "attn_v") for layer in full),
    }


def _write_experts(out: Writing) -> None:
    facts = out.facts
    if facts.get("enable_moe_block"):
        out.put("expert_count", facts.count("num_experts", "num_local_experts"))
        out.put("expert_used_count", facts.count("top_k_experts", "num_experts_per_tok"))
        inner = facts.count("moe_intermediate_size", "expert_intermediate_size")
        out.put("expert_feed_forward_length", inner)


def _read_experts(file: Reading) -> None:
    found: dict[str, Any] = {
        "num_experts": file.get("expert_count", int),
        "top_k_experts": file.get("expert_used_count", int),
        "moe_intermediate_size": file.get("expert_feed_forward_length", int),
    }
    file.config |= {name: value for name, value in found.items() if value is not None}


def _is_assistant(config: Mapping[str, Any]) -> bool:
    """Is it the text model within an assistant's config?"""
    return config.get("backbone_hidden_size") is not None


_EXPERTS = experts("experts.switch_glu")
_SETTINGS = (
    CONTEXT,
    HIDDEN,
    HEAD_COUNT,
    RMS,
    *windows(),
    Special(_read_heads, _write_heads),
    Special(_read_rope),
    Special(_read_widths, _write_widths),
    Same("embedding_length_per_layer_input", ("hidden_size_per_layer_input",), default=0, absent=0),
    Special(_read_experts, _write_experts),
    Special(_read_more),
    Always("attention_bias", False),
)

GEMMA4 = Architecture(
    "gemma4",
    (Kind("gemma4_text", "Gemma4ForCausalLM", aliases=("gemma4", "gemma4_unified_text", "gemma4_unified")),),
    (*_SETTINGS, Cap("final_logit_softcapping", 30.0, said=False, deniable=True)),
    rules("""
        token_embd.* = model.embed_tokens.*
        output_norm.* = model.norm.*
        output.* = lm_head.*
        per_layer_token_embd.weight = model.embed_tokens_per_layer.weight
        per_layer_model_proj.weight = model.per_layer_model_projection.weight
        per_layer_proj_norm.weight = model.per_layer_projection_norm.weight
    """),
    (
        *rules("""
            attn_norm.* = input_layernorm.*
            post_attention_norm.* = post_attention_layernorm.*
            ffn_norm.* = pre_feedforward_layernorm.*
            post_ffw_norm.* = post_feedforward_layernorm.*
            post_ffw_norm_1.* = post_feedforward_layernorm_1.*
            post_ffw_norm_2.* = post_feedforward_layernorm_2.*
            pre_ffw_norm_2.* = pre_feedforward_layernorm_2.*
            inp_gate.* = per_layer_input_gate.*
            proj.* = per_layer_projection.*
            post_norm.* = post_per_layer_input_norm.*
            layer_output_scale.weight = layer_scalar
            ffn_gate_inp.weight = router.proj.weight
            ffn_gate_inp.scale = router.scale
            ffn_down_exps.scale = router.per_expert_scale
        """),
        *ATTENTION,
        *HEAD_NORMS,
        *MLP,
        _EXPERTS[-1],
        *_EXPERTS[:-1],
    ),
    condition=lambda config: not _is_assistant(config),
)

_OWN = {
    "attn_norm", "attn_q", "attn_q_norm", "attn_output", "post_attention_norm", "ffn_norm", "ffn_gate",
    "ffn_up", "ffn_down", "post_ffw_norm", "layer_output_scale",
}  # fmt: skip
"""Of a block without keys and values."""
_CLUSTERS = ("masked_embd_centroids.weight", "masked_embd_ordering")


def _read_assistant(file: Reading) -> None:
    file.skip("nextn_predict_layers")
    file.config["backbone_hidden_size"] = file.count("embedding_length_out")
    file.config["use_ordered_embeddings"] = False
    clusters = [name for name in _CLUSTERS if name in file.shapes]
    if clusters:
        file.used_tensors.update(clusters)
        file.notes.append(
            "the clusters of its vocabulary are left out: all tokens are scored, as in llama.cpp"
        )


def _write_assistant(out: Writing) -> None:
    out.put("embedding_length_out", out.facts.get("backbone_hidden_size"))
    out.put("nextn_predict_layers", out.facts.layers)


def _as_assistant(config: dict[str, Any]) -> dict[str, Any]:
    """config.json as the checkpoint has it."""
    own = {
        name: config.pop(name) for name in ("backbone_hidden_size", "use_ordered_embeddings", "architectures")
    }
    tied = config["tie_word_embeddings"]
    return wrapped(config, **own, model_type="gemma4_assistant", tie_word_embeddings=tied)


ASSISTANT = Architecture(
    "gemma4-assistant",
    (Kind("gemma4_text", "Gemma4AssistantForCausalLM"),),
    (
        *_SETTINGS,
        Same("final_logit_softcapping", ("final_logit_softcapping",)),
        Special(_read_assistant, _write_assistant),
    ),
    rules("""
        token_embd.* = model.embed_tokens.*
        output_norm.* = model.norm.*
        nextn.pre_projection.weight = pre_projection.weight
        nextn.post_projection.weight = post_projection.weight
    """),
    tuple(one for one in GEMMA4.block if one.theirs[0].partition(".")[0] in _OWN),
    exact="bits, but for clusters of the vocabulary; a draft that reads its target's memory",
    condition=_is_assistant,
    all_head=True,
    wrapped=_as_assistant,
    otherwise=("keys_are_values", "clusters"),
)
