"""Tiny block drafts: what their files hold, and what they compute, written down once more in numpy."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from runtime.loaded import LoadedModel
from runtime.loading.load import load_model
from tests.support.checkpoints import write_checkpoint

Array = np.ndarray
State = Mapping[str, Array]

CONFIG: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "num_target_layers": 4,
    "block_size": 6,
    "dflash_config": {"mask_token_id": 159, "target_layer_ids": [0, 2, 1]},
}


def block_config(**changes: Any) -> dict[str, Any]:
    """CONFIG with changes; those named as a field of `dflash_config` go there."""
    own = dict(CONFIG["dflash_config"])
    own |= {
        name: changes.pop(name) for name in [*own, "causal", "use_swa", "swa_window_size"] if name in changes
    }
    return {**CONFIG, **changes, "dflash_config": own}


def block_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Tensors of the file: Laguna's have fused projections, gates and more norms."""
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, shared = (config[f"num_{kind}_heads"] * head for kind in ("attention", "key_value"))
    of_laguna = "Laguna" in config["architectures"][0]
    states = len(config["dflash_config"]["target_layer_ids"])
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, states * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
    }
    if of_laguna:
        shapes |= {f"aux_hidden_norms.{i}.weight": (hidden,) for i in range(states)}
    rows = {"qkv": queries + 2 * shared} if of_laguna else {"q": queries, "k": shared, "v": shared}
    for at in (f"layers.{layer}" for layer in range(config["num_hidden_layers"])):
        shapes |= {f"{at}.{name}_layernorm.weight": (hidden,) for name in ("input", "post_attention")}
        shapes |= {f"{at}.self_attn.{name}_proj.weight": (count, hidden) for name, count in rows.items()}
        shapes[f"{at}.self_attn.o_proj.weight"] = (hidden, queries)
        if config.get("attention_bias"):
            shapes |= {f"{at}.self_attn.{name}_proj.bias": (count,) for name, count in rows.items()}
            shapes[f"{at}.self_attn.o_proj.bias"] = (hidden,)
        if of_laguna:
            per_number = config.get("gating") == "per-element"
            gates = queries if per_number else config["num_attention_heads"]
            shapes[f"{at}.self_attn.g_proj.weight"] = (gates, hidden)
        shapes |= {f"{at}.self_attn.{name}_norm.weight": (head,) for name in "qk"}
        shapes |= {f"{at}.mlp.{name}_proj.weight": (inner, hidden) for name in ("gate", "up")}
        shapes[f"{at}.mlp.down_proj.weight"] = (hidden, inner)
    return shapes


def load_block_draft(folder: Path, config: Mapping[str, Any] = CONFIG) -> LoadedModel:
    write_checkpoint(folder, config, block_shapes(config))
    return load_model(config, [folder / "model.safetensors"])


def block_states(config: Mapping[str, Any], state: State, states: Array, embedded: Array) -> Array:
    """The normed states [L, D] of a block whose embeddings are [L, D], behind target states [T, n * D].

    One token, one head and one key at a time, as the definition says it.
    """
    if "Laguna" in config["architectures"][0]:
        parts = np.split(states, len(config["dflash_config"]["target_layer_ids"]), axis=-1)
        pairs = ((part, state[f"aux_hidden_norms.{i}.weight"]) for i, part in enumerate(parts))
        states = np.concatenate([_normed(part, weight) for part, weight in pairs], axis=-1)
    context = _normed(states @ state["fc.weight"].T, state["hidden_norm.weight"])
    x = embedded
    for layer in range(config["num_hidden_layers"]):
        own = {
            name.removeprefix(f"layers.{layer}."): array
            for name, array in state.items()
            if name.startswith(f"layers.{layer}.")
        }
        x = x + _attended(config, own, context, _normed(x, own["input_layernorm.weight"]), layer)
        y = _normed(x, own["post_attention_layernorm.weight"])
        gate = y @ own["mlp.gate_proj.weight"].T
        up = y @ own["mlp.up_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ own["mlp.down_proj.weight"].T
    return _normed(x, state["norm.weight"])


def _attended(config: Mapping[str, Any], own: State, context: Array, x: Array, layer: int) -> Array:
    of_laguna = "Laguna" in config["architectures"][0]
    if of_laguna:
        context = _normed(context, own["input_layernorm.weight"])
    heads, groups, head = (config[name] for name in _HEADS)
    queries, _, _ = _projected(config, own, x)
    _, keys, values = _projected(config, own, np.concatenate([context, x]))
    at, out = len(context), np.zeros((len(x), heads, head))
    window, causal = _reach(config, layer)
    for i in range(len(x)):
        seen = [j for j in range(at + len(x)) if at + i - j < window and not (causal and j > at + i)]
        for h in range(heads):
            g = h * groups // heads
            query = _turned(config, _normed(queries[i, h], own["self_attn.q_norm.weight"]), at + i)
            turned = [_turned(config, _normed(keys[j, g], own["self_attn.k_norm.weight"]), j) for j in seen]
            scores = np.array([query @ key for key in turned]) / np.sqrt(head)
            weights = np.exp(scores - scores.max())
            out[i, h] = weights @ values[seen, g] / weights.sum()
    if of_laguna:
        gate = np.log1p(np.exp(x @ own["self_attn.g_proj.weight"].T))
        out = out * (gate[..., None] if gate.shape[-1] == heads else gate.reshape(out.shape))
    projected = out.reshape(len(x), -1) @ own["self_attn.o_proj.weight"].T
    return projected + own.get("self_attn.o_proj.bias", 0.0)


_HEADS = ("num_attention_heads", "num_key_value_heads", "head_dim")


def _projected(config: Mapping[str, Any], own: State, x: Array) -> tuple[Array, Array, Array]:
    heads, groups, head = (config[name] for name in _HEADS)
    whole = {
        kind: np.concatenate([own[f"self_attn.{letter}_proj.{kind}"] for letter in "qkv"])
        if f"self_attn.q_proj.{kind}" in own
        else own.get(f"self_attn.qkv_proj.{kind}", np.zeros(()))
        for kind in ("weight", "bias")
    }
    flat = (x @ whole["weight"].T + whole["bias"]).reshape(len(x), heads + 2 * groups, head)
    return flat[:, :heads], flat[:, heads : heads + groups], flat[:, heads + groups :]


def _reach(config: Mapping[str, Any], layer: int) -> tuple[float, bool]:
    """How far a token of the block sees back, and whether later ones are hidden from it."""
    own = config["dflash_config"]
    kinds = config.get("layer_types")
    slides = kinds[layer] == "sliding_attention" if kinds else own.get("use_swa", False)
    causal = own.get("causal", bool(kinds) and slides)
    window = own.get("swa_window_size", config.get("sliding_window"))
    return (window if slides else np.inf), causal


def _turned(config: Mapping[str, Any], x: Array, position: int) -> Array:
    half = len(x) // 2
    angles = position * config["rope_theta"] ** (-np.arange(half) / half)
    first, second = x[:half], x[half:]
    return np.concatenate(
        [first * np.cos(angles) - second * np.sin(angles), second * np.cos(angles) + first * np.sin(angles)]
    )


def _normed(x: Array, weight: Array) -> Array:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * weight
