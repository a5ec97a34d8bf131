"""Tiny checkpoints that llama.cpp converts: those of the entries, with the values that its program takes for
granted.

A file of GGUF does not hold what llama.cpp computes alike for all models of an architecture, so a checkpoint
that has another value there could not come back. Each row: the entry that it begins with, and fields that
differ.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tests.support.entries.minimax_m3 import ENTRIES as M3

ABSENT = object()
"""The field is left out, so that transformers' default holds."""
FULL = ["full_attention"]
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale_all_dim": 0.8,
    "original_max_position_embeddings": 64,
}
_TWO_LISTS = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.1, 1.3, 1.2],
    "long_factor": [1.0, 1.5, 3.0, 9.0],
    "original_max_position_embeddings": 256,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 2.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_SHARPENED = _YARN | {"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}

_MINIMAX_M3 = M3["minimax_m3_wrapped"][1]["text_config"] | {
    "layer_types": ["full_attention", "minimax_m3_sparse"]
}

GGUF_ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "spark2_5": ("spark2_5", {}),
    "ouro": ("ouro", {}),
    "smallthinker": (
        "smallthinker",
        {
            "rope_layout": [0, 1, 1, 1, 0],
            "sliding_window_layout": [0, 1, 1, 1, 0],
            "sliding_window_size": 4096,
        },
    ),
    "smallthinker_plain": ("smallthinker_plain", {}),
    "grove_moe": ("grove_moe", {"head_dim": 128}),
    "arctic": ("arctic", {}),
    "orion": ("orion", {}),
    "plm": ("plm", {}),
    "codeshell": ("codeshell", {}),
    "jina_bert_v2": ("jina_bert_v2", {}),
    "nanbeige": ("nanbeige", {}),
    "granite_swa": ("granite_swa", {"layer_rope_theta": [0.0, 10000.0, 10000.0, 10000.0, 0.0]}),
    "granite_swa_biases": ("granite_swa_biases", {}),
    "granitemoe_swa": ("granitemoe_swa", {"layer_rope_theta": ABSENT}),
    "hy_v3": ("hy_v3", {}),
    "hy_v4": ("hy_v4", {}),
    "hy_v3_biases": ("hy_v3_biases", {}),
    "minimax_01": (
        "minimax",
        {
            "rotary_dim": 8,
            "num_hidden_layers": 9,
            "layer_types": ["linear_attention"] * 7 + FULL + ["linear_attention"],
            **{f"{part}_alpha_factor": 1.5 for part in ("full_attn", "linear_attn", "mlp")},
            **{f"{part}_beta_factor": 1.0 for part in ("full_attn", "linear_attn", "mlp")},
        },
    ),
    "youtu": ("youtu", {"rope_parameters": _YARN | {"mscale": 0.8}}),
    "youtu_plain": (
        "youtu",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1.6e6}, "q_lora_rank": None},
    ),
    "minicpm3": (
        "minicpm3",
        {"scale_emb": 12, "dim_model_base": 256, "v_head_dim": 16, "rope_parameters": _TWO_LISTS},
    ),
    "llama": ("llama", {}),
    "llama_biases_tied": ("llama_biases_tied", {}),
    "llama_llama3_rope": ("llama_llama3_rope", {}),
    "llama_linear_rope": ("llama_linear_rope", {}),
    "llama_yarn_rope": ("llama_yarn_rope", {}),
    "mixtral": ("mixtral", {"sliding_window": None}),
    "ministral3": ("ministral3", {"sliding_window": None}),
    "smollm3": ("smollm3", {"no_rope_layer_interval": 4, "no_rope_layers": ABSENT}),
    "apertus": ("apertus", {}),
    "baichuan": ("baichuan", {"num_hidden_layers": 32}),
    "baichuan_alibi": ("baichuan_alibi", {"num_hidden_layers": 40}),
    "decilm": ("decilm", {}),
    "plamo": (
        "plamo",
        {"hidden_size": 80, "num_attention_heads": 10, "n_shared_head": 2, "max_position_embeddings": 4096},
    ),
    "granite": ("granite", {}),
    "granitemoe": ("granitemoe", {}),
    "granitemoeshared": ("granitemoeshared", {}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {}),
    "qwen2_moe": ("qwen2_moe", {"use_sliding_window": False}),
    "qwen3_moe": ("qwen3_moe", {"mlp_only_layers": [], "decoder_sparse_step": 1, "norm_topk_prob": True}),
    "mellum": ("mellum_plain", {}),
    "qwen3_5": ("qwen3_5", {}),
    "qwen3_5_moe": ("qwen3_5_moe", {}),
    "qwen3_next": ("qwen3_next", {"norm_topk_prob": True}),
    "qwen4_exp": (
        "qwen4_exp",
        {
            "ple_layer_ids": [2],
            "eos_token_id": 2,
            "output_gate_type": "sigmoid",
            "attention_bias": False,
            "ngram_vocab_size_base": 41,
            "make_ngram_vocab_size_divisible_by": 128,
            "split_ngram_parts": 512,
        },
    ),
    "gemma": ("gemma", {}),
    "gemma2": ("gemma2", {"query_pre_attn_scalar": 32}),
    "gemma3": (
        "gemma3_text",
        {
            "query_pre_attn_scalar": 32,
            "num_hidden_layers": 6,
            "layer_types": None,
            "sliding_window_pattern": 6,
        },
    ),
    "phi": ("phi", {}),
    "phi3_window": ("phi3_window", {}),
    "phi3_longrope": ("phi3_longrope_long", {}),
    "arcee": ("arcee", {}),
    "jais2": ("jais2", {}),
    "openelm": ("openelm", {}),
    "olmo": ("olmo", {}),
    "olmo_clipped": ("olmo_clipped", {"attention_bias": False}),
    "olmo2": ("olmo2", {}),
    "olmo3": ("olmo3", {}),
    "olmoe": ("olmoe", {"clip_qkv": None}),
    "seed_oss": ("seed_oss", {}),
    "starcoder2": ("starcoder2", {"sliding_window": None}),
    "stablelm": ("stablelm", {}),
    "exaone4": ("exaone4", {}),
    "nemotron": ("nemotron", {"head_dim": 16}),
    "nemotron_nas": ("nemotron_nas_tied", {}),
    "hunyuan": ("hunyuan_biases", {}),
    "hunyuan_moe": ("hunyuan_moe", {"moe_topk": 3, "head_dim": 16}),
    "glm": ("glm", {"rms_norm_eps": 1e-5, "head_dim": 16, "max_position_embeddings": 64}),
    "solar_open": ("solar_open", {}),
    "glm4": ("glm4", {}),
    "glm_ocr": ("glm_ocr", {}),
    "ernie4_5": ("ernie4_5", {}),
    "cohere": ("cohere", {}),
    "glm4_moe": ("glm4_moe", {"num_nextn_predict_layers": 0}),
    "deepseek": ("deepseek", {}),
    "bailing_moe": ("bailing_moe", {"norm_head": False}),
    "bailing_moe_v2": ("bailing_moe_v2", {}),
    "bailing_hybrid": ("bailing_hybrid", {}),
    "dots1": ("dots1", {"sliding_window": None, "layer_types": FULL * 4}),
    "exaone_moe": ("exaone_moe", {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}),
    "afmoe": (
        "afmoe",
        {"attention_bias": False, "global_attn_every_n_layers": 4, "mup_enabled": True},
    ),
    "ernie4_5_moe": ("ernie4_5_moe", {"intermediate_size": 128}),
    "minimax_m2": ("minimax_m2", {}),
    "minimax_m3": ("minimax_m3_wrapped", {"text_config": _MINIMAX_M3}),
    "cohere2_moe": ("cohere2_moe", {}),
    "gpt_oss": ("gpt_oss", {"swiglu_limit": 7.0}),
    "llama4": (
        "llama4_text",
        {"attention_chunk_size": 8192, "floor_scale": 8192, "attn_scale": 0.1},
    ),
    "gpt2": ("gpt2", {}),
    "gpt_neox": (
        "gpt_neox",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}},
    ),
    "falcon_7b": ("falcon_7b", {"max_position_embeddings": 2048}),
    "falcon_11b": ("falcon_11b", {"ffn_hidden_size": None, "max_position_embeddings": 2048}),
    "falcon_40b": (
        "falcon_40b",
        {"bias": False, "ffn_hidden_size": None, "max_position_embeddings": 2048},
    ),
    "bloom": ("bloom", {"seq_length": 2048}),
    "dbrx": ("dbrx", {}),
    "plamo2": ("plamo2", {"full_attention_idx": [1, 3]}),
    "plamo3": ("plamo3", {}),
    "rwkv6": ("rwkv6", {}),
    "rwkv7": ("rwkv7", {}),
    "step3p5": ("step3p5", {"rope_scaling": _LLAMA3}),
    "mpt": ("mpt_clipped", {"attn_config": {"clip_qkv": 0.4, "alibi_bias_max": 16}}),
    "gpt_bigcode": ("gpt_bigcode", {}),
    "muse_glimmer": ("muse_glimmer", {}),
    "lfm2": ("lfm2", {}),
    "lfm2_moe": ("lfm2_moe", {"routed_scaling_factor": 1.0}),
    "deepseek_v2": ("deepseek_v2", {}),
    "deepseek_v2_lite": ("deepseek_v2_lite", {}),
    "deepseek_v3": (
        "deepseek_v3",
        {"num_nextn_predict_layers": 0, "rope_parameters": {**_YARN, "mscale": 0.8}},
    ),
    "deepseek_v32": ("deepseek_v32", {}),
    "glm_moe_dsa": ("glm_moe_dsa", {}),
    "glm_moe_dsa_shared": ("glm_moe_dsa_shared", {"rope_parameters": {**_YARN, "mscale": 0.8}}),
    "glm4_moe_lite": ("glm4_moe_lite", {}),
    "glm5_next": ("glm5_next", {}),
    "gemma3n": ("gemma3n", {"altup_num_inputs": 4, "vocab_size_per_layer_input": 160}),
    "gemma4": ("gemma4_text", {}),
    "gemma4_moe": ("gemma4_moe", {}),
    "gemma4_keys_as_values": ("gemma4_keys_as_values", {}),
    "mamba": ("mamba", {"expand": 2, "intermediate_size": 128}),
    "falcon_mamba": ("falcon_mamba", {"expand": 2, "intermediate_size": 128}),
    "mamba2": ("mamba2_groups", {"hidden_size": 64, "expand": 2, "intermediate_size": 128}),
    "falcon_h1": ("falcon_h1", {}),
    "jamba": ("jamba", {}),
    "nemotron_h": ("nemotron_h", {}),
    "granitemoehybrid": ("granitemoehybrid", {}),
    "bamba": ("bamba", {}),
    "laguna": ("laguna", {"layer_types": [*FULL, *["sliding_attention"] * 3]}),
    "mimo_v2_flash": ("mimo_v2_flash", {}),
    "phimoe": (
        "phimoe",
        {
            "router_jitter_noise": 0.01,
            "original_max_position_embeddings": 12,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "original_max_position_embeddings": 12,
                "long_factor": [1.0, 1.5, 2.0, 3.0, 5.0, 9.0, 14.0, 20.0],
                "short_factor": [1.0, 1.1, 1.3, 1.2, 1.4, 1.5, 1.1, 1.0],
                "long_mscale": 1.49383521080017,
                "short_mscale": 1.49383521080017,
            },
        },
    ),
    "qwen2_5_vl": ("qwen2_5_vl", {}),
    "qwen3_vl": ("qwen3_vl", {}),
    "cohere2": ("cohere2", {"layer_types": [*["sliding_attention"] * 3, *FULL]}),
    "stablelm_heads": ("stablelm_parallel", {}),
    "mistral4": ("mistral4", {"rope_parameters": _SHARPENED}),
    "mistral4_lite": (
        "mistral4",
        {
            "rope_parameters": _SHARPENED,
            "q_lora_rank": None,
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": 0,
        },
    ),
    "kimi_k3": ("kimi_k3", {}),
    "kimi_linear": ("kimi_linear", {"n_group": 1, "topk_group": 1}),
    "t5": ("t5", {"relative_attention_max_distance": 128, "num_decoder_layers": 2}),
    "t5_v1_1": ("t5_v1_1", {"num_decoder_layers": 3}),
    "bert": ("bert", {}),
    "distilbert": ("distilbert", {}),
    "modernbert": ("modernbert", {}),
    "eurobert": ("eurobert", {"classifier_pooling": "mean"}),
    "qwen3_both_ways": ("qwen3_both_ways", {}),
    "embedding_gemma": (
        "embedding_gemma",
        {"query_pre_attn_scalar": 24, "num_hidden_layers": 6, "layer_types": None},
    ),
    "umt5": ("umt5", {"relative_attention_max_distance": 128, "num_decoder_layers": 3}),
}


# With the draft heads of tests/data/heads, as published files name them.
WITH_HEAD: dict[str, str] = {
    "qwen3_5_head": "qwen3_5",
    "qwen3_5_moe_head": "qwen3_5_moe",
    "glm4_moe_head": "glm4_moe",
    "glm4_moe_lite_head": "glm4_moe_lite",
}

# Written with options of the converter that put matrices together: (entry, options). They are only read.
FUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "llama_fused": ("llama", {"fuse_qkv": True}),
    "glm_fused": ("glm", {"fuse_qkv": True}),
    "qwen2_fused": ("qwen2", {"fuse_qkv": True}),
    "qwen3_5_moe_fused": ("qwen3_5_moe", {"fuse_gate_up_exps": True}),
}

# Text towers that are read as the plain model; they are written as that.
AS_PLAIN = {"qwen2_5_vl", "qwen3_vl"}

# Whose tensors come back as others that compute the same.
AS_PRODUCTS = {"kimi_k3"}

# Ends or beginnings of names of tensors whose numbers come out of functions.
INEXACT = (".ssm_a", "rope_freqs.weight")

# Fields of a family's Config that a file of GGUF does not hold.
LOST: dict[str, set[str]] = {
    "nemotron_h": {"context_length"},
    "granitemoehybrid": {"context_length"},
    "falcon_h1": {"times"},
    "gemma4_assistant": {"tower"},  # a size of vectors per layer, which it has not
}

OTHERWISE: dict[str, set[str]] = {
    # 0 for Mamba's layers, and with no heads in the first llama.cpp turns nothing, and its kernel never ends
    "plamo2": {"attention.head_count"},
}
"""Keys that we write with another value than the converter."""

# Keys that we write and the converter does not, for configs of transformers 5.
MORE: dict[str, set[str]] = (
    {
        name: {"expert_gating_func"}
        for name in (
            "bailing_hybrid",
            "deepseek_v2",
            "deepseek_v2_lite",
            "deepseek_v3",
            "deepseek_v32",
            "glm4_moe_lite",
            "glm4_moe_lite_head",
            "glm_moe_dsa",
            "glm_moe_dsa_shared",
            "mimo_v2_flash",
            "minimax_m2",
        )
    }
    | {
        "modernbert": {"attention.layer_norm_epsilon"},
        "minicpm3": {
            "attention.value_length",
            "rope.freq_base",
            "rope.scaling.attn_factor",
            "rope.scaling.original_context_length",
        },
    }
    | {
        name: {"attention.temperature_length", "attention.temperature_scale", "expert_gating_func"}
        for name in ("mistral4", "mistral4_lite")
    }
)

Fields = Mapping[str, Any]


def _granite(config: Fields) -> dict[str, Any]:
    words = {"linear_attention": "mamba", "full_attention": "attention"}
    return {"layer_types": [words[kind] for kind in config["layer_types"]]}


def _minimax(config: Fields) -> dict[str, Any]:
    alpha, kinds = config["mlp_alpha_factor"], ("full_attention", "linear_attention", "mlp")
    names = {f"layernorm_{kind}": kind for kind in kinds}
    return {f"{name}_alpha": alpha for name in names} | {f"{name}_beta": 1.0 for name in names}


def _minimax_m3(config: Fields) -> dict[str, Any]:
    """The block and the list that published files have."""
    text = config["text_config"]
    sparse = {
        "sparse_num_index_heads": text["index_n_heads"],
        "sparse_index_dim": text["index_head_dim"],
        "sparse_topk_blocks": text["index_topk_blocks"],
        "sparse_block_size": text["index_block_size"],
        "sparse_local_block": text["index_local_blocks"],
        "sparse_attention_freq": [0, 1],
    }
    lists = {"sparse_attention_config": sparse, "moe_layer_freq": [0, 1]}
    return {"text_config": text | lists | {"n_shared_experts": 1, "scoring_func": "sigmoid"}}


def _mimo(config: Fields) -> dict[str, Any]:
    full, window = (config["rope_parameters"][kind] for kind in ("full_attention", "sliding_attention"))
    return {
        "swa_head_dim": config["head_dim"],
        "swa_num_attention_heads": config["num_attention_heads"],
        "swa_v_head_dim": config["v_head_dim"],
        "swa_num_key_value_heads": 2 * config["num_key_value_heads"],
        "topk_method": "noaux_tc",
        "hybrid_layer_pattern": [int(kind == "sliding_attention") for kind in config["layer_types"]],
        "moe_layer_freq": [int(kind == "sparse") for kind in config["mlp_layer_types"]],
        "layernorm_epsilon": config["rms_norm_eps"],
        "rope_theta": full["rope_theta"],
        "swa_rope_theta": window["rope_theta"],
        "partial_rotary_factor": full["partial_rotary_factor"],
    }


def _kimi(config: Fields) -> dict[str, Any]:
    """The block that published files have, which counts layers from 1."""
    full = [i + 1 for i, kind in enumerate(config["layer_types"]) if kind == "full_attention"]
    return {
        "linear_attn_config": {
            "full_attn_layers": full,
            "head_dim": config["linear_head_dim"],
            "num_heads": config["linear_num_heads"],
            "short_conv_kernel_size": config["linear_conv_kernel_dim"],
        },
        "first_k_dense_replace": config["mlp_layer_types"].count("dense"),
        "moe_router_activation_func": "sigmoid",
    }


def _glm(config: Fields) -> dict[str, Any]:
    """Of the text model, with the block of published files."""
    text = config["text_config"]
    block = {
        "num_heads": text["linear_num_heads"],
        "head_dim": text["linear_head_dim"],
        "short_conv_kernel_size": text["linear_conv_kernel_dim"],
        "gate_lower_bound": text["linear_lower_bound"],
    }
    dense = text["mlp_layer_types"].count("dense")
    more = {"linear_attn_config": block, "first_k_dense_replace": dense, "mla_use_nope": True}
    return {"text_config": {**text, **more}}


def _ling(config: Fields) -> dict[str, Any]:
    """Names of published files, whose architecture is another, too."""
    return {
        "architectures": ["BailingMoeV3ForCausalLM"],
        "no_kda_lora": True,
        "gated_attention_proj_granularity_type": "head_wise",
        "head_dim": config["linear_head_dim"],
        "norm_topk_prob": config["moe_renormalize"],
        "n_group": config["num_expert_group"],
        "moe_shared_expert_intermediate_size": config["moe_intermediate_size"] * config["num_shared_experts"],
        "first_k_dense_replace": config["mlp_layer_types"].count("dense"),
    }


def _hunyuan(config: Fields) -> dict[str, Any]:
    names = {"moe_topk": config["moe_topk"], "num_shared_expert": 1}
    names["moe_intermediate_size"] = config["intermediate_size"]
    return {name: [value] * config["num_hidden_layers"] for name, value in names.items()}


def _share(config: Fields) -> dict[str, Any]:
    return {"rotary_pct": config["rope_parameters"].get("partial_rotary_factor", 1.0)}


# Older names of fields that the converter asks for, and files on the hub still have.
CONVERTER_FIELDS: dict[str, Callable[[Fields], dict[str, Any]]] = {
    "afmoe": lambda _: {"score_func": "sigmoid", "route_norm": True},
    "gpt2": lambda config: {"n_ctx": config["n_positions"]},
    "gpt_neox": _share,
    "falcon_7b": lambda _: {"num_kv_heads": 1},
    "cohere2": _share,
    "hunyuan_moe": _hunyuan,
    "solar_open": lambda _: {"partial_rotary_factor": 1.0},
    "granitemoehybrid": _granite,
    "minimax_01": _minimax,
    "minimax_m3": _minimax_m3,
    "granite_swa": lambda config: {"no_rope_layers": [int(bool(one)) for one in config["layer_rope_theta"]]},
    "bamba": lambda _: {"attn_rotary_emb": 8},
    "falcon_h1": lambda config: {"head_dim": 16, "norm_epsilon": config["rms_norm_eps"]},
    "glm4_moe_lite": lambda _: {"first_k_dense_replace": 1},
    "phimoe": lambda _: {"architectures": ["PhiMoEForCausalLM"]},
    "mimo_v2_flash": _mimo,
    "kimi_linear": _kimi,
    "bailing_hybrid": _ling,
    "glm5_next": _glm,
    "qwen4_exp": lambda _: {"layer_types": ["linear_attention"] * 3 + FULL},
    "t5_v1_1": lambda _: {"tie_word_embeddings": False},
}

# Names of tensors that published files have and transformers' class saves in another way.
RENAMED: dict[str, tuple[tuple[str, str], ...]] = {
    "hy_v4": (
        (".hc_pre.hc_head.", ".hc_head."),
        *((f".hc_pre.hc_{part}_layer.", f".hc_{part}_layer.hc_pre.") for part in ("attn", "mlp")),
        *((f".{home}.linear_gate.", f".{home}.gate_proj.") for home in ("mlp", "shared_experts")),
    ),
    "kimi_linear": tuple(
        (f".block_sparse_moe.{part}_proj.", f".mlp.{part}_proj.") for part in ("gate", "up", "down")
    ),
}

DRAFTS = {"gemma4_assistant": ("plain", "Gemma4AssistantForCausalLM")}
"""Of tests/data/special: the part of the record, and the class."""
