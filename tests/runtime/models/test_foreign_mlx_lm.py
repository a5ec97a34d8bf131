"""mlx-lm's own classes give behind our memory what they give behind mlx-lm's caches.

Skipped where mlx-lm is not installed.
"""

import importlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from runtime.errors import UnsupportedModel
from runtime.loaded import LoadedModel, load_model
from runtime.models import describe
from tests.support.checkpoints import write_checkpoint
from tests.support.parity import cut_logits, full_logits, ragged_logits

pytestmark = [
    pytest.mark.skipif(find_spec("mlx_lm") is None, reason="mlx-lm is not installed"),
    pytest.mark.filterwarnings("ignore"),  # of its imports
]

SHAPE: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 512,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
}
SLIDING = ["full_attention", "sliding_attention", "sliding_attention"]
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
LATENT = {
    "q_lora_rank": 24,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
}
EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.0,
    "norm_topk_prob": True,
    "n_group": 1,
    "topk_group": 1,
}

# What each config exercises, and the kinds of its layers.
CONFIGS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "helium": (SHAPE, ["full"] * 3),  # plain attention
    "spark2_5": (  # windows, two ropes
        {
            **SHAPE,
            "sliding_window": 8,
            "layer_types": SLIDING,
            "rope_parameters": {"full_attention": ROPE, "sliding_attention": ROPE},
        },
        ["full", "rotating", "rotating"],
    ),
    "gear": (  # attention, a window and a fold in one model
        {
            **SHAPE,
            "num_hidden_layers": 4,
            "sliding_window": 8,
            "layer_types": ["full_attention", "sliding_attention", "conv_mixer", "full_attention"],
        },
        ["full", "rotating", "recurrent", "full"],
    ),
    "rwkv7": (  # folds only
        {
            "vocab_size": 160,
            "hidden_size": 64,
            "intermediate_size": 96,
            "norm_eps": 1e-5,
            "head_dim": 32,
            "num_hidden_layers": 2,
            "a_low_rank_dim": 16,
            "v_low_rank_dim": 16,
            "gate_low_rank_dim": 16,
            "decay_low_rank_dim": 16,
        },
        ["recurrent"] * 2,
    ),
    "baichuan_m1": (  # lists of caches, a window
        {
            **SHAPE,
            "num_attention_heads": 4,
            "num_swa_attention_heads": 4,
            "num_swa_key_value_heads": 2,
            "sliding_window": 8,
            "sliding_window_layers": [1],
            "conv_window": 2,
            "rope_theta": 10000.0,
        },
        ["recurrent", "full", "recurrent", "rotating", "recurrent", "full"],
    ),
    "kimi_vl": (  # a wrapper around a text model with latent attention and experts
        {"text_config": {**SHAPE, **LATENT, **EXPERTS, "num_key_value_heads": 4}},
        ["full"] * 3,
    ),
    "gpt_bigcode": (  # one position for all rows
        {
            "n_embd": 64,
            "n_layer": 2,
            "n_inner": 96,
            "n_head": 4,
            "n_positions": 512,
            "layer_norm_epsilon": 1e-5,
            "vocab_size": 160,
        },
        ["full"] * 2,
    ),
}
IDS = np.random.default_rng(1).integers(0, 160, 28).astype(np.int32)


def _config(kind: str) -> dict[str, Any]:
    return {**CONFIGS[kind][0], "model_type": kind, "architectures": [f"{kind.title()}ForCausalLM"]}


class Pair:
    """One checkpoint in both."""

    def __init__(self, kind: str, folder: Path) -> None:
        config = _config(kind)
        file = importlib.import_module(f"mlx_lm.models.{kind}")
        self.theirs = file.Model(file.ModelArgs.from_dict(config))
        shapes = {name: array.shape for name, array in tree_flatten(self.theirs.parameters())}
        path = write_checkpoint(folder, config, shapes) / "model.safetensors"
        weights: Any = mx.load(str(path))
        if hasattr(self.theirs, "sanitize"):
            weights = self.theirs.sanitize(weights)
        self.theirs.load_weights(list(weights.items()))
        self.theirs.eval()
        self.ours: LoadedModel = load_model(config, [path])

    def expected(self, cuts: list[int]) -> np.ndarray:
        """float32 [T, V] by mlx-lm alone, in steps of these widths (the last one repeats)."""
        caches = importlib.import_module("mlx_lm.models.cache").make_prompt_cache(self.theirs)
        out, at = [], 0
        while at < len(IDS):
            part = IDS[at : at + cuts[min(len(out), len(cuts) - 1)]]
            out.append(np.array(self.theirs(mx.array(part)[None], cache=caches)[0]))
            at += len(part)
        return np.concatenate(out)


@pytest.fixture(scope="module", params=[*CONFIGS])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(request.param, tmp_path_factory.mktemp(request.param))


def _close(got: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(got, wanted, atol=1e-4 * wanted.std(), rtol=0)


@pytest.mark.parametrize("kind", [*CONFIGS])
def test_layers_map_on_ours(kind: str) -> None:
    described = describe(_config(kind))
    assert [spec.kind for spec in described.layout] == CONFIGS[kind][1]
    assert described.vocab_size == 160
    assert described.config.form.trunk


def test_one_pass_and_any_cutting_agree(pair: Pair) -> None:
    _close(full_logits(pair.ours, IDS), pair.expected([28]))
    for cuts in ([1], [7, 1, 12, 1]):
        _close(cut_logits(pair.ours, IDS, cuts), pair.expected(cuts))


def test_a_ragged_batch_agrees_with_rows_alone(pair: Pair) -> None:
    wanted = pair.expected([7, 1])
    rows = [IDS[:24], IDS[:9], IDS[:18]]
    for got, row in zip(ragged_logits(pair.ours, rows), rows, strict=True):
        _close(got, wanted[: len(row)])


@pytest.mark.parametrize(
    ("model_type", "words"),
    [
        ("novel", "has no model_type 'novel' either"),
        ("cache", "has no model_type 'cache' either"),  # a file, and no model
        ("../../evil", "has no model_type"),
        ("phi3small", "gives wrong text"),
        ("deepseek_v41", "keep a LayerCache"),
    ],
)
def test_what_mlx_lm_has_not_or_not_right_is_refused(model_type: str, words: str) -> None:
    config = {**SHAPE, "architectures": ["NovelForCausalLM"], "model_type": model_type}
    with pytest.raises(UnsupportedModel, match=words):
        describe(config)
