"""Models that are Llama under another name answer what transformers' Llama answers."""

import importlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.errors import UnsupportedModel
from runtime.models import describe
from tests.support.parity import Reference, full_logits

KIN = {
    "internlm3": "InternLM3ForCausalLM",
    "iquestcoder": "IQuestCoderForCausalLM",
    "xverse": "XverseForCausalLM",
    "telechat3": "TeleChat3ForCausalLM",
    "nanbeige": "NanbeigeForCausalLM",
}
LLAMAS = [name for name in Reference.names() if Reference(name).record["config"]["model_type"] == "llama"]
CONFIG: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


def _named(kind: str, config: dict[str, Any]) -> dict[str, Any]:
    return {**config, "model_type": kind, "architectures": [KIN[kind]]}


@pytest.mark.parametrize("kind", [*KIN])
@pytest.mark.parametrize("name", LLAMAS)
def test_they_answer_as_llama_does(kind: str, name: str, tmp_path: Path) -> None:
    reference = Reference(name)
    model = reference.load(tmp_path, _named(kind, reference.record["config"]))
    assert reference.error(full_logits(model, reference.answers["ids"])) < 1e-4


def test_internlm3_calls_its_biases_otherwise() -> None:
    config = describe(_named("internlm3", {**CONFIG, "qkv_bias": True, "bias": True})).config
    assert (config.qkv_bias, config.output_bias, config.mlp_bias) == (True, True, True)
    assert not describe(_named("xverse", {**CONFIG, "qkv_bias": True})).config.qkv_bias


@pytest.mark.parametrize(("kind", "shared"), [("internlm3", 2), ("iquestcoder", 8)])
def test_what_a_file_leaves_out_is_what_transformers_takes(kind: str, shared: int) -> None:
    config = describe(_named(kind, {**CONFIG, "num_attention_heads": 8})).config
    assert (config.kv_heads, config.head_dim, config.norm_eps) == (shared, 128, 1e-5)


@pytest.mark.parametrize(
    "field",
    [
        {"num_loops": 0},
        {"loop_loss_weights": [0.5]},
        {"enable_double_loop_split": True},
        {"loop_share_kv": True},
        {"enable_depth_attention": True},
        {"skip_loop_final_norm": True},
        {"qk_layernorm": True},
        {"emb_neighbor_num": 2},
        {"hidden_act": "novel"},
    ],
)
def test_what_llama_does_not_do_is_refused_by_name(field: dict[str, Any]) -> None:
    (name,) = field
    with pytest.raises(UnsupportedModel, match=name):
        describe(_named("nanbeige", {**CONFIG, **field}))


@pytest.mark.skipif(find_spec("mlx_lm") is None, reason="mlx-lm is not installed")
@pytest.mark.parametrize("kind", ["telechat3", "nanbeige"])
def test_mlx_lm_computes_the_same(kind: str, tmp_path: Path) -> None:
    """transformers does not have these two, so this is all that can be compared."""
    reference = Reference("llama")
    config = _named(kind, reference.record["config"])
    config |= {"rope_theta": 10000.0}
    file = importlib.import_module(f"mlx_lm.models.{kind}")
    model = reference.load(tmp_path, config)
    theirs = file.Model(file.ModelArgs.from_dict(config))
    theirs.load_weights(str(tmp_path / "model.safetensors"))
    ids = reference.answers["ids"]
    wanted = np.array(theirs(mx.array(ids)[None])[0])
    np.testing.assert_allclose(full_logits(model, ids), wanted, atol=1e-4 * wanted.std(), rtol=0)
