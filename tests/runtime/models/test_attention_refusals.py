"""What an attention family would compute wrongly is refused by name, before a weight is read."""

from typing import Any

import pytest

from runtime.errors import UnsupportedModel
from runtime.models import describe
from tests.support.parity import Reference


def _searched(*, ffn_mult: float | None = 1.0, **attention: Any) -> dict[str, Any]:
    return {"attention": {"n_heads_in_group": 2, **attention}, "ffn": {"ffn_mult": ffn_mult}}


_WINDOWED = (
    *("afmoe", "cohere2", "cohere2_moe", "gemma2", "gemma3_text", "gemma3n", "gemma4_text", "gpt_oss"),
    *("granite_swa", "granitemoe_swa", "laguna", "lfm3", "mellum", "mimo_v2_flash", "olmo3", "vaultgemma"),
)

_HALF: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
_OLDER = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
_UNCUT = {**_OLDER, "rope_type": "yarn", "rope_theta": 1e4, "truncate": False}

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("cwm", {"rope_parameters": _HALF}, "partial_rotary_factor is 0.5, and rope_type default"),
    ("glm4_moe_lite", {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
    ("deepseek_v4", {"rope_parameters": {"main": _OLDER, "compress": _HALF}}, "in place of type in main"),
    ("deepseek_v4", {"rope_parameters": {"main": _HALF, "compress": _OLDER}}, "in place of type in compress"),
    ("beam", {"rope_theta": 500.0}, "rope_theta"),
    ("beam", {"rope_parameters": {"sliding_attention": _HALF}}, "a block, or null, for full_attention"),
    ("spark2_5", {"headwise_attn_output_gate": False}, "headwise_attn_output_gate"),
    ("spark2_5", {"gate_attn_act_mode": "silu"}, "gate_attn_act_mode"),
    ("spark2_5", {"hidden_act": "silu"}, "hidden_act"),
    (
        "spark2_5",
        {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2.0}}},
        "rope_type default in full_attention",
    ),
    ("lara_mini", {"hidden_act": "gelu"}, "hidden_act"),
    ("apertus1p5_text_pruned", {"tie_word_embeddings": True}, "output_vocab_size"),
    ("apertus1p5_text", {"output_vocab_size": 161}, "output_vocab_size"),
    ("gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
    ("gemma3_text", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
    ("gemma2", {"hidden_activation": "mish"}, "hidden_activation"),
    ("gemma2", {"layer_types": ["chunked_attention"] * 4}, "layer_types"),
    ("gemma4_text", {"use_bidirectional_attention": "all"}, "use_bidirectional_attention"),
    ("gemma4_text", {"per_layer_config": {"1": {"sliding_window": 3}}}, "per_layer_config"),
    ("gemma4_text", {"num_kv_shared_layers": 5}, "num_kv_shared_layers"),
    ("gemma4_text", {"num_kv_shared_layers": 6}, "num_kv_shared_layers is 6, expected .* 0 to 5"),
    (
        "gemma4_text",
        {"per_layer_config": {"1": {"head_dim": 32}, "3": {"head_dim": 48}, "5": {"head_dim": 32}}},
        "layer 3 has 2 key heads of 48, and reads .* layer 1, which has 2 of 32",
    ),
    (
        "gemma4_text",
        {"per_layer_config": {"1": {"num_key_value_heads": 4}}},
        "layer 3 has 2 key heads of 16, and reads .* layer 1, which has 4 of 16",
    ),
    ("gemma3n", {"intermediate_size": [96, 96]}, "intermediate_size"),
    ("gemma3n", {"activation_sparsity_pattern": [0.9, 1.5, 0, 0, 0]}, "activation_sparsity_pattern"),
    ("phi3_window", {"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "rope type 'linear'"),
    (
        "phi3_longrope_long",
        {"rope_parameters": {"rope_type": "longrope", "short_factor": [1.0]}},
        "short_factor",
    ),
    ("baichuan", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_scaling"),
    ("baichuan", {"rope_theta": 500.0}, "rope_theta is 500"),
    ("decilm", {"num_key_value_heads_per_layer": [4, 3, 2, 1]}, "num_key_value_heads_per_layer is 3"),
    ("decilm", {"num_key_value_heads_per_layer": [4]}, "a number for each of 4 layers"),
    ("decilm", {"attention_bias": True}, "attention_bias"),
    ("baichuan2", {"tie_word_embeddings": True}, "tie_word_embeddings"),
    ("baichuan_m1", {"tie_word_embeddings": True}, "tie_word_embeddings"),
    ("baichuan_m1", {"conv_window": 3}, "conv_window is 3"),
    ("baichuan_m1", {"num_swa_attention_heads": 7, "num_swa_key_value_heads": 7}, "num_swa_attention_heads"),
    ("modernbert_decoder", {"mlp_bias": True}, "mlp_bias"),
    ("modernbert_decoder", {"head_dim": 8}, "head_dim is 8"),
    ("modernbert_decoder", {"local_attention": None, "sliding_window": None}, "local_attention is None"),
    ("bailing_hybrid", {"expert_swiglu_limit_list": [None, 7.0, None, 0.0]}, "expert_swiglu_limit_list"),
    ("glm5_next", {"text_config": {"qk_rope_head_dim": 8}}, "qk_rope_head_dim is 8"),
    ("kimi_k3", {"hidden_act": "silu"}, "hidden_act is 'silu'"),
    ("kimi_k3", {"attn_res_block_size": None}, "attn_res_block_size"),
    ("kimi_k3", {"mla_use_nope": False}, "mla_use_nope"),
    ("qwen4_exp", {"indexer_kv_heads": 2}, "indexer_kv_heads is 2"),
    ("qwen4_exp", {"indexer_budget": 10}, "a multiple of indexer_compress_ratio, 4"),
    ("qwen4_exp", {"indexer_head_dim": 4}, "at least the 8 elements"),
    ("qwen4_exp", {"ple_layer_ids": [4]}, "linear_attention alone"),
    ("qwen4_exp", {"ple_embed_dim": 36}, "a multiple of the 8 heads"),
    ("qwen4_exp", {"eos_token_id": None}, "eos_token_id is not an id"),
    ("mistral_large4", {"text_config": {"kv_source_layers": [0, 0, 0, 0, 1, 5]}}, "kv_source_layers"),
    ("mistral_large4", {"text_config": {"q_lora_rank": 8}}, "q_lora_rank is 8"),
    ("kolibri1", {"sliding_window": None}, "sliding_window is None"),
    ("deepseek_v4", {"num_key_value_heads": 2}, "num_key_value_heads is 2"),
    ("deepseek_v4", {"layer_types": None, "compress_ratios": [4, 16, 128]}, "'16', "),
    ("deepseek_v4", {"scoring_func": "softmax"}, "scoring_func is 'softmax'"),
    ("deepseek_v4", {"norm_topk_prob": False}, "norm_topk_prob is False"),
    ("deepseek_v4", {"n_shared_experts": 2}, "n_shared_experts is 2"),
    ("deepseek_v4", {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ("deepseek_v4", {"rope_parameters": {"main": {"rope_theta": 10000.0}}}, "each of main and compress"),
    ("inkling_text", {"shared_expert_sink": False}, "shared_expert_sink is False"),
    ("inkling_text", {"layer_types": ["full_attention"] * 4}, "layer_types"),
    ("inkling2_text", {"scoring_func": "softmax"}, "scoring_func is 'softmax'"),
    ("inkling2_text", {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ("inkling2_loop_text", {"loop_config": {"core_start": 1}}, "loop_layer_index_start is 1, .* multiple"),
    ("gear", {"attn_logit_softcapping": 30.0}, "attn_logit_softcapping is 30.0"),
    ("iquest_loop", {"loop_num": 3}, "loop_num is 3"),
    ("zaya", {"num_experts_per_tok": 2}, "num_experts_per_tok is 2"),
    ("zaya", {"lm_head_bias": True}, "lm_head_bias is True"),
    ("zaya", {"cca_time0": 1}, "cca_time0 is 1"),
    ("zaya", {"sliding_window": None}, "sliding_window"),
    ("zaya", {"rope_parameters": dict.fromkeys(("hybrid", "hybrid_sliding"), _UNCUT)}, "truncate is false"),
    ("deepseek_v4", {"rope_parameters": {"main": _HALF, "compress": _UNCUT}}, "truncate is false"),
    ("mistral4", {"head_dim": 4}, "head_dim is 4, expected 16, of which"),
    ("zaya", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_scaling is"),
    ("zaya", {"rope_parameters": {"hybrid": {"rope_theta": 1e4}}}, "a block hybrid_sliding with its"),
    ("bart", {"tie_word_embeddings": False}, "tie_word_embeddings is False"),
    ("bart", {"normalize_before": True}, "normalize_before is True"),
    ("bart", {"extra_pos_embeddings": 1}, "extra_pos_embeddings is 1"),
    ("bart", {"d_model": 66}, "d_model is 66"),
    ("mbart", {"decoder_start_token_id": None}, "decoder_start_token_id is None"),
    ("mbart", {"normalize_before": False}, "normalize_before is False"),
    ("m2m_100", {"pad_token_id": 0}, "pad_token_id is 0"),
    ("m2m_100", {"d_model": 65, "encoder_attention_heads": 5}, "d_model is 65"),
    ("marian", {"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings is False"),
    ("marian", {"decoder_vocab_size": 161}, "decoder_vocab_size is 161"),
    ("pegasus", {"static_position_embeddings": False}, "static_position_embeddings is False"),
    ("bart", {"architectures": None, "model_type": "mvp", "use_prompt": True}, "use_prompt is True"),
    ("minimax", {"architectures": None, "model_type": "minimax_m1"}, "postnorm is None, expected true"),
    (
        "minimax",
        {"architectures": None, "model_type": "minimax_m1", "layer_types": None, "postnorm": True},
        "attn_type_list is None, expected 4 times 0",
    ),
    ("rwkv", {"attention_hidden_size": 96}, "attention_hidden_size is 96"),
    ("rwkv", {"rescale_every": 0.5}, "rescale_every is 0.5"),
    ("openai_gpt", {"afn": "gelu_pytorch_tanh"}, "afn is 'gelu_pytorch_tanh'"),
    ("openai_gpt", {"n_head": 3, "num_attention_heads": 3}, "n_embd is 64"),
    ("t5gemma2", {"encoder": None}, "encoder should be a block of fields"),
    ("t5gemma2", {"tie_word_embeddings": False}, "tie_word_embeddings is False"),
    ("talkie", {"num_key_value_heads": 2}, "num_key_value_heads is 2"),
    ("talkie", {"tie_word_embeddings": True}, "tie_word_embeddings is True"),
    ("talkie", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rotation of this family is not"),
    ("ouro", {"early_exit_threshold": 0.9}, "early_exit_threshold is 0.9"),
    ("ouro", {"early_exit_step": 1}, "early_exit_step is 1"),
    ("nanbeige", {"skip_loop_final_norm": True}, "skip_loop_final_norm is True"),
    ("nanbeige", {"emb_neighbor_num": 4}, "emb_neighbor_num is 4"),
    ("nanbeige", {"layer_types": ["sliding_attention"] * 3}, "layer_types"),
    ("dory", {"recurrent_kv_cache_mode": "last_loop"}, "recurrent_kv_cache_mode"),
    ("dory", {"n_recurrent_layers": 0, "n_input_layers": 6}, "n_recurrent_layers is 0, expected one or more"),
    ("dory", {"n_output_layers": 4}, "n_recurrent_layers is 2, expected one or more"),
    ("dory", {"n_input_layers": 3}, "n_input_layers is 3, expected an even number"),
    ("dory", {"layer_types": ["full_attention", "mlp", "mlp", "full_attention"] * 2}, "layer_types"),
    ("molmo2", {"text_config": {"use_qk_norm": False}}, "use_qk_norm"),
    ("ernie4_5_vl_moe", {"text_config": {"moe_intermediate_size": 32}}, "moe_intermediate_size is 32"),
    ("ouro", {"layer_types": ["sliding_attention"] * 3}, "use_sliding_window is not true"),
    ("gear", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_scaling .* beside yarn"),
    ("phi3small", {"hidden_act": "gelu"}, "hidden_act"),
    ("phi3small", {"gegelu_limit": None}, "gegelu_limit is None"),
    ("phi3small", {"ff_dim_multiplier": 4}, "ff_dim_multiplier is 4, expected null"),
    ("phi3small", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling"),
    ("lfm3", {"layer_types": ["conv"] * 4}, "layer_types"),
    ("lfm3", {"rope_parameters": {"rope_type": "default"}}, "rope_parameters .* a block for each"),
    (
        "lfm3",
        {"rope_parameters": {"full_attention": {"rope_type": "proportional"}}},
        "rope_parameters.full_attention has no rope_theta",
    ),
    ("minimax", {"rotary_dim": 17}, "rotary_dim is 17, expected a whole number from 1 to 16"),
    ("minimax", {"postnorm": False}, "postnorm is False, expected true"),
    ("minimax", {"attn_type_list": [1, 0, 1, 0]}, "attn_type_list .* not what layer_types says"),
    ("minimax", {"shared_intermediate_size": 32}, "shared_intermediate_size"),
    ("minimax", {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
    ("hy_v4", {"gated_mla": False}, "gated_mla is False, expected true"),
    ("hy_v4", {"gating_type": "headwise"}, "gating_type is 'headwise'"),
    ("hy_v4", {"rope_interleave": False}, "rope_interleave is False, expected true"),
    ("hy_v4", {"q_lora_rank": None}, "q_lora_rank is None, expected a rank"),
    ("hy_v4", {"layer_types": ["sparse", "sparse", "full_attention"]}, "layer_types"),
    ("hy_v4", {"indexer_types": ["shared", "full", "full"]}, "indexer_types"),
    ("minimax_m3", {"rotary_dim": 32}, "rotary_dim is 32, expected 16"),
    ("minimax_m3", {"index_n_heads": 4}, "index_n_heads is 4, expected num_key_value_heads, 2"),
    ("minimax_m3", {"index_local_blocks": 4}, "index_local_blocks is 4"),
    ("minimax_m3", {"n_shared_experts": 2}, "n_shared_experts is 2"),
    ("minimax_m3", {"use_gemma_norm": False}, "use_gemma_norm is False, expected true"),
    ("minimax_m3", {"sparse_attention_config": {"sparse_init_block": 1}}, "config.sparse_init_block is 1"),
    (
        "minimax_m3",
        {"sparse_attention_config": {"sparse_disable_index_value": [0, 1, 0]}},
        "config.sparse_disable_index_value",
    ),
    ("muse_spark", {"tie_word_embeddings": True}, "tie_word_embeddings is True, expected false"),
    ("olmo2", {"clip_qkv": 8.0}, "clip_qkv"),
    ("plamo2", {"rope_theta": 5e5}, "rope_theta is 500000"),
    ("plamo2", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling"),
    ("plamo2", {"linear_type": "fp8"}, "linear_type is 'fp8'"),
    ("plamo2", {"eval_mlp_n_bit": 8}, "eval_mlp_n_bit is 8"),
    ("plamo2", {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ("plamo2", {"mamba_step": 1}, "mamba_step is 1"),
    ("ling2_5", {"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rope_scaling"),
    ("ling2_5", {"use_bias": True}, "use_bias"),
    ("bailing_hybrid", {"rope_interleave": False}, "rope_interleave is False"),
    ("bailing_hybrid", {"kda_lower_bound": 0.5}, "kda_lower_bound is 0.5"),
    ("doge", {"is_moe": True}, "only its dense models are run"),
    ("xlstm", {"weight_mode": "fused"}, "weight_mode is 'fused'"),
    ("xlstm", {"use_bias": True}, "use_bias is True"),
    ("xlstm", {"qk_dim_factor": 0.33}, "qk_dim_factor is 0.33"),
    ("xlstm", {"embedding_dim": 96}, "embedding_dim is 96, expected 128"),
    ("rwkv6", {"attention_hidden_size": 96}, "attention_hidden_size is 96"),
    ("rwkv6", {"head_size": 24}, "head_size is 24, expected a divisor of hidden_size, 64"),
    ("rwkv6", {"proj_low_rank_dim": 32}, "proj_low_rank_dim is 32, expected none"),
    ("rwkv7", {"attn": {"layers": [1]}}, "attn is"),
    ("rwkv7", {"hidden_act": "relu"}, "hidden_act is 'relu'"),
    ("rwkv7", {"value_dim": 128}, "value_dim is not hidden_size, 64"),
    ("rwkv7", {"num_heads": 3}, "head_dim is 16, expected hidden_size 64 over the number of heads"),
    ("bitnet", {"head_dim": 32}, "heads have 128 elements"),
    ("bitnet", {"hidden_act": "tanh"}, "hidden_act"),
    ("plamo", {"n_shared_head": 4}, "n_shared_head is 4"),
    ("plamo", {"rope_theta": 5e5}, "rope_theta is 500000"),
    ("plamo", {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ("plamo3", {"window_size": None}, "window_size"),
    ("plamo3", {"sliding_window": [9, None, 4]}, "sliding_window is"),
    ("plamo3", {"scale_embedding": True}, "scale_embedding is True"),
    ("plamo3", {"linear_type": "fp8"}, "linear_type"),
    ("plamo3", {"rope_scaling_factor": 4.0}, "initial_context_length"),
    ("plamo3", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_scaling is"),
    ("longcat_flash", {"mla_scale_q_lora": False}, "mla_scale_q_lora is False"),
    ("longcat_flash", {"zero_expert_type": "drop"}, "zero_expert_type is 'drop'"),
    ("longcat_flash", {"router_bias": True}, "router_bias is True"),
    ("longcat_flash", {"norm_topk_prob": True}, "norm_topk_prob is True"),
    ("longcat_flash", {"q_lora_rank": None}, "q_lora_rank is None"),
    ("longcat_flash", {"qk_head_dim": 32}, "qk_head_dim is 32, expected 24"),
    ("longcat_flash", {"num_hidden_layers": 5}, "num_hidden_layers is 5, expected twice num_layers, 4"),
    ("step3p5", {"layer_types": None}, "layer_types is None"),
    ("step3p5", {"yarn_only_types": None}, "yarn_only_types is None, expected full_attention alone"),
    ("step3p5", {"zero_centered": False}, "zero_centered is False"),
    ("step3p5", {"tie_word_embeddings": True}, "tie_word_embeddings is True"),
    ("step3p5", {"swiglu_limits": [1.0]}, "swiglu_limits"),
    ("step3p5", {"moe_layers_enum": "one"}, "moe_layers_enum is 'one'"),
    ("step3p5", {"attention_other_setting": {"num_attention_groups": 3}}, "attention_other_setting"),
    ("ring_linear", {"norm_head": True}, "norm_head is True"),
    ("ring_linear", {"linear_rope": False}, "linear_rope is False"),
    ("ring_linear", {"rotary_dim": 16}, "rotary_dim is 16, expected 8"),
    ("ring_linear", {"score_function": "softmax"}, "score_function is 'softmax'"),
    ("ring_linear", {"moe_router_enable_expert_bias": False}, "moe_router_enable_expert_bias is False"),
    ("ring_linear", {"group_norm_size": 7}, "group_norm_size is 7"),
    ("exaone4", {"layer_types": None, "sliding_window_pattern": "LGL"}, "sliding_window_pattern"),
    ("smollm3", {"no_rope_layers": [1, 0]}, "no_rope_layers"),
    ("hunyuan", {"use_qk_norm": False}, "use_qk_norm"),
    ("smallthinker", {"rope_layout": [1, 1]}, "rope_layout is .*, expected 0 or 1 for each of 5"),
    ("grove_moe", {"num_experts": 5}, "num_experts is 5, expected a multiple of 2"),
    ("plm", {"q_lora_rank": 24}, "q_lora_rank is 24, expected null"),
    ("plm", {"hidden_act": "silu"}, "hidden_act is 'silu'"),
    ("plm", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling"),
    ("chatglm", {"multi_query_attention": None}, "multi_query_attention is None, expected true: the first"),
    ("chatglm", {"quantization_bit": 4}, "quantization_bit is 4, expected none: the authors' own packed"),
    ("chatglm", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_ratio says how heads turn"),
    ("chatglm", {"add_bias_linear": True}, "add_bias_linear is True, expected false"),
    ("chatglm", {"kv_channels": 6}, "makes 3 rotated dims, expected an even number"),
    ("jais", {"position_embedding_type": "learned"}, "position_embedding_type is 'learned'"),
    ("jais", {"activation_function": "gelu_new"}, "activation_function is 'gelu_new'"),
    ("jais", {"alibi_scaling": {"type": "linear", "factor": 2.0}}, "a train_seq_len up to which nothing"),
    ("codeshell", {"rope_theta": 500.0}, "rope_theta is 500.0, expected 10000"),
    ("codeshell", {"group_query_attention": False}, "group_query_attention is False"),
    ("codeshell", {"position_embedding_type": "learned_absolute"}, "position_embedding_type"),
    ("arctic", {"num_experts_per_tok": 1}, "num_experts_per_tok is 1, expected two or more"),
    ("arctic", {"use_residual": False}, "use_residual is False, expected true"),
    ("arctic", {"sliding_window": 9}, "sliding_window is 9, expected null"),
    ("hunyuan_large", {"moe_topk": 2}, "moe_topk is 2, expected 1"),
    ("hunyuan_large", {"moe_intermediate_size": [48, 32]}, "expected a number, or a list of 4"),
    ("hunyuan_large", {"rope_scaling": None}, "rope_scaling is None, expected one of type dynamic"),
    ("hunyuan_large", {"use_pack_kv": True}, "use_pack_kv is True"),
    ("starcoder2", {"mlp_type": "gated"}, "mlp_type"),
    ("llama4_text", {"moe_layers": [9]}, "moe_layers"),
    ("llama4_text", {"layer_types": ["sliding_attention"] * 4}, "layer_types"),
    ("gpt2", {"add_cross_attention": True}, "add_cross_attention"),
    ("gpt2", {"n_head": 5}, "n_embd"),
    ("falcon_7b", {"num_attention_heads": 5}, "hidden_size is 64, expected a multiple of .* 5"),
    ("falcon_7b", {"num_ln_in_parallel_attn": 2}, "num_ln_in_parallel_attn"),
    ("falcon_40b", {"parallel_attn": False}, "parallel_attn is False, expected true"),
    ("falcon_40b", {"num_kv_heads": 3}, "num_kv_heads is 3, expected a divisor"),
    ("falcon_rw", {"num_kv_heads": 2}, "num_kv_heads is 2, expected 6"),
    ("falcon_7b", {"activation": "gelu_10"}, "activation is 'gelu_10'"),
    ("bloom", {"apply_residual_connection_post_layernorm": True}, "apply_residual_connection_post"),
    ("bloom", {"slow_but_exact": True, "pretraining_tp": 2}, "slow_but_exact is True"),
    ("mpt", {"no_bias": False}, "no_bias"),
    ("gpt_bigcode", {"add_cross_attention": True}, "add_cross_attention"),
    ("gptj", {"rotary_dim": 32}, "rotary_dim is 32, expected a whole number from 1 to 16"),
    ("gptj", {"rotary_dim": None}, "rotary_dim is None, expected a whole number"),
    ("codegen", {"rotary_dim": 5}, "rotary_dim is 5, expected an even number"),
    ("gptj", {"tie_word_embeddings": True}, "tie_word_embeddings"),
    ("gpt_neo", {"attention_types": [[["global", "random"], 2]]}, "attention_types"),
    ("gpt_neo", {"attention_types": [[["global"], 4]]}, "attention_layers .* what attention_types says"),
    ("gpt_neo", {"attention_types": "global"}, "attention_types"),
    ("opt", {"layer_norm_elementwise_affine": False}, "layer_norm_elementwise_affine"),
    ("mpt", {"logit_scale": "inv_sqrt_d_model"}, "logit_scale"),
    ("mpt", {"norm_type": "rmsnorm"}, "norm_type is 'rmsnorm'"),
    ("mpt", {"attn_config": {"alibi": False}}, "attn_config.alibi is False, expected True"),
    ("mpt", {"attn_config": {"qk_ln": True}}, "attn_config.qk_ln"),
    ("mpt", {"attn_config": {"attn_type": "multiquery_attention"}}, "attn_config.attn_type"),
    ("youtu", {"mlp_bias": True}, "mlp_bias"),
    ("helium", {"head_dim": 32}, "head_dim is 32, expected hidden_size over 4 heads"),
    ("cohere", {"hidden_act": "swiglu"}, "hidden_act"),
    ("ministral3", {"model_type": "pixtral"}, "model_type"),
    ("qwen3_vl", {"text_config": {"model_type": "qwen3_omni"}}, "model_type"),
    ("apertus", {"num_hidden_layers": "many"}, "num_hidden_layers"),
    ("qwen3_vl_moe", {"norm_topk_prob": False}, "norm_topk_prob"),
    ("llama", {"partial_rotary_factor": 0.5, "rope_parameters": None}, "partial_rotary_factor"),
    ("olmo3", {"rope_parameters": {"full_attention": {"partial_rotary_factor": 0.5}}}, "partial_rotary"),
    ("gpt_oss", {"rope_parameters": {"partial_rotary_factor": 0.25}}, "partial_rotary_factor"),
    ("granite_swa", {"layer_rope_theta": [10000.0] * 4}, "layer_rope_theta"),
    ("granite_swa", {"layer_rope_theta": [1.0] * 5}, "layer_rope_theta"),
    ("granite_swa", {"layer_rope_theta": ["10000"] * 5}, "layer_rope_theta"),
    ("granite_swa", {"layer_rope_theta": 10000.0}, "layer_rope_theta"),
    ("diffllama", {"num_key_value_heads": 1}, "num_key_value_heads is 1, expected an even number"),
    ("xglm", {"add_cross_attention": True}, "add_cross_attention"),
    ("xglm", {"pad_token_id": -1}, "pad_token_id"),
    ("nemotron_nas", {"block_configs": [{}] * 5}, "block_configs .* a block for each of 6 layers"),
    ("nemotron_nas", {"block_configs": [{}] * 6}, r"block_configs\[0\].attention"),
    ("nemotron_nas", {"block_configs": [_searched(window_length=8)] * 6}, "window_length is 8"),
    ("nemotron_nas", {"block_configs": [_searched(n_heads_in_group=3)] * 6}, "n_heads_in_group is 3"),
    ("nemotron_nas", {"block_configs": [_searched(ffn_mult=None)] * 6}, r"\[0\].ffn.ffn_mult is None"),
    ("openelm", {"num_query_heads": [2, 4, 4]}, "num_query_heads .* for each of 4 layers"),
    ("openelm", {"num_kv_heads": [1, 3, 2, 3]}, "num_query_heads .* a multiple of num_kv_heads"),
    ("openelm", {"ffn_multipliers": [1, 2, 0, 4]}, "ffn_multipliers"),
    ("openelm", {"ffn_with_glu": False}, "ffn_with_glu"),
    ("openelm", {"normalization_layer_name": "layer_norm"}, "normalization_layer_name"),
    ("qwen", {"kv_channels": 32}, "kv_channels is 32"),
    ("qwen", {"no_bias": False}, "no_bias"),
    ("qwen", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling"),
    ("qwen", {"rotary_pct": 0.5}, "rotary_pct"),
    ("minicpm", {"num_experts": 8}, "num_experts_per_tok is None"),
    ("minicpm", {"sparse_config": {"kernel_size": 32}}, "sparse_config"),
    ("minicpm", {"scale_depth": "1.4"}, "scale_depth"),
    ("deepseek", {"scoring_func": "sigmoid"}, "scoring_func"),
    ("deepseek", {"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rope_scaling"),
    ("bailing_moe", {"use_bias": True}, "use_bias"),
    ("bailing_moe", {"n_group": 2}, "n_group is 2"),
    ("bailing_moe", {"moe_router_enable_expert_bias": True}, "moe_router_enable_expert_bias"),
    ("bailing_moe", {"tie_word_embeddings": True}, "norm_head is True"),
    ("bailing_moe_v2", {"rotary_dim": 16}, "rotary_dim is 16, expected 8"),
    ("bailing_moe_v2", {"score_function": "softmax"}, "score_function"),
    ("bailing_moe_v2", {"norm_topk_prob": False}, "norm_topk_prob"),
    ("ministral3", {"rope_parameters": {"partial_rotary_factor": 0.25}}, "partial_rotary_factor"),
    ("ernie4_5", {"compression_ratio": 2.0}, "compression_ratio"),
    (
        "deepseek_v2_lite",
        {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "partial_rotary_factor": 0.25}},
        "partial_rotary_factor is 0.25",
    ),
    ("qwen2_window", {"use_sliding_window": False}, "layer_types is .* use_sliding_window is not true"),
    ("qwen2_window", {"sliding_window": None}, "layer_types is .* sliding_window null"),
    ("qwen2_moe", {"sliding_window": None}, "layer_types is .* sliding_window null"),
    ("exaone4", {"sliding_window": None}, "layer_types is .* sliding_window null"),
    *(
        (name, {"sliding_window": None}, "sliding_window is null, and some of the layers have a window")
        for name in _WINDOWED
    ),
    ("qwen2_moe", {"use_sliding_window": None}, "layer_types is .* use_sliding_window is not true"),
    ("olmo3", {"rope_parameters": None, "rope_theta": 10000.0}, "rope_theta is 10000.0"),
    ("apertus", {"rope_parameters": None, "rope_theta": 500.0}, "rope_theta is 500.0"),
    ("ministral3", {"rope_parameters": None, "rope_scaling": {}, "rope_theta": 500.0}, "rope_theta is 500.0"),
    ("gpt_neox", {"rope_parameters": None, "rope_theta": 500.0}, "rope_theta is 500.0.*rotary_emb_base"),
    ("gpt_neox", {"rope_parameters": None, "partial_rotary_factor": 1.0}, "partial_rotary_.*rotary_pct"),
    (
        "gemma4_text",
        {"per_layer_config": None, "attention_k_eq_v": True, "num_global_key_value_heads": 3},
        "num_global_key_value_heads is 3, expected a divisor",
    ),
    ("mimo_v2_flash", {"swa_num_key_value_heads": 3}, "swa_num_key_value_heads is 3, expected a divisor"),
    ("phi", {"tie_word_embeddings": True}, "tie_word_embeddings"),
    ("phi", {"hidden_act": "mish"}, "hidden_act"),
    ("qwen3_5", {"layer_types": ["full_attention"] * 4}, "layer_types leaves no layer of linear_attention"),
    ("qwen3_next", {"layer_types": None, "full_attention_interval": 1}, "full_attention_interval leaves"),
]


@pytest.mark.parametrize(("name", "change", "words"), REFUSED, ids=lambda part: str(part)[:40])
def test_refused(name: str, change: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModel, match=words):
        describe({**Reference(name).record["config"], **change})


@pytest.mark.parametrize("name", ["llama", "nemotron_h", "gemma3n", "qwen3_vl", "t5gemma"])
def test_heads_of_keys_that_serve_unequal_shares_of_the_queries_are_refused(name: str) -> None:
    """Every step of such a model would fail."""
    config = dict(Reference(name).record["config"])
    inner = next((key for key in ("decoder", "text_config") if key in config), None)
    own = dict(config[inner]) if inner else config
    own |= {"num_attention_heads": 4, "num_key_value_heads": 3}
    with pytest.raises(
        UnsupportedModel, match="num_key_value_heads is 3, expected a divisor of num_attention_heads, 4"
    ):
        describe({**config, inner: own} if inner else own)


def test_fields_that_another_family_reads_do_not_act() -> None:
    config = Reference("olmo3").record["config"]
    plain = describe({**config, "rope_parameters": None, "rope_theta": 500000.0}).config
    given = {"rope_parameters": None, "rope_theta": 500000.0, "rope_local_base_freq": 10000.0}
    assert describe({**config, **given}).config == plain


def test_a_scaled_rotation_of_mimo_takes_whole_heads_unless_it_says_a_share() -> None:
    config, linear = Reference("mimo_v2_flash").record["config"], {"rope_type": "linear", "factor": 4.0}

    def dims(block: dict[str, Any], **more: Any) -> int:
        blocks = {**config["rope_parameters"], "full_attention": block}
        ropes = describe({**config, "rope_parameters": blocks, **more}).config.ropes
        return max(rope.dims for rope in ropes)

    head = config["head_dim"]
    assert dims(linear) == head
    assert dims(linear, partial_rotary_factor=0.5) == head // 2
    assert dims({"rope_type": "default"}) == int(head * 0.334)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("granite", {"architectures": ["LlamaForCausalLM"]}),
        ("ernie4_5", {"architectures": ["Qwen2ForCausalLM"]}),
        ("llama", {"model_type": "smollm3"}),
    ],
    ids=str,
)
def test_two_names_of_different_computations_are_refused(name: str, change: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedModel, match=r"architectures says .* and model_type .*, which are"):
        describe({**Reference(name).record["config"], **change})


def test_two_names_of_one_computation_pass() -> None:
    config = Reference("mistral").record["config"]
    assert describe({**config, "architectures": ["LlamaForCausalLM"]}).config == describe(config).config


def test_kin_of_llama_that_names_its_class_is_read_as_what_it_is() -> None:
    """transformers saves InternLM3 so; its flag for biases has a name of its own."""
    config = {**Reference("llama").record["config"], "model_type": "internlm3", "qkv_bias": True}
    del config["attention_bias"]
    by_class = describe({**config, "architectures": ["LlamaForCausalLM"]}).config
    assert by_class == describe({**config, "architectures": ["InternLM3ForCausalLM"]}).config
    assert by_class.qkv_bias


@pytest.mark.parametrize("name", ["qwen3_5", "qwen3_5_moe", "qwen3_next"])
def test_a_config_may_say_that_there_is_no_draft_head(name: str) -> None:
    config = Reference(name).record["config"]
    assert describe({**config, "mtp_num_hidden_layers": 0}).config.head_layers == 0


@pytest.mark.parametrize("name", ["qwen3_next", "qwen3_5_moe"])
def test_key_heads_that_a_file_leaves_out_are_those_of_its_class(name: str) -> None:
    config = Reference(name).record["config"]
    told = {field: value for field, value in config.items() if field != "num_key_value_heads"}
    assert (describe(told).config.kv_heads, describe(told).config.heads) == (2, 4)
