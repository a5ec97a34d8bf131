"""xLSTM: keys of half a head's values, and as large ones."""

from typing import Any

_COMMON: dict[str, Any] = {
    "hidden_size": 128,
    "num_hidden_layers": 3,
    "num_heads": 4,
    "ffn_round_up_to_multiple_of": 16,
    "autocast_kernel_dtype": "float32",
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "xlstm": ("xlstm", _COMMON),
    "xlstm_capped": (
        "xlstm",
        {
            **_COMMON,
            "num_hidden_layers": 2,
            "qk_dim_factor": 1.0,
            "ffn_proj_factor": 1.5,
            "gate_soft_cap": 4.0,
            "output_logit_soft_cap": 2.0,
            "norm_eps": 1e-5,
        },
    ),
}
