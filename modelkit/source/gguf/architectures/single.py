"""Architectures of one model or two: SmallThinker, GroveMoE, Arctic, Orion, PLM, CodeShell."""

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.moe import (
    MOE_INNER,
    ROUTER,
    SIGMOID,
    SOFTMAX,
    expert_settings,
    experts,
)
from modelkit.source.gguf.architectures.parts import (
    ATTENTION,
    CONTEXT,
    FUSED_QKV,
    HEAD_DIM,
    HEAD_NORMS,
    HEADS,
    HIDDEN,
    INNER,
    LAYER_NORM,
    MLP,
    NORMS,
    PAIRED_ATTENTION,
    RMS,
    TOP,
    VOCAB,
    decoder,
    feed_forward,
    rule,
    rules,
)
from modelkit.source.gguf.architectures.plain import layer_norm_decoder
from modelkit.source.gguf.architectures.rope import Rope
from modelkit.source.gguf.architectures.settings import Always, Same, Special, Written

_PERIOD, _WINDOW = 4, 4096
"""Of SmallThinker in llama.cpp: of so many layers the first sees everything and has no positions."""


def _read_layers(file: Reading) -> None:
    """Where some layers have windows, the others have no positions."""
    slides = file.count("attention.sliding_window", 0) > 0
    ones = [int(place % _PERIOD != 0) for place in range(file.layers)]
    file.config["sliding_window_size"] = _WINDOW
    file.config["sliding_window_layout"] = ones if slides else [0] * file.layers
    file.config["rope_layout"] = ones if slides else [1] * file.layers
    file.skip("attention.sliding_window_pattern")


def _write_layers(out: Writing) -> None:
    layers = out.facts.layers
    ones = [int(place % _PERIOD != 0) for place in range(layers)]
    slides, turns = (
        out.facts.get(name, default=[default] * layers)
        for name, default in (("sliding_window_layout", 0), ("rope_layout", 1))
    )
    if any(slides):
        out.put("attention.sliding_window", out.facts.count("sliding_window_size", default=_WINDOW))
    if (slides, turns) not in ((ones, ones), ([0] * layers, [1] * layers)):
        out.refuse(
            "rope_layout and sliding_window_layout are not those that llama.cpp takes for smallthinker"
        )
    if any(slides) and out.facts.count("sliding_window_size", default=_WINDOW) != _WINDOW:
        out.refuse(f"sliding_window_size is not {_WINDOW}, the window that llama.cpp takes for smallthinker")


def _read_gates(file: Reading) -> None:
    told = file.count("expert_gating_func", SOFTMAX)
    if told not in (SIGMOID, SOFTMAX):
        file.unsupported(f"`{file.full('expert_gating_func')}` is {told}, which is not computed")
    file.config["moe_primary_router_apply_softmax"] = told == SOFTMAX


def _write_gates(out: Writing) -> None:
    best = out.facts.get("moe_primary_router_apply_softmax", default=False)
    out.put("expert_gating_func", SOFTMAX if best else SIGMOID)


_THINKERS_INNER = Same("expert_feed_forward_length", ("moe_ffn_hidden_size",), needed=True)
SMALLTHINKER = Architecture(
    "smallthinker",
    (Kind("smallthinker", "SmallThinkerForCausalLM"),),
    (
        CONTEXT,
        HIDDEN,
        *HEADS,
        HEAD_DIM,
        RMS,
        Rope(theta=1e6, dimensions=False),
        Same("expert_count", ("moe_num_primary_experts",), needed=True),
        Same("expert_used_count", ("moe_num_active_primary_experts",), needed=True),
        _THINKERS_INNER,
        Written("feed_forward_length", lambda out: out.facts.get("moe_ffn_hidden_size")),
        Special(_read_gates, _write_gates),
        Special(_read_layers, _write_layers),
    ),
    TOP,
    (
        *NORMS,
        *ATTENTION,
        FUSED_QKV,
        rule("ffn_gate_inp.weight", "block_sparse_moe.primary_router.weight"),
        *experts("block_sparse_moe.switch_mlp"),
    ),
)


_SHARERS, _CHUNK, _SHARE = 2, 128, 0.05
"""Of GroveMoE's class: large experts for a small one, its width, and how much it counts."""


def _read_share(file: Reading) -> None:
    told = file.number("expert_group_scale", _SHARE)
    if abs(told - _SHARE) > 1e-6:
        file.unsupported(f"`{file.full('expert_group_scale')}` is {told}, and small experts count {_SHARE}")


GROVEMOE = Architecture(
    "grovemoe",
    (Kind("grove_moe", "GroveMoeForCausalLM"),),
    decoder(
        Rope(dimensions=False),
        *expert_settings(),
        MOE_INNER,
        Written("expert_chunk_feed_forward_length", lambda _: _CHUNK, lambda _: _CHUNK),
        Written("experts_per_group", lambda _: _SHARERS, lambda _: _SHARERS),
        Special(_read_share, lambda out: out.put("expert_group_scale", _SHARE)),
        Always("attention_bias", False),
        Always("decoder_sparse_step", 1),
        Always("mlp_only_layers", []),
    ),
    TOP,
    (
        *NORMS,
        *ATTENTION,
        FUSED_QKV,
        *HEAD_NORMS,
        ROUTER,
        *experts(),
        *feed_forward("mlp.chunk_experts", "_chexps"),
    ),
)
ARCTIC = Architecture(
    "arctic",
    (Kind("arctic", "ArcticForCausalLM"),),
    decoder(
        Rope(theta=1e6),
        VOCAB,
        Same("expert_count", ("num_local_experts",), needed=True),
        Same("expert_used_count", ("num_experts_per_tok",), needed=True),
        Always("moe_layer_frequency", 1),
        Always("parallel_attn_mlp_res", True),
        Always("attention_bias", False),
    ),
    TOP,
    (
        *rules("""
            attn_norm.* = input_layernorm.*
            ffn_norm.* = residual_layernorm.*
            ffn_norm_exps.* = post_attention_layernorm.*
            ffn_gate.* = residual_mlp.w1.*
            ffn_up.* = residual_mlp.w3.*
            ffn_down.* = residual_mlp.w2.*
            ffn_gate_inp.weight = block_sparse_moe.gate.weight
        """),
        *PAIRED_ATTENTION,
        *experts("block_sparse_moe.switch_mlp"),
    ),
)


ORION = Architecture(
    "orion",
    (Kind("orion", "OrionForCausalLM"),),
    (
        *layer_norm_decoder("rms_norm_eps", Rope(dimensions=False, silent=True)),
        Written("tensor_data_layout", lambda _: "Meta AI original pth"),
    ),
    TOP,
    (*NORMS, *ATTENTION, FUSED_QKV, *MLP),
)


def _read_latent(file: Reading) -> None:
    rotated, whole = file.count("rope.dimension_count"), file.count("attention.key_length")
    if not 0 < rotated < whole:
        file.refuse(f"{rotated} of {whole} numbers of a key are rotated, which cannot be")
    file.config |= {
        "kv_lora_rank": file.count("attention.kv_lora_rank"),
        "qk_nope_head_dim": whole - rotated,
        "qk_rope_head_dim": rotated,
        "head_dim": rotated,
        "v_head_dim": file.count("attention.value_length"),
    }


def _write_latent(out: Writing) -> None:
    facts = out.facts
    content, rotated = (facts.count(f"qk_{part}_head_dim") for part in ("nope", "rope"))
    out.put("attention.kv_lora_rank", facts.count("kv_lora_rank"))
    out.put("attention.key_length", content + rotated)
    out.put("attention.value_length", facts.count("v_head_dim"))
    out.put("rope.dimension_count", rotated)


PLM = Architecture(
    "plm",
    (Kind("plm", "PLMForCausalLM"),),
    (
        *(CONTEXT, HIDDEN, INNER, *HEADS, RMS, VOCAB),
        Special(_read_latent, _write_latent),
        Rope(theta=100000.0, dimensions=False),
        Special(lambda file: file.config.update(head_dim=None)),
        Always("hidden_act", "relu2"),
        Always("q_lora_rank", None),
        Always("tie_word_embeddings", True),
    ),
    TOP,
    (
        *NORMS,
        *rules("""
            attn_q.weight = self_attn.q_proj.weight
            attn_kv_a_mqa.weight = self_attn.kv_a_proj_with_mqa.weight
            attn_kv_a_norm.weight = self_attn.kv_a_layernorm.weight
            attn_kv_b.weight = self_attn.kv_b_proj.weight
            attn_output.weight = self_attn.o_proj.weight
        """),
        *MLP,
    ),
)


def _read_quadruple(file: Reading) -> None:
    file.config.update(n_layer=file.config.pop("num_hidden_layers"), n_inner=None)
    if file.count("feed_forward_length") != 4 * file.count("embedding_length"):
        file.config["n_inner"] = file.count("feed_forward_length")


def _write_inner(out: Writing) -> None:
    out.put("feed_forward_length", out.facts.count("n_inner", default=4 * out.facts.hidden))


CODESHELL = Architecture(
    "codeshell",
    (Kind("codeshell", "CodeShellForCausalLM"),),
    (
        Same("context_length", ("n_positions", "max_position_embeddings"), default=8192, needed=True),
        Same("embedding_length", ("n_embd", "hidden_size"), needed=True),
        Same("attention.head_count", ("n_head", "num_attention_heads"), needed=True),
        Same("attention.head_count_kv", ("num_query_groups",), default=8, needed=True),
        Same(LAYER_NORM, ("layer_norm_epsilon",), default=1e-5, needed=True),
        Special(_read_quadruple, _write_inner),
        Written("rope.freq_base", lambda _: 10000.0, lambda _: 10000.0),
        Written("rope.scaling.type", lambda _: "linear"),
        Written("rope.scaling.factor", lambda _: 1.0, lambda _: 1.0),
        Always("rope_scaling", None),
        Always("activation_function", "gelu_pytorch_tanh", unless=("gelu", "gelu_fast", "gelu_new")),
        Always("scale_attn_weights", True),
        Always("group_query_attention", True),
    ),
    rules("""
        token_embd.* = transformer.wte.*
        output_norm.* = transformer.ln_f.*
        output.* = lm_head.*
    """),
    (
        *rules("""
            attn_norm.* = ln_1.*
            attn_qkv.* = attn.c_attn.*
            attn_output.* = attn.c_proj.*
            ffn_norm.* = ln_2.*
            ffn_up.* = mlp.c_fc.*
            ffn_down.* = mlp.c_proj.*
        """),
    ),
    home="transformer.h.{}.",
)
