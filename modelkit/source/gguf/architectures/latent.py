"""DeepSeek V2 to V3.2 with Kimi K2, GLM-4.7 Flash and GLM-5: latent attention and experts in groups; Hunyuan
V4, which has several streams around them; and Youtu-LLM and MiniCPM3, which have no experts.
"""

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.latent_heads import (
    DECODER,
    LATENT,
    LATENT_ROPE,
    LATENT_SIZES,
    read_yarn,
    write_yarn,
)
from modelkit.source.gguf.architectures.moe import (
    CORRECTION,
    MOE_INNER,
    NEXTN,
    ROUTED_SCALE,
    ROUTER,
    SHARED_COUNT,
    SIGMOID,
    expert_settings,
    experts,
    gating,
    has_experts,
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
from modelkit.source.gguf.architectures.phi import LongRope
from modelkit.source.gguf.architectures.rope import rope_block
from modelkit.source.gguf.architectures.settings import Always, Same, Setting, Special, Written


def _groups(file: Reading) -> None:
    for key, name in (("expert_group_count", "n_group"), ("expert_group_used_count", "topk_group")):
        told = file.get(key, int)
        if told is not None:
            file.config[name] = told


def _write_groups(out: Writing) -> None:
    facts = out.facts
    if facts.get("topk_method", default="") == "greedy":
        return
    for key, name in (("expert_group_count", "n_group"), ("expert_group_used_count", "topk_group")):
        if facts.get(name) is not None:
            out.put(key, facts.get(name))


def _second(file: Reading) -> None:
    """V2 routes by a softmax, within groups if the file has any."""
    if file.count("expert_gating_func", 1) != 1:
        file.unsupported(f"`{file.full('expert_gating_func')}` is not 1 and no choice is corrected")
    groups = file.config.get("n_group", 1)
    file.config |= {
        "topk_method": "group_limited_greedy" if groups > 1 else "greedy",
        "scoring_func": "softmax",
        "norm_topk_prob": False,
    }


def _third(file: Reading) -> None:
    if file.count("expert_gating_func", 2) != 2:
        file.unsupported(f"`{file.full('expert_gating_func')}` is not 2, and the choice is corrected")
    file.config |= {"topk_method": "noaux_tc", "scoring_func": "sigmoid"}
    file.config.setdefault("n_group", 1)
    file.config.setdefault("topk_group", 1)


def _write_norm(out: Writing) -> None:
    if out.facts.get("norm_topk_prob", default=False):
        out.put("expert_weights_norm", True)


def _write_softmax(out: Writing) -> None:
    out.put("expert_gating_func", 1)


def _write_sigmoid(out: Writing) -> None:
    """llama.cpp takes a softmax for most files that do not say, old ones of V3 among them."""
    out.put("expert_gating_func", 2)


def _read_said(file: Reading) -> None:
    _third(file)
    if file.get("expert_gating_func", int) is None:
        del file.config["scoring_func"]


def _write_said(out: Writing) -> None:
    """llama.cpp takes sigmoids where a file of GLM-5 does not say."""
    if out.facts.get("scoring_func") is not None:
        _write_sigmoid(out)


SIZES = (*DECODER, LATENT_SIZES)
_BESIDE = (
    MOE_INNER,
    SHARED_COUNT,
    ROUTED_SCALE,
    Special(
        lambda file: file.config.update(norm_topk_prob=bool(file.get("expert_weights_norm"))), _write_norm
    ),
    bias_flag("attention_bias", "attn_kv_a_mqa"),
)
MIXTURE = (
    *expert_settings("n_routed_experts", "num_local_experts"),
    Special(_groups, _write_groups),
    *_BESIDE,
)
_COMMON = (*SIZES, LATENT_ROPE)
_THIRD = (*MIXTURE, leading_dense(default=3), Special(_third, _write_sigmoid))
_BLOCK = (
    *NORMS,
    *LATENT,
    *MLP,
    ROUTER,
    CORRECTION,
    *experts(),
    *shared_expert("mlp.shared_experts"),
)

_DENSE = (
    Written("leading_dense_block_count", lambda out: out.facts.layers),
    Written("expert_feed_forward_length", lambda out: out.facts.get("intermediate_size")),
    Written("expert_shared_count", lambda _: 0),
    bias_flag("attention_bias", "attn_kv_a_mqa"),
)

DEEPSEEK2 = Architecture(
    "deepseek2",
    (
        Kind(
            "youtu",
            "YoutuForCausalLM",
            lambda file: not has_experts(file),
            aliases=("youtu_llm",),
            settings=_DENSE,
        ),
        Kind(
            "deepseek_v3",
            "DeepseekV3ForCausalLM",
            lambda file: any(file.layers_with("exp_probs_b")),
            aliases=("kimi_k2", "glm4_moe_lite"),
            settings=_THIRD,
        ),
        Kind(
            "deepseek_v2",
            "DeepseekV2ForCausalLM",
            settings=(*MIXTURE, leading_dense(), Special(_second, _write_softmax)),
        ),
    ),
    (*_COMMON, heads_behind()),
    TOP,
    _BLOCK,
    head=NEXTN,
)
_INDEXED_BLOCK = (
    *_BLOCK,
    *rules("""
        indexer.k_norm.* = self_attn.indexer.k_norm.*
        indexer.proj.* = self_attn.indexer.weights_proj.*
        indexer.attn_k.* = self_attn.indexer.wk.*
        indexer.attn_q_b.* = self_attn.indexer.wq_b.*
    """),
)


def _indexer(heads: int) -> tuple[Setting, ...]:
    return (
        Same("attention.indexer.head_count", ("index_n_heads",), default=heads, needed=True),
        Same("attention.indexer.key_length", ("index_head_dim",), default=128, needed=True),
        Same("attention.indexer.top_k", ("index_topk",), default=2048, needed=True),
    )


def _read_choosers(file: Reading) -> None:
    """Which layers have an indexer: their tensors say it, and files of GLM-5.2 say it, too."""
    own = file.layers_with("indexer.proj")
    told = file.get("attention.indexer.types")
    if told is not None and told != own:
        file.refuse(f"`{file.full('attention.indexer.types')}` is not what the tensors of indexers say")
    file.config["indexer_types"] = ["full" if one else "shared" for one in own]


def _write_choosers(out: Writing) -> None:
    kinds, every = out.facts.get("indexer_types"), out.facts.get("index_topk_freq", default=1)
    if kinds is None and (out.facts.get("index_topk_pattern") is not None or every not in (0, 1)):
        out.refuse("which layers have an indexer is said by a pattern; GGUF is written from indexer_types")
    if kinds is not None:
        out.put("attention.indexer.types", [kind == "full" for kind in kinds])


DEEPSEEK32 = Architecture(
    "deepseek32",
    (Kind("deepseek_v32", "DeepseekV32ForCausalLM", settings=_THIRD),),
    (*_COMMON, *_indexer(64), heads_behind()),
    TOP,
    _INDEXED_BLOCK,
    head=NEXTN,
)
GLM_DSA = Architecture(
    "glm-dsa",
    (
        Kind(
            "glm_moe_dsa",
            "GlmMoeDsaForCausalLM",
            settings=(*MIXTURE, leading_dense(default=3), Special(_read_said, _write_said)),
        ),
    ),
    (*_COMMON, *_indexer(32), Special(_read_choosers, _write_choosers), heads_behind()),
    TOP,
    _INDEXED_BLOCK,
    head=NEXTN,
)


def _write_open_groups(out: Writing) -> None:
    if out.facts.get("n_group", default=1) != 1:
        _write_groups(out)


def _write_plain_rope(out: Writing) -> None:
    if rope_block(out.facts)["rope_type"] != "default":
        out.refuse("the rotation is scaled, and llama.cpp leaves scores of this architecture unscaled")
    write_yarn(out)


def _read_limit(file: Reading) -> None:
    told = file.get("swiglu_clamp_exp")
    limits = {float(one) for one in (told if isinstance(told, list | tuple) else [told or 0.0])}
    if len(limits) != 1:
        file.unsupported("layers have experts with limits of their own")
    file.config["swiglu_limit"] = limits.pop()


def _write_limit(out: Writing) -> None:
    limit = float(out.facts.get("swiglu_limit", default=10.0))
    if limit > 0:
        out.put("swiglu_clamp_exp", [limit] * out.facts.layers)


_STREAMS, _PARTS = ("hc_attn_layer", "hc_mlp_layer"), ("fn", "base", "scale")
HY_V4 = Architecture(
    "hy_v4",
    (Kind("hy_v4", "HYV4ForCausalLM", aliases=("hy_v4_vl_text",)),),
    (
        *SIZES,
        Special(read_yarn, _write_plain_rope),
        *expert_settings("n_routed_experts", "num_local_experts"),
        Special(_groups, _write_open_groups),
        *_BESIDE,
        leading_dense(default=1),
        gating(SIGMOID),
        Special(_read_limit, _write_limit),
        Same("hyper_connection.count", ("hc_mult",), default=4, needed=True),
        Same("hyper_connection.epsilon", ("hc_eps",), default=1e-6, needed=True, kind=float),
        Same("hyper_connection.magnitude", ("hc_magnitude",), default=2.0, needed=True, kind=float),
        *_indexer(16),
        Special(_read_choosers, _write_choosers),
    ),
    (
        *TOP,
        *(rule(f"output_hc_{part}.weight", f"model.hc_head.hc_head_{part}") for part in _PARTS),
    ),
    (
        *_INDEXED_BLOCK,
        rule("attn_gate.*", "self_attn.linear_gate.*"),
        rule("attn_sinks.weight", "self_attn.learnable_sink_param"),
        *(
            rule(f"hc_{theirs}_{part}.weight", f"{ours}.hc_pre.hc_{part}")
            for theirs, ours in zip(("attn", "ffn"), _STREAMS, strict=True)
            for part in _PARTS
        ),
    ),
)


def _read_small(file: Reading) -> None:
    """A converter says nothing of values, which then are as long as the hidden state has room for."""
    heads, rotated = file.count("attention.head_count"), file.count("rope.dimension_count")
    whole = file.count("attention.key_length")
    if not 0 < rotated < whole or not heads:
        file.refuse(f"{rotated} of {whole} numbers of a key are rotated in {heads} heads, which cannot be")
    file.skip("attention.head_count_kv")
    file.config |= {
        "num_key_value_heads": heads,
        "q_lora_rank": file.count("attention.q_lora_rank"),
        "kv_lora_rank": file.count("attention.kv_lora_rank"),
        "qk_nope_head_dim": whole - rotated,
        "qk_rope_head_dim": rotated,
        "head_dim": rotated,
        "v_head_dim": file.count("attention.value_length", file.config["hidden_size"] // heads),
    }


def _write_small(out: Writing) -> None:
    facts = out.facts
    content, rotated = (
        facts.count("qk_nope_head_dim", default=64),
        facts.count("qk_rope_head_dim", default=32),
    )
    out.put("attention.head_count_kv", facts.heads)
    if facts.get("q_lora_rank") is not None:
        out.put("attention.q_lora_rank", facts.get("q_lora_rank"))
    out.put("attention.kv_lora_rank", facts.count("kv_lora_rank", default=256))
    out.put("attention.key_length", content + rotated)
    out.put("attention.value_length", facts.count("v_head_dim", default=facts.hidden // facts.heads))
    out.put("rope.dimension_count", rotated)


MINICPM3 = Architecture(
    "minicpm3",
    (Kind("minicpm3", "MiniCPM3ForCausalLM"),),
    (
        *DECODER,
        Special(_read_small),
        LongRope(),
        Special(lambda file: file.config.pop("original_max_position_embeddings", None), _write_small),
        Always("scale_emb", 12),
        Always("scale_depth", 1.4),
        Always("dim_model_base", 256),
    ),
    TOP,
    (
        *NORMS,
        *rules("""
            attn_q_a.weight = self_attn.q_a_proj.weight
            attn_q_a_norm.weight = self_attn.q_a_layernorm.weight
            attn_q_b.weight = self_attn.q_b_proj.weight
            attn_kv_a_mqa.weight = self_attn.kv_a_proj_with_mqa.weight
            attn_kv_a_norm.weight = self_attn.kv_a_layernorm.weight
            attn_kv_b.weight = self_attn.kv_b_proj.weight
            attn_output.weight = self_attn.o_proj.weight
        """),
        *MLP,
    ),
)
