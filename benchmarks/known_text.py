"""Models without a meaning, for measuring speculation: what they say is known beforehand.

The head of a made-up llama has, as the row of the token that follows t in a fixed order of all tokens, the
embedding of t. Its layers have small random weights, so they cost what any layers cost and hardly disturb
that: the model walks the order. Another one with the same order is a perfect draft for it, one with another
order a useless one. A prompt that holds a piece of the order is quoted by the answer; one that does not never
is.
"""

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

VOCAB_SIZE = 8192
SURE = 40.0  # the logit of the token that follows; all others stay near 0


def order(seed: int) -> np.ndarray:
    """int [V]: the token that follows each token; one cycle through all of them."""
    walk = np.random.default_rng(seed).permutation(VOCAB_SIZE)
    following = np.empty(VOCAB_SIZE, dtype=np.int64)
    following[walk] = np.roll(walk, -1)
    return following


def walk(following: np.ndarray, first: int, count: int) -> list[int]:
    """`count` tokens of the order, from `first` on."""
    tokens = [first]
    while len(tokens) < count:
        tokens.append(int(following[tokens[-1]]))
    return tokens


Files = tuple[dict[str, Any], list[Path]]
"""A config, and the file of weights."""


def make(folder: Path, following: np.ndarray, *, layers: int, width: int) -> Files:
    """Write a checkpoint."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCAB_SIZE,
        "hidden_size": width,
        "intermediate_size": 3 * width,
        "num_hidden_layers": layers,
        "num_attention_heads": width // 64,
        "num_key_value_heads": max(width // 128, 1),
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
    }
    rng = np.random.default_rng(width)
    embedding = rng.standard_normal((VOCAB_SIZE, width)).astype(np.float32)
    head = np.empty_like(embedding)
    head[following] = embedding * (SURE / width)
    weights = {"model.embed_tokens.weight": embedding, "lm_head.weight": head}
    weights["model.norm.weight"] = np.ones(width, np.float32)
    for layer in range(layers):
        weights |= {f"model.layers.{layer}.{name}": value for name, value in _layer(rng, width).items()}
    path = folder / "model.safetensors"
    folder.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(path), {name: mx.array(value) for name, value in weights.items()})
    return config, [path]


def _layer(rng: np.random.Generator, width: int) -> dict[str, np.ndarray]:
    kv, inner = max(width // 128, 1) * 64, 3 * width
    shapes = {
        "self_attn.q_proj": (width, width),
        "self_attn.k_proj": (kv, width),
        "self_attn.v_proj": (kv, width),
        "self_attn.o_proj": (width, width),
        "mlp.gate_proj": (inner, width),
        "mlp.up_proj": (inner, width),
        "mlp.down_proj": (width, inner),
    }
    matrices = {
        f"{name}.weight": (0.01 * rng.standard_normal(shape)).astype(np.float32)
        for name, shape in shapes.items()
    }
    norms = ("input_layernorm.weight", "post_attention_layernorm.weight")
    return matrices | {name: np.ones(width, np.float32) for name in norms}
