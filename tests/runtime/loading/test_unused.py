"""What is stored and never run is said, and nothing else is."""

import pytest

from runtime.loading.unused import unused_parts, without_unused
from runtime.models import describe
from tests.support.parity import Reference


def said(name: str, *more: str) -> tuple[str, ...]:
    record = Reference(name).record
    return unused_parts(describe(record["config"]), [*record["tensors"], *more])


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("nemotron_h", "mtp.layers.0.eh_proj.weight"),
        ("mimo_v2_flash", "model.mtp.layers.0.eh_proj.weight"),
        ("ernie4_5_moe", "model.mtp_linear_proj.0.weight"),
        ("exaone_moe", "mtp.fc.weight"),
        ("hy_v3", "model.layers.4.eh_proj.weight"),
    ],
)
def test_a_head_that_is_not_computed(name: str, tensor: str) -> None:
    (note,) = said(name, tensor)
    assert note.startswith(f"the draft head is stored and not run ({tensor}): heads of ")


def test_a_head_that_is_computed_is_no_matter() -> None:
    assert said("qwen3_5", "mtp.fc.weight") == ()


@pytest.mark.parametrize("name", ["gemma3_wrapped", "gemma4_unified", "mistral3", "qwen3_vl", "muse_glimmer"])
def test_towers(name: str) -> None:
    (note,) = said(name)
    assert note.startswith("what is for images and sound is stored and not run (")
    assert note.endswith("models run on text alone here")


@pytest.mark.parametrize("name", ["deepseek_v3", "gpt2", "jamba", "llama"])
def test_most_models_run_whole(name: str) -> None:
    assert said(name) == ()


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("llama", "model.layers.0.self_attn.rotary_emb.inv_freq"),
        ("gpt2", "transformer.h.0.attn.masked_bias"),
        ("gpt_neo", "transformer.h.0.attn.attention.bias"),
        ("gpt_neox", "gpt_neox.layers.0.attention.masked_bias"),
        ("gptj", "transformer.h.0.attn.causal_mask"),
        ("xglm", "model.embed_positions.weights"),
        ("minimax", "model.layers.0.self_attn.slope_rate"),
        ("deepseek_v4", "layers.0.ffn.gate.bias_vl"),
        ("ouro", "model.early_exit_gate.weight"),
        ("phi3_window", "model.layers.0.mlp.down_proj.lora_A.vision.weight"),
    ],
)
def test_what_no_family_reads_reaches_none(name: str, tensor: str) -> None:
    described = describe(Reference(name).record["config"])
    assert without_unused(described, {"lm_head.weight": 1, tensor: 2}) == {"lm_head.weight": 1}
