"""What kind of value each key of an architecture has, whatever a file says: llama.cpp's own (llama-arch.cpp,
gguf-py's constants). A key that is not here is judged where it is read.
"""

from typing import Any

from modelkit.json_text import is_finite
from runtime.quoting import quoted

_MOST = 2**31 - 1  # llama.cpp reads 32 bits

BY_LAYER = (
    "attention.head_count",
    "attention.head_count_kv",
    "expert_feed_forward_length",
    "expert_used_count",
    "feed_forward_length",
)
"""One number for all layers, or a list of them, which may be the same."""

_SIZES = [
    "attention.indexer.block_size",
    "attention.indexer.head_count",
    "attention.indexer.key_length",
    "attention.key_length",
    "attention.key_length_mla",
    "attention.key_length_swa",
    "attention.value_length",
    "attention.value_length_mla",
    "attention.value_length_swa",
    "block_count",
    "context_length",
    "embedding_length",
    "hyper_connection.count",
    "rope.scaling.original_context_length",
    "vocab_size",
    "wkv.head_size",
]
_COUNTS = [
    "altup.active_idx",
    "altup.num_inputs",
    "attention.decay_lora_rank",
    "attention.output_group_count",
    "attention.output_lora_rank",
    "attn_res.block_size",
    "expert_latent_length",
    "hash_layer_count",
    "attention.gate_lora_rank",
    "attention.iclr_lora_rank",
    "attention.indexer.local_blocks",
    "attention.indexer.top_k",
    "attention.kv_lora_rank",
    "attention.q_lora_rank",
    "attention.relative_buckets_count",
    "attention.shared_kv_layers",
    "attention.sliding_window",
    "attention.value_residual_mix_lora_rank",
    "classifier.pooling_type",
    "decoder_block_count",
    "decoder_start_token_id",
    "embedding_length_out",
    "embedding_length_per_layer_input",
    "expert_count",
    "expert_feed_forward_length",
    "expert_gating_func",
    "expert_group_count",
    "expert_group_used_count",
    "expert_shared_count",
    "expert_shared_feed_forward_length",
    "expert_used_count",
    "full_attention_interval",
    "interleave_moe_layer_step",
    "kda.head_dim",
    "leading_dense_block_count",
    "n_deepstack_layers",
    "nextn_predict_layers",
    "pooling_type",
    "rope.dimension_count",
    "rope.dimension_count_swa",
    "shortconv.l_cache",
    "ssm.conv_kernel",
    "ssm.group_count",
    "ssm.inner_size",
    "ssm.state_size",
    "ssm.time_step_rank",
]
_LISTS = ["attention.head_count", "attention.head_count_kv", "feed_forward_length", "rope.dimension_sections"]
"""Counts, or one for each block."""
_FLOATS = [
    "activation.situ_beta",
    "activation.situ_linear_beta",
    "attention.compress_rope_freq_base",
    "attention.clamp_kqv",
    "attention.layer_norm_epsilon",
    "attention.layer_norm_rms_epsilon",
    "attention.scale",
    "attention.temperature_length",
    "attention.temperature_scale",
    "attention.value_scale",
    "hyper_connection.epsilon",
    "hyper_connection.magnitude",
    "attn_logit_softcapping",
    "embedding_scale",
    "expert_weights_scale",
    "final_logit_softcapping",
    "logit_scale",
    "residual_scale",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.scale_linear",
    "rope.scaling.attn_factor",
    "rope.scaling.factor",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_log_multiplier",
]
_NUMBERS = ["swiglu_clamp_exp", "swiglu_clamp_shexp"]
"""A number, or one for each block."""
_FLAGS = [
    "attention.causal",
    "expert_weights_norm",
    "rope.scaling.finetuned",
    "ssm.dt_b_c_rms",
    "use_parallel_residual",
]
_TEXTS = ["hidden_activation", "rope.scaling.type"]


def _whole(value: Any, least: int) -> bool:
    return type(value) is int and least <= value <= _MOST


_KINDS = {
    **{key: ("a whole number from 1 on", lambda value: _whole(value, 1)) for key in _SIZES},
    **{key: ("a whole number", lambda value: _whole(value, 0)) for key in _COUNTS},
    **{
        key: (
            "a whole number, or one for each block",
            lambda value: (
                all(_whole(item, 0) for item in value)
                if isinstance(value, list | tuple)
                else _whole(value, 0)
            ),
        )
        for key in _LISTS
    },
    **dict.fromkeys(_FLOATS, ("a number", is_finite)),
    **{
        key: (
            "a number, or one for each block",
            lambda value: all(map(is_finite, value)) if isinstance(value, list | tuple) else is_finite(value),
        )
        for key in _NUMBERS
    },
    **{key: ("true or false", lambda value: type(value) is bool) for key in _FLAGS},
    **{key: ("a text", lambda value: isinstance(value, str)) for key in _TEXTS},
}


def wrong(key: str, value: Any) -> str | None:
    """What is wrong with the value of an architecture's key, in words; None where nothing is."""
    kind = _KINDS.get(key)
    if kind is None or kind[1](value):
        return None
    return f"is {quoted(value)}; {kind[0]} was expected"
