"""GPT-2, GPT-NeoX and GPT-OSS."""

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.moe import expert_settings, experts
from modelkit.source.gguf.architectures.parts import (
    ATTENTION,
    CONTEXT,
    FUSED_QKV,
    HEAD_COUNT,
    HIDDEN,
    INNER,
    LAYER_NORM,
    TOP,
    bias_flag,
    decoder,
    rule,
    rules,
)
from modelkit.source.gguf.architectures.rope import Rope, rope_block
from modelkit.source.gguf.architectures.rules import Regrouped
from modelkit.source.gguf.architectures.settings import Always, Same, Setting, Special, Written
from modelkit.source.gguf.architectures.windows import windows


def _read_gpt2(file: Reading) -> None:
    """The config has names of its own for what all others call the same."""
    config = file.config
    hidden, inner = config["n_embd"], file.count("feed_forward_length", 0)
    config["n_layer"] = config.pop("num_hidden_layers")
    config["n_inner"] = None if inner in (0, 4 * hidden) else inner


GPT2 = Architecture(
    "gpt2",
    (Kind("gpt2", "GPT2LMHeadModel"),),
    (
        Same(
            "context_length", ("n_positions", "n_ctx", "max_position_embeddings"), default=1024, needed=True
        ),
        Same("embedding_length", ("n_embd", "hidden_size"), needed=True),
        Same("attention.head_count", ("n_head", "num_attention_heads"), needed=True),
        Same(LAYER_NORM, ("layer_norm_epsilon",), default=1e-5, needed=True),
        Special(
            _read_gpt2,
            lambda out: out.put(
                "feed_forward_length", out.facts.count("n_inner", default=4 * out.facts.hidden)
            ),
        ),
        Always("activation_function", "gelu_new", unless=("gelu_pytorch_tanh",)),
        Always("scale_attn_weights", True),
        Always("scale_attn_by_inverse_layer_idx", False),
    ),
    rules("""
        token_embd.* = model.wte.*
        position_embd.weight = model.wpe.weight
        output_norm.* = model.ln_f.*
        output.weight = lm_head.weight
    """),
    rules("""
        attn_norm.* = ln_1.*
        attn_qkv.* = attn.c_attn.*
        attn_output.* = attn.c_proj.*
        ffn_norm.* = ln_2.*
        ffn_up.* = mlp.c_fc.*
        ffn_down.* = mlp.c_proj.*
    """),
    home="model.h.{}.",
)

# [query, key, value][head] in GGUF, [head][query, key, value] in the checkpoint.
BY_HEAD = Regrouped(lambda facts, _: (3, facts.heads, -1), (1, 0, 2))


def _rotated(out: Writing) -> int:
    return int(rope_block(out.facts).get("partial_rotary_factor", 0.25) * out.facts.head_dim)


GPTNEOX = Architecture(
    "gptneox",
    (Kind("gpt_neox", "GPTNeoXForCausalLM"),),
    (
        CONTEXT,
        HIDDEN,
        INNER,
        HEAD_COUNT,
        Same(LAYER_NORM, ("layer_norm_eps",), default=1e-5, needed=True),
        Same("use_parallel_residual", ("use_parallel_residual",), default=True, absent=True),
        Rope(partial=0.25, dimensions=False, silent=True),
        Written("rope.dimension_count", _rotated),
        Always("hidden_act", "gelu", unless=("gelu_fast", "gelu_new", "gelu_pytorch_tanh")),
        bias_flag("attention_bias", "attn_qkv"),
    ),
    rules("""
        token_embd.* = gpt_neox.embed_in.*
        output_norm.* = gpt_neox.final_layer_norm.*
        output.* = embed_out.*
    """),
    (
        *rules("""
            attn_norm.* = input_layernorm.*
            ffn_norm.* = post_attention_layernorm.*
            attn_output.* = attention.dense.*
            ffn_up.* = mlp.dense_h_to_4h.*
            ffn_down.* = mlp.dense_4h_to_h.*
        """),
        rule("attn_qkv.*", "attention.query_key_value.*", BY_HEAD),
    ),
    home="gpt_neox.layers.{}.",
)


def _whole_band(file: Reading) -> None:
    """llama.cpp does not round where YaRN's correction begins and ends in this architecture."""
    block = file.config["rope_parameters"]
    if block["rope_type"] == "yarn":
        block["truncate"] = False


_SETTINGS: tuple[Setting, ...] = decoder(
    Rope(theta=150000.0, dimensions=False),
    Special(_whole_band),
    *expert_settings("num_local_experts", "num_experts"),
    Written("expert_feed_forward_length", lambda out: out.facts.get("intermediate_size")),
    *windows(period=2, pattern=False),
    Always("swiglu_limit", 7.0),
    Always("swiglu_alpha", 1.702),
    bias_flag("attention_bias", "attn_q"),
)

GPT_OSS = Architecture(
    "gpt-oss",
    (Kind("gpt_oss", "GptOssForCausalLM"),),
    _SETTINGS,
    TOP,
    (
        rule("attn_norm.*", "input_layernorm.*"),
        rule("post_attention_norm.*", "post_attention_layernorm.*"),
        *ATTENTION,
        FUSED_QKV,
        rule("attn_sinks.weight", "self_attn.sinks"),
        rule("ffn_gate_inp.*", "mlp.router.*"),
        *experts("mlp.experts"),
    ),
)
