"""DeepSeek V4: layers that attend to a window, and to vectors of 4 or of 128 tokens beside it; several
streams; the first mixtures ask experts that a table has for each id.
"""

from typing import Any

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.glm5_next import LIMIT, STREAMS
from modelkit.source.gguf.architectures.moe import (
    ALWAYS_NORMALIZED,
    MOE_INNER,
    ROUTER,
    expert_settings,
    experts,
    gating,
    shared_expert,
)
from modelkit.source.gguf.architectures.moves import Link
from modelkit.source.gguf.architectures.parts import (
    CONTEXT,
    HEAD_DIM,
    HIDDEN,
    NORMS,
    RMS,
    TOP,
    rule,
    rules,
)
from modelkit.source.gguf.architectures.rope import read_scaling, rope_block, write_scaling
from modelkit.source.gguf.architectures.rules import Kept, Members
from modelkit.source.gguf.architectures.settings import Always, Same, Special, Written
from runtime.records import dataclass

_ROOT_OF_SOFTPLUS = 4
_RATES = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}
_SAID = {4: "compress_rate_csa", 128: "compress_rate_hca"}


def _read_layers(file: Reading) -> None:
    rates = file.get("attention.compress_ratios")
    listed = rates[: file.layers] if isinstance(rates, list) else []
    if len(listed) < file.layers or any(rate not in _RATES for rate in listed):
        file.refuse(f"`{file.full('attention.compress_ratios')}` is not a list of 0, 4 or 128 for each layer")
    hashed = file.count("hash_layer_count")
    file.config["layer_types"] = [_RATES[rate] for rate in listed]
    file.config["mlp_layer_types"] = ["hash_moe" if i < hashed else "moe" for i in range(file.layers)]
    if file.count("attention.head_count_kv", 1) != 1:
        file.unsupported("heads have keys of their own, which is not computed for DeepSeek V4")
    file.config["num_key_value_heads"] = 1
    of_images = {name for name in file.shapes if name.endswith("exp_probs_b_vl.bias")}
    file.used_tensors |= of_images
    if of_images:
        file.notes.append(f"{len(of_images)} corrections of the choice of experts for images are left out")


def _hashed(facts: Facts) -> int:
    """How many layers, which are the first, have tables."""
    kinds = facts.get("mlp_layer_types")
    if kinds is None:
        return facts.count("num_hash_layers", default=3)
    return next((place for place, kind in enumerate(kinds) if kind != "hash_moe"), len(kinds))


def _rates(facts: Facts) -> list[int]:
    """Of each layer."""
    by_kind = {kind: rate for rate, kind in _RATES.items()}
    kinds = facts.get("layer_types")
    return facts.get("compress_ratios")[: facts.layers] if kinds is None else [by_kind[one] for one in kinds]


def _write_layers(out: Writing) -> None:
    facts, rates = out.facts, _rates(out.facts)
    told = facts.get("compress_rates", default={})
    for rate, name in _SAID.items():
        found = facts.get(name) or told.get(_RATES[rate], rate)
        if found != rate and rate in rates:
            out.refuse(f"{_RATES[rate]} makes a vector of {found} tokens, and llama.cpp of {rate} alone")
    first = _hashed(facts)
    if "hash_moe" in facts.get("mlp_layer_types", default=[])[first:]:
        out.refuse("mlp_layer_types has tables behind other mixtures, which GGUF cannot say")
    out.put("attention.head_count_kv", 1)
    out.put("attention.compress_ratios", rates)
    out.put("hash_layer_count", first)
    for layer in range(first):  # a correction of what is not a choice
        name = f"model.layers.{layer}.mlp.gate.e_score_correction_bias"
        if name in out.shapes:
            out.numbers(name)


def _read_ropes(file: Reading) -> None:
    turned, size = file.count("rope.dimension_count"), file.count("attention.key_length")
    if not 0 < turned <= size:
        file.refuse(f"`{file.full('rope.dimension_count')}` is not within a head's numbers")
    base = file.number("attention.compress_rope_freq_base")
    scaled: dict[str, Any] = {**read_scaling(file), "rope_theta": base}
    if scaled["rope_type"] == "yarn":
        scaled["attention_factor"] = 1.0
    plain = {"rope_type": "default", "rope_theta": file.number("rope.freq_base", 10000.0)}
    file.config["qk_rope_head_dim"] = turned
    share = {"partial_rotary_factor": turned / size}
    file.config["rope_parameters"] = {"main": plain | share, "compress": scaled | share}


def _ropes(facts: Facts) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of layers with a window alone, and of the others."""
    blocks = facts.get("rope_parameters", default={})
    if "compress" in blocks:
        return blocks["main"], blocks["compress"]
    scaled = {**rope_block(facts), "rope_theta": facts.get("compress_rope_theta", default=160000.0)}
    return {"rope_theta": facts.get("rope_theta", default=10000.0)}, {"attention_factor": 1.0, **scaled}


def _write_ropes(out: Writing) -> None:
    plain, scaled = _ropes(out.facts)
    if plain.get("rope_type", "default") != "default":
        out.refuse("layers with a window alone have a rotation that is scaled, which GGUF cannot say")
    if scaled["rope_type"] == "yarn" and scaled.get("attention_factor") != 1.0:
        out.refuse("attention_factor of the scaled rotation is not 1, and llama.cpp computes no other")
    share = out.facts.get("partial_rotary_factor", default=scaled.get("partial_rotary_factor"))
    turned = out.facts.count("qk_rope_head_dim", default=64)
    out.put("rope.dimension_count", round(share * out.facts.head_dim) if share else turned)
    out.put("rope.freq_base", float(plain["rope_theta"]))
    out.put("attention.compress_rope_freq_base", float(scaled["rope_theta"]))
    write_scaling(out, {name: value for name, value in scaled.items() if name != "attention_factor"})


@dataclass(frozen=True, slots=True)
class _Corrected(Kept):
    """Of a router that has no table."""

    def link(self, members: Members) -> Link | None:
        return Kept.link(self, members) if members.layer >= _hashed(members.facts) else None


DEEPSEEK4 = Architecture(
    "deepseek4",
    (Kind("deepseek_v4", "DeepseekV4ForCausalLM"),),
    (
        CONTEXT,
        HIDDEN,
        Same("attention.head_count", ("num_attention_heads",), needed=True),
        HEAD_DIM,
        RMS,
        Special(_read_layers, _write_layers),
        Special(_read_ropes, _write_ropes),
        Same("attention.q_lora_rank", ("q_lora_rank",), default=1024, needed=True),
        Same("attention.sliding_window", ("sliding_window",), default=128, needed=True),
        *expert_settings("n_routed_experts"),
        MOE_INNER,
        Same("expert_shared_count", ("n_shared_experts",), default=1, needed=True),
        Same("expert_weights_scale", ("routed_scaling_factor",), default=1.5, needed=True, kind=float),
        ALWAYS_NORMALIZED,
        gating(_ROOT_OF_SOFTPLUS),
        Always("scoring_func", "sqrtsoftplus"),
        LIMIT,
        Same("attention.indexer.head_count", ("index_n_heads",), default=64, needed=True),
        Same("attention.indexer.key_length", ("index_head_dim",), default=128, needed=True),
        Same("attention.indexer.top_k", ("index_topk",), default=512, needed=True),
        Same("attention.output_group_count", ("o_groups",), default=8, needed=True),
        Same("attention.output_lora_rank", ("o_lora_rank",), default=1024, needed=True),
        *STREAMS,
        Written("embedding_length_out", lambda out: out.facts.hidden * out.facts.count("hc_mult", default=4)),
    ),
    (
        *TOP,
        *rules("""
            output_hc_fn.weight = model.hc_head.hc_fn
            output_hc_base.weight = model.hc_head.hc_base
            output_hc_scale.weight = model.hc_head.hc_scale
        """),
    ),
    (
        *NORMS,
        *rules("""
            attn_sinks.weight = self_attn.sinks
            attn_q_a.weight = self_attn.q_a_proj.weight
            attn_q_a_norm.weight = self_attn.q_a_norm.weight
            attn_q_b.weight = self_attn.q_b_proj.weight
            attn_kv.weight = self_attn.kv_proj.weight
            attn_kv_a_norm.weight = self_attn.kv_norm.weight
            attn_output_a.weight = self_attn.o_a_proj.weight
            attn_output_b.weight = self_attn.o_b_proj.weight
            attn_compressor_ape.weight = self_attn.compressor.position_bias
            attn_compressor_kv.weight = self_attn.compressor.kv_proj.weight
            attn_compressor_gate.weight = self_attn.compressor.gate_proj.weight
            attn_compressor_norm.weight = self_attn.compressor.kv_norm.weight
            indexer_compressor_ape.weight = self_attn.compressor.indexer.position_bias
            indexer_compressor_kv.weight = self_attn.compressor.indexer.kv_proj.weight
            indexer_compressor_gate.weight = self_attn.compressor.indexer.gate_proj.weight
            indexer_compressor_norm.weight = self_attn.compressor.indexer.kv_norm.weight
            indexer.attn_q_b.weight = self_attn.compressor.indexer.q_b_proj.weight
            indexer.proj.weight = self_attn.compressor.indexer.scorer.weights_proj.weight
            hc_attn_fn.weight = attn_hc.fn
            hc_attn_base.weight = attn_hc.base
            hc_attn_scale.weight = attn_hc.scale
            hc_ffn_fn.weight = ffn_hc.fn
            hc_ffn_base.weight = ffn_hc.base
            hc_ffn_scale.weight = ffn_hc.scale
            ffn_gate_tid2eid.weight = mlp.gate.tid2eid
        """),
        ROUTER,
        rule("exp_probs_b.bias", "mlp.gate.e_score_correction_bias", _Corrected()),
        *experts(),
        *shared_expert("mlp.shared_experts"),
    ),
)
