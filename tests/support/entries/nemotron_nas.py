"""Nemotron NAS: few and many key heads, small and large MLPs, one matrix or nothing in their place. And
DeciLM 7B, whose layers differ in their key heads alone.
"""

from typing import Any

from tests.support.entries import SMALL

Part = float | str
_KINDS: dict[Part, dict[str, Any]] = {"nothing": {"no_op": True}, "matrix": {"replace_with_linear": True}}


def _block(heads: Part, mult: Part) -> dict[str, Any]:
    """As files have it: every field, null where it says nothing."""
    common = {"no_op": False, "replace_with_linear": False, "sparsify": None}
    attention = {"n_heads_in_group": None, "num_sink_tokens": None, "unshifted_sink": False}
    attention |= {"use_prefill_window_in_sink_attention": False, "window_length": None}
    return {
        "attention": {**common, **attention, **_KINDS.get(heads, {"n_heads_in_group": heads})},
        "ffn": {**common, "ffn_mult": None, **_KINDS.get(mult, {"ffn_mult": mult})},
    }


def _fields(*blocks: tuple[Part, Part], **more: Any) -> dict[str, Any]:
    return {
        **SMALL,
        "architectures": ["DeciLMForCausalLM"],
        "num_hidden_layers": len(blocks),
        "num_key_value_heads": None,
        "intermediate_size": None,
        "block_configs": [_block(*block) for block in blocks],
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "tie_word_embeddings": False,
        **more,
    }


_LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}

_FIRST = ("block_configs", "num_key_value_heads")

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "nemotron_nas": (
        "nemotron-nas",
        _fields(
            (2, 2.0),
            ("nothing", 7.0),
            (4, "nothing"),
            ("nothing", "nothing"),
            ("matrix", 1.0),
            (1, "matrix"),
            rope_scaling={**_LLAMA3, "original_max_position_embeddings": 32},
        ),
    ),
    "nemotron_nas_tied": (
        "nemotron-nas",
        _fields(
            (4, 7.0),
            ("nothing", 2.0),
            ("matrix", 2.0),
            ("nothing", "nothing"),
            (2, 2.0),
            mlp_bias=True,
            tie_word_embeddings=True,
        ),
    ),
    "decilm": (
        "deci",
        {
            **{name: value for name, value in _fields().items() if name not in _FIRST},
            "num_hidden_layers": 4,
            "num_key_value_heads_per_layer": [4, 1, 2, 1],
            "intermediate_size": 256,
        },
    ),
}
