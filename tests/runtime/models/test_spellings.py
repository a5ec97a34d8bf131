"""Checkpoints of one model under every name they are published by give the same logits.

References hold tensors as transformers names them in memory. What the hub and MLX's converter write
differs: multimodal wrappers, experts one by one, filters in another axis order, norms with their 1 added,
matrices fused or apart.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from runtime.loaded import LoadedModel
from runtime.loading.forecast import check_weights
from runtime.loading.load import load_model
from runtime.models import falcon_h1, qwen3_5
from tests.support.checkpoints import random_state
from tests.support.parity import Reference, bar, full_logits

State = dict[str, np.ndarray]


def _load(folder: Path, config: dict[str, Any], state: State) -> LoadedModel:
    path = folder / "model.safetensors"
    save_file({name: np.ascontiguousarray(array) for name, array in state.items()}, path)
    return load_model(config, [path])


def _filters_turned(state: State) -> State:
    """[C, 1, k] -> [C, k, 1]"""
    return {n: a.swapaxes(1, 2) if a.ndim == 3 and "conv" in n else a for n, a in state.items()}


def _apart(state: State) -> State:
    """Stacked experts one by one, gate and up apart."""
    out: State = {}
    for name, array in state.items():
        stem, found, leaf = name.rpartition(".experts.")
        if not found:
            out[name] = array
            continue
        parts = {leaf: array} if leaf != "gate_up_proj" else dict(_halves(array))
        for part, stack in parts.items():
            out.update({f"{stem}.experts.{i}.{part}.weight": one for i, one in enumerate(stack)})
    return out


def _halves(stack: np.ndarray) -> list[tuple[str, np.ndarray]]:
    gate, up = np.split(stack, 2, axis=1)
    return [("gate_proj", gate), ("up_proj", up)]


def _mlx_experts(state: State) -> State:
    out: State = {}
    for name, array in state.items():
        stem, found, leaf = name.rpartition(".experts.")
        parts = {leaf: array} if leaf != "gate_up_proj" else dict(_halves(array))
        out.update(
            {f"{stem}.switch_mlp.{part}.weight": a for part, a in parts.items()} if found else {name: array}
        )
    return out


def _renamed(*pairs: tuple[str, str]) -> Callable[[State], State]:
    def rename(state: State) -> State:
        out: State = {}
        for name, array in state.items():
            for pattern, replacement in pairs:
                name = re.sub(pattern, replacement, name)
            out[name] = array
        return out

    return rename


def _wrapped(state: State) -> State:
    renamed = _renamed((r"^model\.", "model.language_model."))(state)
    return {**renamed, "model.visual.patch_embed.proj.weight": np.zeros((2, 2), np.float32)}


def _qwen_mlx(state: State) -> State:
    shifted = {
        n: a + 1 if re.search(r"norm\w*\.weight$", n) and "linear_attn.norm" not in n else a
        for n, a in _filters_turned(_mlx_experts(state)).items()
    }
    return _renamed((r"^model\.", "language_model.model."), (r"^lm_head", "language_model.lm_head"))(shifted)


def _thirds(pattern: str, replacement: str) -> Callable[[State], State]:
    """One joined tensor -> three, for queries, keys and values; replacement has {} for q, k and v."""

    def split(state: State) -> State:
        out: State = {}
        for name, array in state.items():
            if re.search(pattern, name):
                for letter, part in zip("qkv", _sizes(name, array), strict=True):
                    out[re.sub(pattern, replacement.format(letter), name)] = part
            else:
                out[name] = array
        return out

    return split


def _sizes(name: str, array: np.ndarray) -> list[np.ndarray]:
    return np.split(array, 3) if "self_attn" in name else np.split(array, [64, 128])


def _kimi_published(state: State) -> State:
    state = _thirds(r"\.conv1d\.", ".{}_conv1d.")(state)
    state = _apart(_renamed((r"\.forget_gate\.", "."))(state))
    experts = (r"experts\.(\d+)\.gate_proj", r"experts.\1.w1"), (r"experts\.(\d+)\.up_proj", r"experts.\1.w3")
    sparse = {re.match(r"(model\.layers\.\d+)", n)[1] for n in state if ".experts." in n}  # pyright: ignore[reportOptionalSubscript]
    state = _renamed(*experts, (r"experts\.(\d+)\.down_proj", r"experts.\1.w2"))(state)
    return {
        n.replace(".mlp.", ".block_sparse_moe.") if n.startswith(tuple(sparse)) else n: a
        for n, a in state.items()
    }


def _ling_published(state: State) -> State:
    """With `dense` in latent attention and `o_proj` in delta nets."""
    latent = {name.rpartition(".kv_b_proj.")[0] for name in state if ".kv_b_proj." in name}
    state = {
        n.replace(".o_proj.", ".dense.") if n.rpartition(".o_proj.")[0] in latent else n: a
        for n, a in _kimi_published(state).items()
    }
    return _renamed(
        (r"block_sparse_moe", "mlp"),
        (r"\.w1\.", ".gate_proj."),
        (r"\.w2\.", ".down_proj."),
        (r"\.w3\.", ".up_proj."),
        (r"e_score_correction_bias", "expert_bias"),
        (r"self_attn", "attention"),
        (r"embed_tokens", "word_embeddings"),
    )(state)


SPELLINGS: dict[str, tuple[str, Callable[[State], State]]] = {
    "qwen3_5 wrapped": ("qwen3_5", _wrapped),
    "qwen3_5 by MLX": ("qwen3_5", _qwen_mlx),
    "qwen3_5_moe one by one": ("qwen3_5_moe", lambda state: _wrapped(_apart(state))),
    "qwen3_5_moe by MLX": ("qwen3_5_moe", _qwen_mlx),
    "qwen3_next one by one": ("qwen3_next", _apart),
    "qwen3_next by MLX": ("qwen3_next", lambda state: _qwen_mlx(state)),
    "mamba2 by MLX": ("mamba2", _filters_turned),
    "mamba by MLX": ("mamba", _filters_turned),
    "mamba of old": ("mamba", _renamed((r"backbone\.embeddings", "backbone.embedding"))),
    "lfm2 by MLX": ("lfm2", _filters_turned),
    "lfm2_moe published": (
        "lfm2_moe",
        lambda state: _renamed(
            (r"(experts\.\d+)\.gate_proj", r"\1.w1"),
            (r"(experts\.\d+)\.up_proj", r"\1.w3"),
            (r"(experts\.\d+)\.down_proj", r"\1.w2"),
        )(_apart(state)),
    ),
    "lfm2_moe by MLX": (
        "lfm2_moe",
        lambda state: _renamed(
            (r"\.w1\.", ".gate_proj."), (r"\.w2\.", ".down_proj."), (r"\.w3\.", ".up_proj.")
        )(_filters_turned(_mlx_experts(state))),
    ),
    "nemotron_h published": (
        "nemotron_h",
        lambda state: _renamed((r"^model\.", "backbone."))(_apart(state)),
    ),
    "nemotron_h by MLX": (
        "nemotron_h",
        lambda state: _renamed(
            (r"^model\.", "backbone."),
            (r"switch_mlp\.up_proj", "switch_mlp.fc1"),
            (r"switch_mlp\.down_proj", "switch_mlp.fc2"),
        )(_filters_turned(_mlx_experts(state))),
    ),
    "granitemoehybrid published": (
        "granitemoehybrid",
        _renamed(
            (r"experts\.gate_up_proj", "input_linear.weight"),
            (r"experts\.down_proj", "output_linear.weight"),
            (r"router\.weight", "router.layer.weight"),
        ),
    ),
    "granitemoehybrid by MLX": ("granitemoehybrid", lambda state: _filters_turned(_mlx_experts(state))),
    "jamba published": ("jamba", _apart),
    "olmo_hybrid published": (
        "olmo_hybrid",
        lambda state: _thirds(r"\.linear_attn\.conv1d\.", ".linear_attn.{}_conv1d.")(state),
    ),
    "kimi_linear published": ("kimi_linear", _kimi_published),
    "bailing_hybrid published": ("bailing_hybrid", _ling_published),
    "zamba with its shared block repeated": (
        "zamba",
        lambda state: (
            state
            | {n.replace("layers.1.", "layers.3."): a for n, a in state.items() if ".1.shared_transf." in n}
        ),
    ),
    "zamba2 with shared blocks repeated": (
        "zamba2",
        lambda state: (
            state
            | {
                n.replace("layers.1.", "layers.4."): a
                for n, a in state.items()
                if ".1.shared_transformer." in n
            }
        ),
    ),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_same_model_under_another_spelling(spelling: str, tmp_path: Path) -> None:
    name, respell = SPELLINGS[spelling]
    reference = Reference(name)
    state = respell(random_state(reference.record["tensors"]))
    model = _load(tmp_path, reference.record["config"], state)
    assert reference.error(full_logits(model, reference.answers["ids"])) < bar(reference)


def test_multipliers_that_mlx_folded_in_are_taken_out(tmp_path: Path) -> None:
    reference = Reference("falcon_h1")
    raw = reference.record["config"]
    config = falcon_h1.parse(raw)
    state = _filters_turned(random_state(reference.record["tensors"]))
    for name, array in state.items():
        by = falcon_h1.folded_by_mlx(config).get(name.split(".")[-2])
        if by is not None and name.endswith(".weight"):
            state[name] = array * np.asarray(by, np.float32)
    model = _load(tmp_path, raw, state)
    assert reference.error(full_logits(model, reference.answers["ids"])) < bar(reference)


def test_a_config_that_nests_its_text_tower(tmp_path: Path) -> None:
    reference = Reference("qwen3_5_moe")
    inner = reference.record["config"]
    config = {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "model_type": "qwen3_5_moe",
        "text_config": {key: value for key, value in inner.items() if key != "architectures"},
    }
    model = _load(tmp_path, config, _wrapped(random_state(reference.record["tensors"])))
    assert reference.error(full_logits(model, reference.answers["ids"])) < bar(reference)


def test_the_older_spelling_of_layer_kinds(tmp_path: Path) -> None:
    reference = Reference("nemotron_h")
    config = {
        k: v for k, v in reference.record["config"].items() if k not in ("layers_block_type", "layer_types")
    }
    model = reference.load(tmp_path, {**config, "hybrid_override_pattern": "M-*EM"})
    assert reference.error(full_logits(model, reference.answers["ids"])) < bar(reference)


def test_kimi_s_own_way_to_say_what_layers_are(tmp_path: Path) -> None:
    reference = Reference("kimi_linear")
    dropped = (
        "layer_types",
        "mlp_layer_types",
        "linear_head_dim",
        "linear_num_heads",
        "linear_conv_kernel_dim",
    )
    config = {key: value for key, value in reference.record["config"].items() if key not in dropped}
    config["linear_attn_config"] = {
        "head_dim": 16,
        "num_heads": 4,
        "short_conv_kernel_size": 4,
        "full_attn_layers": [2],
        "kda_layers": [1, 3],
    }
    model = reference.load(tmp_path, config)
    assert reference.error(full_logits(model, reference.answers["ids"])) < bar(reference)


def test_ling_s_own_sizes_of_heads(tmp_path: Path) -> None:
    reference = Reference("bailing_hybrid")
    dropped = (
        "layer_types",
        "mlp_layer_types",
        "linear_head_dim",
        "linear_num_heads",
        "linear_conv_kernel_dim",
    )
    config = {key: value for key, value in reference.record["config"].items() if key not in dropped}
    model = reference.load(tmp_path, {**config, "head_dim": 16})
    assert reference.error(full_logits(model, reference.answers["ids"])) < bar(reference)


def _head_tensors(reference: Reference) -> dict[str, tuple[int, ...]]:
    """A draft head beside the target: its one layer has the shapes of the target's attention layer 3."""
    hidden = reference.record["config"]["hidden_size"]
    of_layer = {
        name.replace("model.layers.3.", "mtp.layers.0."): tuple(shape)
        for name, shape in reference.record["tensors"].items()
        if name.startswith("model.layers.3.")
    }
    norms = {
        f"mtp.{name}.weight": (hidden,) for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")
    }
    return {**of_layer, **norms, "mtp.fc.weight": (hidden, 2 * hidden)}


@pytest.mark.parametrize("name", ["qwen3_5", "qwen3_5_moe", "qwen3_next"])
def test_a_draft_head_in_the_file_is_no_surplus(name: str) -> None:
    reference = Reference(name)
    tensors = {**reference.record["tensors"], **_head_tensors(reference)}
    stored = {tensor: ("F32", tuple(shape)) for tensor, shape in tensors.items()}
    assert check_weights(reference.record["config"], stored) == []


@pytest.mark.parametrize("name", ["qwen3_5", "qwen3_5_moe", "qwen3_next"])
def test_the_head_takes_exactly_its_own_tensors(name: str) -> None:
    from mlx.core import array
    from mlx.utils import tree_flatten

    reference = Reference(name)
    config = qwen3_5.parse(json.loads(json.dumps(reference.record["config"])))
    state = random_state({**reference.record["tensors"], **_head_tensors(reference)})
    taken = qwen3_5.adapt_head(config, {tensor: array(value) for tensor, value in state.items()})
    wanted: Any = tree_flatten(qwen3_5.build_head(config).parameters())
    assert {tensor: value.shape for tensor, value in taken.items()} == {k: v.shape for k, v in wanted}
