"""GLM-5.3 (GLM-5 next): Kimi's delta nets and latent attention without positions on several residual streams.

Which layers are which their tensors say; `attention.head_count_kv` says it again (0: a delta net). llama.cpp
knows four streams alone.
"""

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.changes import DECAY
from modelkit.source.gguf.architectures.delta_nets import DELTA, LOW_RANK
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.latent_heads import DECODER, LATENT
from modelkit.source.gguf.architectures.moe import (
    CORRECTION,
    GROUPS,
    MOE_INNER,
    NORMALIZED,
    ROUTED_SCALE,
    ROUTER,
    SHARED_COUNT,
    expert_settings,
    experts,
    heads_behind,
    leading_dense,
    shared_expert,
)
from modelkit.source.gguf.architectures.parts import (
    MLP,
    NORMS,
    TOP,
    bias_flag,
    rule,
    rules,
)
from modelkit.source.gguf.architectures.rules import Kept, flat
from modelkit.source.gguf.architectures.settings import Always, Same, Special, Written

_KINDS = {True: "linear_attention", False: "indexed_attention"}
_EPS = 1e-6


def _read_layers(file: Reading) -> None:
    recurrent = file.layers_with("ssm_a", "attention.head_count_kv", by_zero=True)
    if file.count("rope.dimension_count", 0):
        file.unsupported("a part of each key is rotated, which is not computed")
    types = file.get("attention.indexer.types")
    if isinstance(types, list) and not all(
        one or folds for one, folds in zip(types, recurrent, strict=False)
    ):
        file.unsupported("layers look at what an earlier one's indexer has chosen, which is not computed")
    if isinstance(types, list):
        file.config["indexer_types"] = ["full" if one else "shared" for one in types[: file.layers]]
    file.skip("attention.key_length", "attention.value_length", "rope.freq_base")
    floor = file.get("kda.gate_lower_bound")
    heads = file.config["num_attention_heads"]
    file.config |= {
        "layer_types": [_KINDS[one] for one in recurrent],
        "num_key_value_heads": heads,
        "q_lora_rank": file.count("attention.q_lora_rank"),
        "kv_lora_rank": file.count("attention.kv_lora_rank"),
        "qk_nope_head_dim": file.count("attention.key_length_mla"),
        "qk_rope_head_dim": 0,
        "v_head_dim": file.count("attention.value_length_mla"),
        "linear_num_heads": heads,
        "linear_head_dim": file.count("kda.head_dim"),
        "linear_conv_kernel_dim": file.count("ssm.conv_kernel"),
        "linear_lower_bound": None if floor is None else file.number("kda.gate_lower_bound"),
    }


def _write_layers(out: Writing) -> None:
    facts = out.facts
    own = facts.get("linear_attn_config", default={}) or {}
    heads = own.get("num_heads", facts.count("linear_num_heads", default=64))
    if heads != facts.heads:
        out.refuse(f"delta nets have {heads} heads and attention {facts.heads}, which GGUF cannot say")
    kinds = facts.get("layer_types")
    recurrent = [kind == _KINDS[True] for kind in kinds or ()] or [i % 4 != 3 for i in range(facts.layers)]
    out.put("attention.head_count_kv", [int(not one) for one in recurrent] + [1] * out.heads)
    out.put(
        "ssm.conv_kernel", own.get("short_conv_kernel_size", facts.count("linear_conv_kernel_dim", default=4))
    )
    out.put("kda.head_dim", own.get("head_dim", facts.count("linear_head_dim", default=128)))
    floor = own.get("gate_lower_bound", facts.get("linear_lower_bound", default=-5.0))
    if floor is not None:
        out.put("kda.gate_lower_bound", float(floor))
    rank = facts.count("kv_lora_rank", default=512)
    out.put("attention.q_lora_rank", facts.count("q_lora_rank", default=1536))
    out.put("attention.kv_lora_rank", rank)
    out.put("rope.dimension_count", 0)
    out.put("attention.key_length", rank)
    out.put("attention.value_length", rank)
    out.put("attention.key_length_mla", facts.count("qk_nope_head_dim", default=256))
    out.put("attention.value_length_mla", facts.count("v_head_dim", default=256))
    types = facts.get("indexer_types")
    if types is not None:
        out.put("attention.indexer.types", [kind == "full" for kind in types])


def _read_least(file: Reading) -> None:
    file.config["hc_eps"] = file.number("hyper_connection.epsilon")


def _write_least(out: Writing) -> None:
    out.put("hyper_connection.epsilon", float(out.facts.get("hc_eps", default=1e-6)))


def _read_limit(file: Reading) -> None:
    limits = {*(file.each_number("swiglu_clamp_exp") or ()), *(file.each_number("swiglu_clamp_shexp") or ())}
    if len(limits) != 1 or 0 in limits:
        file.unsupported("limits of gates are not one number for all layers, which is not computed")
    file.config["swiglu_limit"] = limits.pop()


def _write_limit(out: Writing) -> None:
    limits = [float(out.facts.get("swiglu_limit", default=10.0))] * (out.facts.layers + out.heads)
    out.put("swiglu_clamp_exp", limits)
    out.put("swiglu_clamp_shexp", limits)


STREAMS = (
    Same("hyper_connection.count", ("hc_mult",), default=4, needed=True),
    Same("hyper_connection.sinkhorn_iterations", ("hc_sinkhorn_iters",), default=20, needed=True),
    Special(_read_least, _write_least),
)
LIMIT = Special(_read_limit, _write_limit)


GLM5NEXT = Architecture(
    "glm5-next",
    (Kind("glm5_next_text", "Glm5NextForConditionalGeneration", aliases=("glm5_next",)),),
    (
        *DECODER,
        Special(_read_layers, _write_layers),
        Written("attention.layer_norm_epsilon", lambda _: _EPS),
        Same("attention.indexer.head_count", ("index_n_heads",), default=32, needed=True),
        Same("attention.indexer.key_length", ("index_head_dim",), default=128, needed=True),
        Same("attention.indexer.top_k", ("index_topk",), default=2048, needed=True),
        Same("attention.indexer.kpool", ("index_kpool",), default=16, needed=True),
        Written("attention.indexer.kpool_select_tail", lambda _: True, lambda _: True),
        Always("index_kpool_always_select_tail", True),
        *STREAMS,
        *expert_settings("n_routed_experts", "num_local_experts"),
        *GROUPS,
        MOE_INNER,
        SHARED_COUNT,
        ROUTED_SCALE,
        NORMALIZED,
        leading_dense(default=3),
        LIMIT,
        bias_flag("attention_bias", "attn_kv_a_mqa"),
        heads_behind(),
    ),
    TOP,
    (
        *NORMS,
        *LATENT,
        *DELTA,
        *LOW_RANK,
        *rules("""
            indexer.k_norm.* = self_attn.indexer.k_norm.*
            indexer.proj.* = self_attn.indexer.weights_proj.*
            indexer.attn_k.* = self_attn.indexer.wk.*
            indexer.attn_q_b.* = self_attn.indexer.wq_b.*
            indexer_compressor_gate.weight = self_attn.indexer.index_kpool_compress_gate
            indexer_compressor_ape.weight = self_attn.indexer.index_kpool_compress_ape
            hc_attn_fn.weight = hc_attn_fn
            hc_attn_base.weight = hc_attn_base
            hc_attn_scale.weight = hc_attn_scale
            hc_ffn_fn.weight = hc_ffn_fn
            hc_ffn_base.weight = hc_ffn_base
            hc_ffn_scale.weight = hc_ffn_scale
        """),
        rule("ssm_a", "self_attn.A_log", Kept(flat, flat, DECAY)),
        *MLP,
        ROUTER,
        CORRECTION,
        *experts(),
        *shared_expert("mlp.shared_experts"),
    ),
    exact="function; A_log within 1.2e-7",
)
