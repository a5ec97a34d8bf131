"""Chameleon: norms before sublayers and behind them. What is for images is as small as can be."""

from typing import Any

_VQ: dict[str, Any] = {"embed_dim": 8, "num_embeddings": 8, "latent_channels": 8, "base_channels": 32}
_OWN: dict[str, Any] = {
    "vq_config": {**_VQ, "channel_multiplier": [1], "num_res_blocks": 1, "attn_resolutions": []},
    "vocabulary_map": {"<image>": 5},
}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "chameleon": ("chameleon", _OWN),
    "chameleon_behind": ("chameleon", {**_OWN, "swin_norm": True, "attention_bias": True, "mlp_bias": True}),
}
