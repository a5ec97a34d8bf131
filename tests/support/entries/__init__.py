"""What the reference checkpoints look like: one module per family, each with `ENTRIES`.

ENTRIES: entry -> (model_type, config fields beyond SMALL). An entry should use every layer kind and every
optional tensor of its family; windows are far shorter than the 48 reference tokens.
"""

from typing import Any

SMALL: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
