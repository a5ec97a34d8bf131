"""Other names of config fields: those that transformers' own classes take for the same thing.

The table is transformers' `attribute_map` of each text model (5.23): either name may stand in a file, and a
family reads whichever it likes. A file with both names must not say two things.
"""

from collections.abc import Mapping
from typing import Any

from runtime.errors import UnsupportedModel
from runtime.quoting import quoted

_T5 = {
    "hidden_size": "d_model",
    "num_attention_heads": "num_heads",
    "num_hidden_layers": "num_layers",
    "head_dim": "d_kv",
}

_BART = {
    "hidden_size": "d_model",
    "num_attention_heads": "encoder_attention_heads",
    "num_hidden_layers": "encoder_layers",
}

_GPT = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}
_JAIS = {
    **_GPT,
    "embeddings_scale": "mup_embeddings_scale",
    "scale_qk_dot_by_d": "mup_scale_qk_dot_by_d",
}
_REFINED_WEB = {
    "hidden_size": "n_embed",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "num_kv_heads": "n_head_kv",
}

_KIMI = {
    "max_position_embeddings": "model_max_length",
    "norm_topk_prob": "moe_renormalize",
    "n_group": "num_expert_group",
    "num_local_experts": "num_experts",
    "num_experts_per_tok": "num_experts_per_token",
    "n_shared_experts": "num_shared_experts",
}

_SARVAM = {
    "num_experts": "n_routed_experts",
    "num_local_experts": "n_routed_experts",
    "num_shared_experts": "n_shared_experts",
    "num_mtp_layers": "num_nextn_predict_layers",
}
_INKLING = {
    "sliding_window": "sliding_window_size",
    "num_local_experts": "n_routed_experts",
    "sconv_kernel_size": "conv_kernel_size",
    "model_max_length": "max_position_embeddings",
}
_INKLING2 = {
    **_INKLING,
    "intermediate_size": "moe_intermediate_size",
    "routed_scaling_factor": "route_scale",
}

_LONGCAT = {
    "num_local_experts": "n_routed_experts",
    "num_experts_per_tok": "moe_topk",
    "intermediate_size": "ffn_hidden_size",
    "moe_intermediate_size": "expert_ffn_hidden_size",
}

_MINIMAX_EARLY = {
    "num_experts": "num_local_experts",
    "full_attn_alpha_factor": "layernorm_full_attention_alpha",
    "full_attn_beta_factor": "layernorm_full_attention_beta",
    "linear_attn_alpha_factor": "layernorm_linear_attention_alpha",
    "linear_attn_beta_factor": "layernorm_linear_attention_beta",
    "mlp_alpha_factor": "layernorm_mlp_alpha",
    "mlp_beta_factor": "layernorm_mlp_beta",
}

# model_type -> {other name: the name that transformers stores}
ALIASES: dict[str, dict[str, str]] = {
    "RefinedWeb": _REFINED_WEB,
    "RefinedWebModel": _REFINED_WEB,
    "axk1": {"num_local_experts": "n_routed_experts"},
    "axk2": {"num_local_experts": "n_routed_experts"},
    "bailing_hybrid": {**_KIMI, "num_mtp_layers": "num_nextn_predict_layers"},
    **dict.fromkeys(
        (
            *("bart", "blenderbot", "blenderbot-small", "m2m_100", "marian", "mbart", "mvp", "pegasus"),
            "plbart",
        ),
        _BART,
    ),
    "bloom": {
        "hidden_size": "n_embed",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
    },
    "chatglm": {
        "vocab_size": "padded_vocab_size",
        "num_hidden_layers": "num_layers",
        "intermediate_size": "ffn_hidden_size",
        "num_key_value_heads": "multi_query_group_num",
        "head_dim": "kv_channels",
        "rms_norm_eps": "layernorm_epsilon",
        "max_position_embeddings": "seq_length",
        "attention_bias": "add_qkv_bias",
    },
    "codegen": _GPT,
    "codeshell": _GPT,
    "dbrx": {
        "hidden_size": "d_model",
        "max_position_embeddings": "max_seq_len",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
    },
    "deepseek_v2": {"num_experts": "n_routed_experts"},
    "deepseek_v3": {"num_local_experts": "n_routed_experts", "num_mtp_layers": "num_nextn_predict_layers"},
    "deepseek_v32": {"num_local_experts": "n_routed_experts"},
    "deepseek_v4": {"num_local_experts": "n_routed_experts", "intermediate_size": "moe_intermediate_size"},
    "distilbert": {
        "hidden_size": "dim",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
    },
    "dots3_note_text": {"num_local_experts": "n_routed_experts"},
    "exaone": {
        "num_layers": "num_hidden_layers",
        "layer_norm_epsilon": "rms_norm_eps",
        "activation_function": "hidden_act",
    },
    "falcon": {"hidden_size": "n_embed"},
    "flex_olmo": {"num_local_experts": "num_experts"},
    "glm4_moe": {"num_local_experts": "n_routed_experts", "num_mtp_layers": "num_nextn_predict_layers"},
    "glm4_moe_lite": {"num_local_experts": "n_routed_experts", "head_dim": "qk_rope_head_dim"},
    "glm5_next": {"num_local_experts": "n_routed_experts"},
    "glm5_next_text": {"num_local_experts": "n_routed_experts"},
    "glm_moe_dsa": {"num_local_experts": "n_routed_experts"},
    "gpt2": _GPT,
    "gpt_bigcode": _GPT,
    "gpt_neo": {"num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"},
    "gpt_oss": {"num_experts": "num_local_experts"},
    "gptj": _GPT,
    "granitemoehybrid": {"layers_block_type": "layer_types"},
    "hunyuan_v1_moe": {"num_experts_per_tok": "moe_topk", "num_local_experts": "num_experts"},
    "hy_v3": {"num_local_experts": "num_experts"},
    "hy_v4": {"num_local_experts": "n_routed_experts"},
    "hy_v4_vl_text": {"num_local_experts": "n_routed_experts"},
    "inkling_text": {"embedding_multiplier": "logits_mup_width_multiplier", **_INKLING},
    "inkling2_text": _INKLING2,
    "inkling2_loop_text": _INKLING2,
    "jais": _JAIS,
    "btlm": _JAIS,
    "jamba": {"num_local_experts": "num_experts"},
    "jetmoe": {"head_dim": "kv_channels"},
    "kimi_k3": _KIMI,
    "kimi_linear": _KIMI,
    "kolibri1": {"num_experts": "num_local_experts"},
    "lfm3": {"rms_norm_eps": "norm_eps"},
    "lille-130m": {
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "num_key_value_heads": "n_kv_heads",
        "max_position_embeddings": "block_size",
    },
    "longcat_flash": _LONGCAT,
    "longcat_flash_ngram": _LONGCAT,
    "mellum": {"num_experts": "num_local_experts", "num_mtp_layers": "num_nextn_predict_layers"},
    "mimo_v2": {"num_local_experts": "n_routed_experts"},
    "mimo_v2_flash": {"num_local_experts": "n_routed_experts"},
    "minimax": {"num_experts": "num_local_experts"},
    "minimax_m1": _MINIMAX_EARLY,
    "minimax_text_01": _MINIMAX_EARLY,
    "minimax_m3_vl_text": {"num_experts": "num_local_experts"},
    "mistral_large4_text": {"num_local_experts": "n_routed_experts"},
    "mixtral": {"num_experts": "num_local_experts"},
    "molmo2_text": {"qkv_bias": "attention_bias", "layer_norm_eps": "rms_norm_eps"},
    "mt5": _T5,
    "mpt": {
        "hidden_size": "d_model",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
    },
    "nemotron_h": {"layer_types": "layers_block_type", "num_local_experts": "n_routed_experts"},
    "olmoe": {"num_local_experts": "num_experts"},
    "openai-gpt": _GPT,
    "openelm": {
        "hidden_size": "model_dim",
        "num_hidden_layers": "num_transformer_layers",
        "max_position_embeddings": "max_context_length",
        "rope_theta": "rope_freq_constant",
        "tie_word_embeddings": "share_input_output_layers",
    },
    "qwen3_moe": {"num_experts": "num_local_experts"},
    "qwen3_vl_moe": {"num_experts": "num_local_experts"},
    "qwen3_vl_moe_text": {"num_experts": "num_local_experts"},
    "recurrent_gemma": {"sliding_window": "attention_window_size", "layer_types": "layers_block_type"},
    "sarvam_mla": _SARVAM,
    "sarvam_moe": {**_SARVAM, "use_qkv_bias": "attention_bias"},
    "stablelm_epoch": {"layer_norm_eps": "norm_eps", "partial_rotary_factor": "rope_pct"},
    "step3p5": {
        "num_local_experts": "n_routed_experts",
        "num_attention_groups": "num_key_value_heads",
        "moe_num_experts": "n_routed_experts",
        "moe_top_k": "num_experts_per_tok",
        "share_expert_dims": "share_expert_dim",
        "num_mtp_layers": "num_nextn_predict_layers",
    },
    "t5": _T5,
    "umt5": _T5,
    "xglm": {
        "num_attention_heads": "attention_heads",
        "hidden_size": "d_model",
        "num_hidden_layers": "num_layers",
    },
    "zamba": {"layer_types": "layers_block_type", "head_dim": "attention_head_dim"},
    "zamba2": {"layer_types": "layers_block_type", "head_dim": "attention_head_dim"},
}
# What kinds of layers were called before transformers 5.
_KINDS = {
    "mamba": "linear_attention",
    "attention": "full_attention",
    "deepseek_sparse_attention": "indexed_attention",
}


def one_spelling(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The fields, each under every name it has. UnsupportedModel where two names say different things."""
    out = dict(raw)
    kind = raw.get("model_type")
    names = ALIASES.get(kind, {}) if isinstance(kind, str) else {}
    for other, name in names.items():
        here, there = raw.get(other), raw.get(name)
        if here is not None and there is not None and _plain(here) != _plain(there):
            raise UnsupportedModel(
                f"config.json: {other} is {quoted(here)} and {name} is {quoted(there)}, "
                "and both are names of one thing"
            )
        if other in raw and there is None:
            out[name] = here
        elif name in raw and here is None:
            out[other] = there
    return out


def written_as(raw: Mapping[str, Any], name: str) -> str:
    """Under which of its names a file has this field; `name` where it has none or that one."""
    kind = raw.get("model_type")
    names = ALIASES.get(kind, {}) if isinstance(kind, str) else {}
    others = [other for other, stored in names.items() if stored == name] + [names.get(name, name)]
    return next((other for other in others if other in raw), name) if name not in raw else name


def modern_kind(kind: Any) -> Any:
    """The present name of a kind of layer; other things as they are."""
    return _KINDS.get(kind, kind) if isinstance(kind, str) else kind


def _plain(value: Any) -> Any:
    return [modern_kind(kind) for kind in value] if isinstance(value, list) else value
