"""Files of Ollama's own converter are the models that llama.cpp's files of the same checkpoints are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modelkit.errors import UnsupportedSource
from modelkit.source.gguf.architectures import Imported
from modelkit.source.gguf.architectures.ollama import in_llama_cpps_words
from modelkit.source.gguf.file import GgufFile
from modelkit.source.gguf.header import GgufTensor
from modelkit.source.gguf.values import Metadata
from runtime.blocks.types import BLOCK_TYPES
from runtime.models import find_family
from tests.support.gguf_references import GgufReference, differences, read, undone

F32 = BLOCK_TYPES["f32"]


def _imported(
    name: str, changes: dict[str, Any], tensors: dict[str, str], own: str = ""
) -> tuple[GgufReference, Imported]:
    """The reference's file with these keys of its architecture (None: without) and tensors by other names.
    own: what the architecture is called.
    """
    reference = GgufReference(name)
    kind = reference.record["architecture"]
    told = {**reference.metadata, **{f"{kind}.{key}": value for key, value in changes.items()}}
    if own:
        told = {key.replace(f"{kind}.", f"{own}."): value for key, value in told.items()}
    values = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in {**told, "general.architecture": own or kind}.items()
        if value is not None
    }
    shapes = {_named(tensor, tensors): shape for tensor, shape in reference.shapes.items()}
    if own == "gemma3":
        shapes |= {"dense.0.weight": (96, 64), "dense.1.weight": (64, 96)}
    made = {tensor: GgufTensor(tensor, F32, shape, Path(), 0, 0) for tensor, shape in shapes.items()}
    found = in_llama_cpps_words(GgufFile("it.gguf", Path(), Metadata(values, "it.gguf"), made, 32, (), ()))
    given = {tensor: one.shape for tensor, one in found.tensors.items()}
    return reference, read(found.metadata, given, reference.exported, "it.gguf")


def _named(tensor: str, tensors: dict[str, str]) -> str:
    fitting = ((end, theirs) for end, theirs in tensors.items() if tensor.endswith(end))
    end, theirs = next(fitting, ("", ""))
    return tensor.removesuffix(end) + theirs


_NO_ROPES = {"rope.freq_base": None, "rope.freq_base_swa": None}
_UNSCALED = {"rope.scaling.type": None, "rope.scaling.factor": None, "context_length": 1 << 17}
_KEY = "attention.layer_norm_rms_epsilon"
_STEPS = {".ssm_dt.bias": ".ssm_dt"}
_SECTIONS = {"rope.dimension_sections": [11, 11, 10], "mrope_sections": [11, 11, 10]}


@pytest.mark.parametrize(
    ("name", "changes", "tensors"),
    [
        ("gemma3", {**_NO_ROPES, "rope.global.freq_base": 1e5, "rope.local.freq_base": 5e3, _KEY: None}, {}),
        ("gemma3", {"rope.freq_base_swa": None, "rope.local.freq_base": 5e3}, {}),
        ("gemma3", {_KEY: None, "mm.tokens_per_image": 256}, {}),
        ("ministral3", {"image_token_index": 10, "spatial_merge_size": 2}, {}),
        ("qwen3_5", {"rope.mrope_interleaved": True, "ssm.v_head_reordered": True}, _STEPS),
        ("qwen3_5_moe", {"image_token_id": 9, "norm_top_k_prob": True, **_SECTIONS}, _STEPS),
        ("qwen3_vl", {"mrope_sections": [4, 2, 2], "image_token_id": 9}, {}),
        ("lfm2", {"feed_forward_length": 12288}, {"token_embd_norm.weight": "output_norm.weight"}),
    ],
)
def test_they_are_read_as_llama_cpps(name: str, changes: dict[str, Any], tensors: dict[str, str]) -> None:
    reference, found = _imported(name, changes, tensors)
    wanted = reference.imported
    family = find_family(wanted.config)
    assert family.parse(found.config) == family.parse(wanted.config)
    assert not differences(undone(found, reference.exported), undone(wanted, reference.exported))


_GPT_OSS = {
    ".attn_sinks.weight": ".attn_sinks",
    ".attn_output.weight": ".attn_out.weight",
    ".attn_output.bias": ".attn_out.bias",
    ".post_attention_norm.weight": ".ffn_norm.weight",
}
_FLASH = {
    "attention.head_count_kv": 4,
    "attention.key_length": 16,
    "attention.value_length": 12,
    **dict.fromkeys(["attention.key_length_mla", "attention.value_length_mla", "expert_group_count"]),
}


@pytest.mark.parametrize(
    ("name", "own", "changes", "tensors"),
    [
        ("gpt_oss", "gptoss", {"expert_feed_forward_length": None, "rope.scaling.type": None}, _GPT_OSS),
        ("embedding_gemma", "gemma3", {"attention.causal": False}, {"output_norm.weight": "norm.weight"}),
        ("glm4_moe_lite", "glm4moelite", _FLASH, {}),
        (
            "qwen2_5_vl",
            "qwen25vl",
            {"rope.dimension_sections": None, "rope.mrope_section": [4, 2, 2], "vision.block_count": 1},
            {},
        ),
    ],
)
def test_they_may_have_an_architecture_of_their_own(
    name: str, own: str, changes: dict[str, Any], tensors: dict[str, str]
) -> None:
    reference, found = _imported(name, changes, tensors, own)
    family = find_family(reference.imported.config)
    assert family.parse(found.config) == family.parse(reference.imported.config)
    assert found.dense == (("dense_2.weight", "dense_3.weight") if own == "gemma3" else ())
    assert not differences(undone(found, reference.exported), undone(reference.imported, reference.exported))


def test_rows_of_gates_and_ups_in_turn_are_refused() -> None:
    with pytest.raises(UnsupportedSource, match="own layout of gpt-oss"):
        _imported("gpt_oss", {}, {".ffn_gate_exps.weight": ".ffn_gate_up_exps.weight"}, "gptoss")


def test_heads_of_keys_may_be_listed_with_layers_that_have_none() -> None:
    reference = GgufReference("qwen3_next")
    full = [reference.imported.config["layer_types"][i] == "full_attention" for i in range(4)]
    heads = reference.metadata["qwen3next.attention.head_count_kv"]
    listed = [heads if one else 0 for one in full]
    _, found = _imported("qwen3_next", {"attention.head_count_kv": listed}, _STEPS)
    assert found.config == reference.imported.config


def test_what_older_files_of_gemma_3_say_wrongly_is_mended() -> None:
    _, found = _imported("gemma3", {**_NO_ROPES, **_UNSCALED, _KEY: None}, {})
    assert found.config["rope_parameters"] == {
        "full_attention": {"rope_theta": 1e6, "rope_type": "linear", "factor": 8.0},
        "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"},
    }
    _, whole = _imported("gemma3", _UNSCALED, {})
    assert whole.config["rope_parameters"]["full_attention"]["rope_type"] == "default"
    bounded = {"block_count": 26, "final_logit_softcapping": 30.0}
    assert "final_logit_softcapping" not in _imported("gemma3", {**bounded, _KEY: None}, {})[1].config
    assert _imported("gemma3", bounded, {})[1].config["final_logit_softcapping"] == 30.0


def test_a_tensor_under_both_names_is_refused() -> None:
    file = GgufReference("qwen3_5")
    shapes = {**file.shapes, "blk.0.ssm_dt": (4,)}
    made = {name: GgufTensor(name, F32, shape, Path(), 0, 0) for name, shape in shapes.items()}
    found = in_llama_cpps_words(GgufFile("it", Path(), Metadata(dict(file.metadata), "it"), made, 32, (), ()))
    given = {name: tensor.shape for name, tensor in found.tensors.items()}
    with pytest.raises(UnsupportedSource, match=r"`blk\.0\.ssm_dt` \[4\]"):
        read(found.metadata, given, file.exported, "it")


def test_heads_of_values_in_another_order_are_refused() -> None:
    with pytest.raises(UnsupportedSource, match="v_head_reordered"):
        _imported("qwen3_5", {"ssm.v_head_reordered": False}, {})


def test_matrices_around_narrow_experts_have_other_names() -> None:
    names = ("blk.1.ffn_latent_in.weight", "blk.1.ffn_latent_out.weight", "output.weight")
    made = {name: GgufTensor(name, F32, (16, 64), Path(), 0, 0) for name in names}
    said = {"general.architecture": "nemotron_h_moe"}
    found = in_llama_cpps_words(GgufFile("it", Path(), Metadata(said, "it"), made, 32, (), ()))
    assert sorted(found.tensors) == [
        *("blk.1.ffn_latent_down.weight", "blk.1.ffn_latent_up.weight"),
        "output.weight",
    ]
    assert found.metadata["nemotron_h_moe.moe_latent_size"] == 16


def test_tokens_without_a_row_are_left_out() -> None:
    tokens = ("a", "b", "c")
    metadata = {"general.architecture": "gemma3", "tokenizer.ggml.tokens": tokens}
    table = GgufTensor("token_embd.weight", F32, (2, 4), Path(), 0, 0)
    file = GgufFile("it", Path(), Metadata(metadata, "it"), {table.name: table}, 32, (), ())
    assert in_llama_cpps_words(file).metadata["tokenizer.ggml.tokens"] == ("a", "b")
    assert np.isclose(float(str(in_llama_cpps_words(file).metadata[f"gemma3.{_KEY}"])), 1e-6)
