"""Conditions of the rows in `llama_cpp_limits`, asked of a text model's config and of the names of a
file's tensors.
"""

from collections.abc import Callable, Collection, Mapping
from math import isclose
from typing import Any

Config = Mapping[str, Any]
When = Callable[[Config, Collection[str]], bool]


def has_windows(config: Config, _: Collection[str]) -> bool:
    kinds = config.get("layer_types")
    return config.get("sliding_window") is not None and (not kinds or "sliding_attention" in kinds)


def windows_unless_64_layers(config: Config, names: Collection[str]) -> bool:
    return config.get("num_hidden_layers") != 64 and has_windows(config, names)


def normed_heads(config: Config, names: Collection[str]) -> bool:
    return config.get("num_hidden_layers", 40) < 64 and any("attn_q_norm" in name for name in names)


def whole_queries(config: Config, names: Collection[str]) -> bool:
    whole = any(name.endswith(".attn_q.weight") for name in names)
    layers = config.get("num_hidden_layers")
    known = layers in (26, 27) or (layers == 48 and config.get("vocab_size") == 128256)
    return whole and not known


def narrow_index(config: Config, _: Collection[str]) -> bool:
    return bool(config.get("index_head_dim", 128) % 64)


def shared_otherwise(config: Config, _: Collection[str]) -> bool:
    """Are the last layers with keys of their own not one with a window and one without?"""
    kinds = list(config.get("layer_types") or ())
    shared = config.get("num_kv_shared_layers") or 0
    return bool(shared) and kinds[-shared - 2 : -shared] != ["sliding_attention", "full_attention"]


def altered_streams(config: Config, _: Collection[str]) -> bool:
    """Is a Gemma 3n other than E2B and E4B in what a file does not say?"""
    usual = {
        "altup_num_inputs": 4,
        "altup_active_idx": 0,
        "hidden_size_per_layer_input": 256,
        "laurel_rank": 64,
    }
    layers, shared = config.get("num_hidden_layers", 35), config.get("num_kv_shared_layers", 15)
    sparse, usually_sparse = config.get("activation_sparsity_pattern"), [0.95] * 10 + [0.0] * (layers - 10)
    return (
        any(config.get(field, value) != value for field, value in usual.items())
        or layers - shared != min(layers, 20)
        or layers <= 10
        or (sparse is not None and sparse != usually_sparse)
    )


def without_unused(config: Config, names: Collection[str]) -> bool:
    """Have the layers that read others' keys none of their own in the file?"""
    shared = config.get("num_kv_shared_layers", 15)
    return bool(shared) and len(_blocks(names, ".attn_k.weight")) < config.get("num_hidden_layers", 35)


def missing(ending: str) -> When:
    """Does no block have a tensor of this name?"""
    return lambda _, names: not any(name.endswith(ending) for name in names)


def fewer_keys(config: Config, _: Collection[str]) -> bool:
    heads = config.get("num_attention_heads")
    return config.get("num_key_value_heads", heads) != heads


def other_width(config: Config, _: Collection[str]) -> bool:
    return config.get("intermediate_size") != 4 * config.get("hidden_size", 0)


def partly_rotated(config: Config, _: Collection[str]) -> bool:
    block = config.get("rope_parameters") or {}
    share = block.get("partial_rotary_factor", config.get("partial_rotary_factor"))
    size = config.get("attn_rotary_emb")
    return share not in (None, 1, 1.0) or (size is not None and size != config.get("head_dim"))


def by_group(config: Config, _: Collection[str]) -> bool:
    return config.get("topk_method") == "group_limited_greedy" and (config.get("n_group") or 1) > 1


def scaled(config: Config, _: Collection[str]) -> bool:
    """Are hidden states divided by the root of their size before the head?"""
    tied = config.get("tie_word_embeddings", True)
    return bool(config.get("scale_decoder_outputs", tied))


def deep_decoder(config: Config, _: Collection[str]) -> bool:
    layers = config.get("num_layers") or 0
    return (config.get("num_decoder_layers") or layers) > layers


def ranked(config: Config, _: Collection[str]) -> bool:
    return config.get("q_lora_rank") is not None


def dense_and_mixed(_: Config, names: Collection[str]) -> bool:
    ends = (".ffn_gate_inp.weight", ".ffn_up.weight")
    return all(any(name.endswith(end) for name in names) for end in ends)


def _blocks(names: Collection[str], ending: str) -> list[int]:
    """Those that have a tensor of this name."""
    return [int(name.split(".")[1]) for name in names if name.startswith("blk.") and name.endswith(ending)]


def dense_behind(_: Config, names: Collection[str]) -> bool:
    mixtures = _blocks(names, ".ffn_gate_inp.weight")
    return bool(mixtures) and max(_blocks(names, ".ffn_gate.weight"), default=-1) > min(mixtures)


def no_head(_: Config, names: Collection[str]) -> bool:
    return "output.weight" not in names


def biased(*parts: str) -> When:
    """Has a block a bias in one of these parts?"""
    ends = tuple(f".{part}.bias" for part in parts)
    return lambda _, names: any(name.endswith(ends) for name in names)


def narrow_heads(config: Config, _: Collection[str]) -> bool:
    size = config.get("head_dim")
    return size is not None and size * config.get("num_attention_heads", 12) != config.get("hidden_size", 768)


def only_windows(config: Config, _: Collection[str]) -> bool:
    """Of encoders: has every layer one?"""
    kinds = config.get("layer_types") or ()
    ahead = config.get("model_type") == "modernbert" or config.get("use_bidirectional_attention")
    return bool(ahead and kinds) and "full_attention" not in kinds


def uneven_heads(config: Config, _: Collection[str]) -> bool:
    """Of delta nets: do keys and values differ in size?"""
    keys = config.get("linear_key_head_dim", 128)
    return keys != config.get("linear_value_head_dim", 128)


def other_heads(config: Config, _: Collection[str]) -> bool:
    return config.get("head_dim", 64) != 64 or not isclose(config.get("norm_eps", 1e-5), 1e-5)


def stretched(config: Config, _: Collection[str]) -> bool:
    return config.get("rope_scaling_factor", 1) != 1
