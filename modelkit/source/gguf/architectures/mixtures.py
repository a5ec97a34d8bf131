"""Mixtures of experts: DeepSeekMoE, GLM 4 MoE, Solar Open, dots.llm1, EXAONE and AFMoE, ERNIE 4.5, Hunyuan,
MiniMax M2.
"""

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.moe import (
    ALWAYS_NORMALIZED,
    CORRECTION,
    GROUPS,
    MOE_INNER,
    NEXTN,
    NORMALIZED,
    PLAIN_SOFTMAX,
    ROUTED_SCALE,
    ROUTER,
    SHARED_COUNT,
    SIGMOID,
    SOFTMAX,
    dense_count,
    expert_settings,
    experts,
    gating,
    heads_behind,
    is_sparse,
    leading_dense,
    read_sparse,
    routed_scale,
    shared_expert,
)
from modelkit.source.gguf.architectures.parts import (
    ATTENTION,
    FUSED_QKV,
    HEAD_NORMS,
    MLP,
    NORMS,
    PAIRED_ATTENTION,
    ROWS,
    TOP,
    UNSCALED,
    VOCAB,
    bias_flag,
    decoder,
    rule,
    rules,
)
from modelkit.source.gguf.architectures.plain import HUNYUAN_ATTENTION, HUNYUAN_TURNS
from modelkit.source.gguf.architectures.rope import SECTIONS, Rope
from modelkit.source.gguf.architectures.settings import Always, Same, Special, Written
from modelkit.source.gguf.architectures.windows import NO_WINDOW, windows

_BIAS = bias_flag("attention_bias", "attn_q")
_SILENT_ROPE = Rope(dimensions=False)


def _qk_norm(file: Reading) -> None:
    file.config["use_qk_norm"] = file.has(0, "attn_q_norm")


def _is_solar(file: Reading) -> bool:
    """Are all layers mixtures, without norms of heads?"""
    return all(is_sparse(file)) and not file.has(0, "attn_q_norm")


GLM4MOE = Architecture(
    "glm4moe",
    (
        Kind(
            "solar_open",
            "SolarOpenForCausalLM",
            _is_solar,
            settings=(Rope(), Special(lambda file: file.skip("leading_dense_block_count"))),
        ),
        Kind(
            "glm4_moe",
            "Glm4MoeForCausalLM",
            aliases=("glm4v_moe_text",),
            settings=(Rope(partial=0.5), SECTIONS, leading_dense(default=1)),
        ),
    ),
    decoder(
        *expert_settings("n_routed_experts", "num_local_experts"),
        *GROUPS,
        MOE_INNER,
        SHARED_COUNT,
        gating(SIGMOID),
        ROUTED_SCALE,
        NORMALIZED,
        heads_behind(),
        Special(_qk_norm),
        _BIAS,
    ),
    TOP,
    (
        rule("attn_norm.*", "input_layernorm.*"),
        rule("post_attention_norm.*", "post_attention_layernorm.*"),
        *ATTENTION,
        FUSED_QKV,
        *HEAD_NORMS,
        *MLP,
        ROUTER,
        CORRECTION,
        *experts(),
        *shared_expert("mlp.shared_experts"),
    ),
    head=NEXTN,
)
DEEPSEEK = Architecture(
    "deepseek",
    (Kind("deepseek", "DeepseekForCausalLM"),),
    decoder(
        Rope(),
        UNSCALED,
        VOCAB,
        *expert_settings("n_routed_experts"),
        MOE_INNER,
        leading_dense(),
        Same("expert_shared_count", ("n_shared_experts",), needed=True),
        Written("expert_weights_scale", lambda _: 1.0),
        Always("norm_topk_prob", False),
        Always("moe_layer_freq", 1),
        Always("attention_bias", False),
        gating(SOFTMAX),
    ),
    TOP,
    (
        *NORMS,
        *PAIRED_ATTENTION,
        *MLP,
        ROUTER,
        *experts(),
        *shared_expert("mlp.shared_experts"),
    ),
)
DOTS1 = Architecture(
    "dots1",
    (Kind("dots1", "Dots1ForCausalLM"),),
    decoder(
        _SILENT_ROPE,
        *expert_settings("n_routed_experts", "num_local_experts"),
        *GROUPS,
        MOE_INNER,
        leading_dense(),
        SHARED_COUNT,
        ROUTED_SCALE,
        NORMALIZED,
        gating(SIGMOID, written=False),
        Special(
            lambda file: file.config.update(sliding_window=None, layer_types=["full_attention"] * file.layers)
        ),
        NO_WINDOW,
        _BIAS,
    ),
    TOP,
    (
        *NORMS,
        *ATTENTION,
        FUSED_QKV,
        *HEAD_NORMS,
        *MLP,
        ROUTER,
        CORRECTION,
        *experts("mlp.experts"),
        *shared_expert("mlp.shared_experts"),
    ),
)


def _shared_inner(out: Writing) -> int:
    facts = out.facts
    return facts.count("moe_intermediate_size") * facts.count(
        "num_shared_experts", "n_shared_experts", default=1
    )


EXAONE_MOE = Architecture(
    "exaone-moe",
    (Kind("exaone_moe", "ExaoneMoeForCausalLM"),),
    decoder(
        _SILENT_ROPE,
        *expert_settings(),
        *GROUPS,
        VOCAB,
        *windows(period=4),
        MOE_INNER,
        Same("expert_shared_count", ("num_shared_experts",)),
        Written("expert_shared_feed_forward_length", _shared_inner),
        ROUTED_SCALE,
        NORMALIZED,
        Special(
            read_sparse,
            lambda out: out.put("leading_dense_block_count", dense_count(out, "first_k_dense_replace", 1)),
        ),
        Written("leading_dense_block_count", lambda _: None),
        heads_behind(zero=True),
        UNSCALED,
        gating(SIGMOID, written=False),
    ),
    TOP,
    (
        *NORMS,
        *ATTENTION,
        FUSED_QKV,
        *HEAD_NORMS,
        *MLP,
        ROUTER,
        rule("exp_probs_b.bias", "mlp.e_score_correction_bias"),
        *experts(),
        *shared_expert("mlp.shared_experts"),
    ),
)


AFMOE = Architecture(
    "afmoe",
    (Kind("afmoe", "AfmoeForCausalLM"),),
    decoder(
        Rope(),
        *expert_settings(),
        VOCAB,
        *windows(period=4, pattern=False),
        MOE_INNER,
        Same("expert_shared_count", ("num_shared_experts",), needed=True),
        routed_scale("route_scale"),
        ALWAYS_NORMALIZED,
        leading_dense("num_dense_layers", default=1),
        gating(SIGMOID),
        Always("mup_enabled", True),
        Always("attention_bias", False),
    ),
    TOP,
    (
        *rules("""
            attn_norm.* = input_layernorm.*
            post_attention_norm.* = post_attention_layernorm.*
            ffn_norm.* = pre_mlp_layernorm.*
            post_ffw_norm.* = post_mlp_layernorm.*
            attn_gate.* = self_attn.gate_proj.*
            ffn_gate_inp.weight = mlp.router.gate.weight
            exp_probs_b.bias = mlp.expert_bias
        """),
        *ATTENTION,
        FUSED_QKV,
        *HEAD_NORMS,
        *MLP,
        *experts("mlp.experts"),
        *shared_expert("mlp.shared_experts"),
    ),
)


def _read_ernie(file: Reading) -> None:
    sparse = is_sparse(file)
    if True not in sparse:
        file.unsupported("no block is a mixture")
    first, last = sparse.index(True), len(sparse) - 1 - sparse[::-1].index(True)
    step = max(file.count("interleave_moe_layer_step", 1), 1)
    wanted = [first <= i <= last and (i + 1) % step == 0 for i in range(file.layers)]
    if sparse != wanted:
        file.refuse(f"`{file.full('interleave_moe_layer_step')}` is {step}, and the blocks are not mixed so")
    file.skip("leading_dense_block_count", "expert_shared_feed_forward_length")
    file.config |= {
        "moe_layer_start_index": first,
        "moe_layer_end_index": last,
        "moe_layer_interval": step,
        "moe_num_shared_experts": file.count("expert_shared_count", 0),
    }


def _write_ernie(out: Writing) -> None:
    """A file has no key for the last mixture; the tensors say it when it is read."""
    facts = out.facts
    step, start = (
        facts.count("moe_layer_interval", default=1),
        facts.count("moe_layer_start_index", default=1),
    )
    out.put("interleave_moe_layer_step", step)
    out.put("leading_dense_block_count", next(i for i in range(start, start + step) if (i + 1) % step == 0))
    shared = facts.count("moe_num_shared_experts")
    if facts.get("moe_num_shared_experts") is not None:
        out.put("expert_shared_count", shared)
    if shared:
        out.put("expert_shared_feed_forward_length", facts.count("moe_intermediate_size") * shared)


ERNIE_MOE = Architecture(
    "ernie4_5-moe",
    (Kind("ernie4_5_moe", "Ernie4_5_MoeForCausalLM"),),
    decoder(
        Rope(theta=500000.0, dimensions=False),
        Same("expert_count", ("moe_num_experts",), needed=True),
        Same("expert_used_count", ("moe_k",), needed=True),
        MOE_INNER,
        *PLAIN_SOFTMAX,
        Special(_read_ernie, _write_ernie),
        Always("moe_norm_min", 1e-12),
        bias_flag("use_bias", "attn_q"),
    ),
    TOP,
    (
        *NORMS,
        *ATTENTION,
        FUSED_QKV,
        *MLP,
        ROUTER,
        rule("exp_probs_b.bias", "mlp.moe_statics.e_score_correction_bias", ROWS),
        *experts(),
        *shared_expert("mlp.shared_experts"),
    ),
)


def _read_hunyuan(file: Reading) -> None:
    for key in ("expert_feed_forward_length", "expert_shared_feed_forward_length"):
        if file.count(key, file.config["intermediate_size"]) != file.config["intermediate_size"]:
            file.unsupported(f"`{file.full(key)}` is not `{file.full('feed_forward_length')}`")
    if file.count("expert_shared_count", 1) != 1:
        file.unsupported(f"`{file.full('expert_shared_count')}` is not 1")
    file.config["moe_topk"] = file.count("expert_used_count")


def _write_hunyuan(out: Writing) -> None:
    asked = out.facts.get("moe_topk")
    each = asked if isinstance(asked, list) else [asked]
    if len(set(each)) != 1:
        out.refuse("moe_topk differs from layer to layer, which GGUF cannot say for hunyuan-moe")
    out.put("expert_used_count", each[0])
    out.put("expert_shared_count", 1)
    for key in ("expert_feed_forward_length", "expert_shared_feed_forward_length"):
        out.put(key, out.facts.count("intermediate_size"))


HUNYUAN_MOE = Architecture(
    "hunyuan-moe",
    (Kind("hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM"),),
    decoder(
        HUNYUAN_TURNS,
        Same("expert_count", ("num_experts", "num_local_experts"), needed=True),
        Special(_read_hunyuan, _write_hunyuan),
        *PLAIN_SOFTMAX,
        _BIAS,
    ),
    TOP,
    (
        *HUNYUAN_ATTENTION,
        rule("ffn_gate_inp.weight", "mlp.gate.wg.weight"),
        *experts(),
        *shared_expert("mlp.shared_mlp"),
    ),
    exact="function; a dynamic rotation comes back as its base",
)
MINIMAX = Architecture(
    "minimax-m2",
    (Kind("minimax_m2", "MiniMaxM2ForCausalLM"),),
    decoder(
        Rope(theta=5000000.0),
        *expert_settings("num_local_experts", "num_experts"),
        Written("expert_feed_forward_length", lambda out: out.facts.get("intermediate_size")),
        gating(SIGMOID),
    ),
    TOP,
    (
        *NORMS,
        *ATTENTION,
        FUSED_QKV,
        *HEAD_NORMS,
        rule("ffn_gate_inp.weight", "block_sparse_moe.gate.weight"),
        rule("exp_probs_b.bias", "block_sparse_moe.e_score_correction_bias"),
        *experts("block_sparse_moe.switch_mlp"),
    ),
)


def _read_third_hunyuan(file: Reading) -> None:
    """Which layers are mixtures the tensors say; the shared expert is told by its width."""
    inner = file.config["moe_intermediate_size"]
    width = file.count("expert_shared_feed_forward_length", inner)
    if not inner or width % inner:
        file.refuse(f"its shared experts are {width} wide together, and an expert {inner}")
    file.config["num_shared_experts"] = width // inner
    read_sparse(file)


def _write_third_hunyuan(out: Writing) -> None:
    inner, shared = out.facts.count("moe_intermediate_size"), out.facts.count("num_shared_experts", default=1)
    out.put("expert_shared_feed_forward_length", inner * shared)


HY_V3 = Architecture(
    "hy_v3",
    (Kind("hy_v3", "HYV3ForCausalLM"),),
    decoder(
        Rope(theta=11158840.0, dimensions=False),
        *expert_settings(),
        MOE_INNER,
        Special(_read_third_hunyuan, _write_third_hunyuan),
        ALWAYS_NORMALIZED,
        routed_scale("router_scaling_factor", default=2.826),
        gating(SIGMOID),
        _BIAS,
    ),
    TOP,
    (
        *NORMS,
        *ATTENTION,
        FUSED_QKV,
        *HEAD_NORMS,
        *MLP,
        rule("ffn_gate_inp.weight", "mlp.router.gate.weight"),
        rule("exp_probs_b", "mlp.expert_bias"),
        *experts(),
        *shared_expert("mlp.shared_mlp"),
    ),
)
