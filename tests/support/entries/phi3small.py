"""Phi-3-small: layers that see some blocks of the past, other ones for each head, and dense ones."""

from typing import Any

from tests.support.entries import SMALL

_COMMON: dict[str, Any] = {
    **{key: value for key, value in SMALL.items() if key != "intermediate_size"},
    "architectures": ["Phi3SmallForCausalLM"],
    "blocksparse_block_size": 8,
    "blocksparse_homo_head_pattern": False,
    "blocksparse_num_local_blocks": 2,
    "blocksparse_triton_kernel_block_size": 8,
    "blocksparse_vert_stride": 3,
    "dense_attention_every_n_layers": 2,
    "ff_dim_multiplier": None,
    "ff_intermediate_size": 96,
    "gegelu_limit": 2.0,
    "gegelu_pad_to_256": True,
    "hidden_act": "gegelu",
    "layer_norm_epsilon": 1e-5,
    "mup_attn_multiplier": 1.0,
    "mup_embedding_multiplier": 10.0,
    "mup_use_scaling": True,
    "mup_width_multiplier": 8.0,
    "rope_embedding_base": 1000000,
    "rope_position_scale": 1.0,
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "phi3small": ("phi3small", _COMMON),
    "phi3small_plain": (
        "phi3small",
        {
            **_COMMON,
            "num_hidden_layers": 3,
            "num_key_value_heads": 1,
            "blocksparse_block_size": 4,
            "blocksparse_num_local_blocks": 1,
            "blocksparse_vert_stride": 2,
            "mup_use_scaling": False,
            "rope_position_scale": 0.5,
        },
    ),
}
