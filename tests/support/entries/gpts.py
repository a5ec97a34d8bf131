"""GPT-BigCode, GPT-J, CodeGen, GPT-Neo and OPT: every way of wiring, few positions, narrow windows."""

from typing import Any

_THREE: dict[str, Any] = {"num_hidden_layers": 3, "max_position_embeddings": 96}
_LOCAL: dict[str, Any] = {"attention_types": [[["global", "local"], 1], [["local"], 2]], "window_size": 7}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt_bigcode": ("gpt_bigcode", {**_THREE, "n_inner": None}),
    "gpt_bigcode_heads": (
        "gpt_bigcode",
        {
            **_THREE,
            "multi_query": False,
            "n_inner": 96,
            "activation_function": "gelu",
            "tie_word_embeddings": False,
        },
    ),
    "gptj": ("gptj", {**_THREE, "rotary_dim": 8, "n_inner": None}),
    "codegen": ("codegen", {**_THREE, "rotary_dim": 12, "n_inner": 96}),
    "gpt_neo": ("gpt_neo", {**_LOCAL, "max_position_embeddings": 96, "num_attention_heads": 16}),
    "opt": ("opt", {**_THREE, "ffn_dim": 96, "word_embed_proj_dim": 64}),
    "opt_350m": (
        "opt",
        {**_THREE, "ffn_dim": 96, "word_embed_proj_dim": 32, "do_layer_norm_before": False},
    ),
    "opt_unbiased": (
        "opt",
        {
            **_THREE,
            "ffn_dim": 96,
            "enable_bias": False,
            "_remove_final_layer_norm": True,
            "activation_function": "gelu",
            "tie_word_embeddings": False,
        },
    ),
}
