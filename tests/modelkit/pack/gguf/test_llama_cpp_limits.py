"""What llama.cpp is known to do otherwise with a file is said, and nothing where it computes the same."""

from typing import Any

import pytest

from modelkit.pack.gguf.llama_cpp_limits import limits

_KEYS_OF_ALL = {f"blk.{layer}.attn_k.weight" for layer in range(35)}


@pytest.mark.parametrize(
    ("config", "names", "said"),
    [
        ({"model_type": "phi3", "sliding_window": 12}, {"output.weight"}, "window"),
        ({"model_type": "phi3", "sliding_window": None}, {"output.weight"}, None),
        ({"model_type": "exaone4", "sliding_window": 12, "num_hidden_layers": 30}, (), "64 layers"),
        ({"model_type": "exaone4", "sliding_window": 12, "num_hidden_layers": 64}, (), None),
        ({"model_type": "exaone4", "sliding_window": 12, "layer_types": ["full_attention"]}, (), None),
        ({"model_type": "bamba", "rope_parameters": {"partial_rotary_factor": 0.5}}, (), "rotates"),
        ({"model_type": "bamba", "attn_rotary_emb": 64, "head_dim": 128}, (), "rotates"),
        ({"model_type": "bamba"}, (), None),
        ({"model_type": "deepseek_v2", "topk_method": "group_limited_greedy", "n_group": 8}, (), "groups"),
        ({"model_type": "deepseek_v2", "topk_method": "greedy"}, (), None),
        ({"model_type": "nemotron"}, {"token_embd.weight"}, "output head"),
        ({"model_type": "nemotron"}, {"output.weight"}, None),
        ({"model_type": "cohere"}, {"blk.0.attn_output.bias"}, "biases other than"),
        ({"model_type": "cohere"}, {"blk.0.attn_q.bias"}, None),
        ({"model_type": "lfm2"}, {"blk.0.shortconv.in_proj.bias"}, "biases other than"),
        ({"model_type": "ernie4_5"}, {"blk.0.ffn_up.bias"}, "biases in its MLPs"),
        ({"model_type": "ernie4_5"}, {"blk.0.attn_output.bias"}, None),
        (
            {"model_type": "ernie4_5_moe"},
            {"blk.1.ffn_gate_inp.weight", "blk.2.ffn_gate.weight", "blk.3.ffn_gate_inp.weight"},
            "no plain MLP behind the first mixture",
        ),
        ({"model_type": "ernie4_5_moe"}, {"blk.0.ffn_gate.weight", "blk.1.ffn_gate_inp.weight"}, None),
        (
            {"model_type": "qwen3_5_text", "linear_key_head_dim": 16, "linear_value_head_dim": 32},
            set(),
            "heads of keys and of values differ",
        ),
        ({"model_type": "qwen3_5_text", "linear_value_head_dim": 128}, set(), None),
        ({"model_type": "llama"}, {"blk.0.ffn_up.bias"}, None),
        ({"model_type": "rwkv7", "head_dim": 32}, {"output.weight"}, "heads of 64 numbers"),
        ({"model_type": "rwkv7", "head_dim": 64}, {"output.weight"}, None),
        ({"model_type": "plamo3", "rope_scaling_factor": 4.0}, set(), "YaRN's band"),
        ({"model_type": "plamo3", "rope_scaling_factor": 1}, set(), None),
        ({"model_type": "t5"}, set(), "a factor before the head"),
        ({"model_type": "t5", "tie_word_embeddings": False}, set(), None),
        ({"model_type": "mt5", "num_layers": 2, "num_decoder_layers": 3}, set(), "deeper than its encoder"),
        ({"model_type": "mimo_v2_flash"}, {"output.weight", "blk.0.attn_k.bias"}, "no biases to queries"),
        ({"model_type": "mimo_v2_flash"}, {"blk.0.attn_k.weight"}, None),
        ({"model_type": "nemotron_h"}, {"blk.0.ffn_up.weight", "blk.1.ffn_gate_inp.weight"}, "plain MLPs"),
        ({"model_type": "nemotron_h"}, {"blk.0.ffn_up.weight"}, None),
        ({"model_type": "kimi_linear", "q_lora_rank": 8}, set(), "whole projections"),
        ({"model_type": "kimi_linear"}, {"blk.0.attn_kv_a_mqa.bias"}, "biases"),
        ({"model_type": "cohere", "num_hidden_layers": 4}, {"blk.0.attn_q_norm.weight"}, "64 layers on"),
        ({"model_type": "cohere", "num_hidden_layers": 64}, {"blk.0.attn_q_norm.weight"}, None),
        ({"model_type": "deepseek_v2", "num_hidden_layers": 3}, {"blk.0.attn_q.weight"}, "q_lora_rank"),
        ({"model_type": "deepseek_v2", "num_hidden_layers": 27}, {"blk.0.attn_q.weight"}, None),
        ({"model_type": "deepseek_v3"}, {"blk.0.attn_kv_a_mqa.bias"}, "biases"),
        ({"model_type": "deepseek_v32", "index_head_dim": 16}, set(), "multiple of 64"),
        (
            {"model_type": "dots1", "num_attention_heads": 4, "num_key_value_heads": 2},
            {"output.weight"},
            "heads of keys",
        ),
        ({"model_type": "olmo2"}, {"blk.0.attn_q.bias"}, "biases"),
        (
            {
                "model_type": "gemma4_text",
                "num_kv_shared_layers": 1,
                "layer_types": ["full_attention", "sliding_attention", "full_attention"],
            },
            set(),
            "keys of their own",
        ),
        (
            {
                "model_type": "gemma4_text",
                "num_kv_shared_layers": 1,
                "layer_types": ["sliding_attention", "full_attention", "full_attention"],
            },
            set(),
            None,
        ),
        ({"model_type": "gemma3n_text", "altup_num_inputs": 3}, _KEYS_OF_ALL, "for granted"),
        ({"model_type": "gemma3n_text", "num_hidden_layers": 30}, _KEYS_OF_ALL, "for granted"),
        ({"model_type": "gemma3n_text", "activation_sparsity_pattern": 0.5}, _KEYS_OF_ALL, "for granted"),
        ({"model_type": "gemma3n_text", "activation_sparsity_pattern": 0.0}, _KEYS_OF_ALL, "for granted"),
        ({"model_type": "gemma3n_text"}, {f"blk.{i}.attn_k.weight" for i in range(20)}, "have no use"),
        ({"model_type": "gemma3n_text"}, _KEYS_OF_ALL, None),
        (
            {"model_type": "gemma3n_text", "num_hidden_layers": 30, "num_kv_shared_layers": 10},
            _KEYS_OF_ALL,
            None,
        ),
        ({"model_type": "jamba"}, {"blk.0.ssm_in.bias"}, "biases"),
        ({"model_type": "mamba2"}, {"blk.0.ssm_conv1d.weight"}, "without biases"),
        ({"model_type": "mamba2"}, {"blk.0.ssm_conv1d.bias"}, None),
        (
            {"model_type": "nemotron", "head_dim": 32, "num_attention_heads": 4, "hidden_size": 64},
            {"output.weight"},
            "share the hidden",
        ),
        ({"model_type": "phi", "hidden_size": 64, "intermediate_size": 96}, set(), "four times"),
        ({"model_type": "starcoder2"}, {"blk.0.attn_output.weight"}, "without biases"),
    ],
)
def test_what_llama_cpp_does_otherwise_is_said(
    config: dict[str, Any], names: set[str], said: str | None
) -> None:
    found = list(limits(config, names, {"general.architecture": "x"}))
    assert bool(found) == (said is not None)
    assert all(said is not None and said in text for text in found)


@pytest.mark.parametrize(
    ("architecture", "key", "value", "said"),
    [
        ("llama", "yarn_attn_factor", 1.3, "attention_factor as 1.139, not 1.3"),
        ("llama", "yarn_attn_factor", 1.1386294, None),
        ("llama", "yarn_beta_fast", 8.0, "beta_fast as 32, not 8"),
        ("llama", "yarn_beta_slow", 1.0, None),
        ("mistral3", "yarn_beta_fast", 8.0, None),
        ("deepseek2", "original_context_length", 64, "where mscale_all_dim is not told"),
        ("deepseek2", "yarn_log_multiplier", 0.1, None),
        ("mistral4", "yarn_beta_fast", 8.0, "beta_fast as 32, not 8"),
    ],
)
def test_keys_of_yarn_that_llama_cpp_passes_over_are_said(
    architecture: str, key: str, value: float, said: str | None
) -> None:
    told = {"factor": 4.0, key: value}
    metadata = {f"{architecture}.rope.scaling.{name}": number for name, number in told.items()}
    found = list(limits({"model_type": "it"}, set(), {"general.architecture": architecture, **metadata}))
    assert [said is not None and said in text for text in found] == [True] * bool(said)


@pytest.mark.parametrize(
    ("architecture", "said"),
    [
        ("qwen3", "does not load it with the factors"),
        ("deepseek2", "does not load it"),
        ("falcon-h1", "passes over"),
        ("llama", None),
    ],
)
def test_the_factors_of_llama_3_are_no_part_of_most_architectures(
    architecture: str, said: str | None
) -> None:
    names = {"output.weight", "rope_freqs.weight"}
    found = list(limits({"model_type": "it"}, names, {"general.architecture": architecture}))
    assert [said is not None and said in text for text in found] == [True] * bool(said)
