"""Models that GGUF has under names of their own, and that are a Llama or a Granite all the same."""

from typing import Any

import numpy as np
import pytest

from modelkit.errors import UnsupportedSource
from runtime.models import find_family
from tests.support.gguf_references import GgufReference, describe, differences, export, read, undone


@pytest.mark.parametrize(
    ("kind", "architecture"),
    [
        ("internlm3", "llama"),
        ("aquila", "llama"),
        ("Yi", "llama"),
        ("kormo", "llama"),
        ("iquestcoder", "llama"),
        ("telechat3", "llama"),
        ("ministral", "llama"),
        ("xverse", "xverse"),
        ("nanbeige", "nanbeige"),
    ],
)
def test_llamas_by_other_names_are_written_and_read_as_llama_is(kind: str, architecture: str) -> None:
    reference = GgufReference("llama")
    config = {**reference.config, "model_type": kind, "architectures": [], "sliding_window": None}
    found = describe(config, reference.package, "model")
    assert found.architecture == architecture
    assert dict(found.tensors) == dict(reference.described.tensors)
    for key, value in reference.described.metadata.items():
        own = key.replace("llama.", f"{architecture}.")
        assert found.metadata.get(own, value) == (architecture if own.startswith("general.") else value)
    again = read(found.metadata, reference.shapes, reference.exported, "model").config
    named = ("architectures", "model_type", "num_loops", "skip_loop_final_norm", "attention_bias", "mlp_bias")
    assert {key: value for key, value in again.items() if key not in named} == {
        key: value for key, value in reference.imported.config.items() if key not in named
    }


def test_biases_that_a_file_has_by_its_family_are_written() -> None:
    reference = GgufReference("llama_biases_tied")
    plain = {key: one for key, one in reference.config.items() if key != "attention_bias"}
    for kind in ("internlm", "PanguEmbedded"):
        found = describe({**plain, "model_type": kind, "architectures": []}, reference.package, "model")
        assert dict(found.tensors) == dict(reference.described.tensors)


def test_the_first_stablelm_is_written_as_the_others_are() -> None:
    reference = GgufReference("stablelm")
    told: dict[str, Any] = {**reference.config, "model_type": "stablelm_epoch", "architectures": []}
    block = told.pop("rope_parameters")
    told |= {"norm_eps": told.pop("layer_norm_eps"), "rope_pct": block["partial_rotary_factor"]}
    found = describe({**told, "rope_theta": block["rope_theta"]}, reference.package, "model")
    assert dict(found.tensors) == dict(reference.described.tensors)
    assert dict(found.metadata) == dict(reference.described.metadata)


@pytest.mark.parametrize(
    ("name", "architecture", "kept"),
    [
        ("llama", "internlm2", False),
        ("llama", "exaone", True),
        ("llama_llama3_rope", "exaone", True),
        ("llama", "pangu-embedded", True),
        ("granite", "minicpm", False),
        ("granitemoe", "minicpm", False),
        ("llama", "paddleocr", True),
        ("hunyuan", "hunyuan_vl", False),
    ],
)
def test_what_is_read_alone_is_the_model_that_it_is(name: str, architecture: str, kept: bool) -> None:
    """kept: the rows of a head are as in the checkpoint."""
    reference = GgufReference(name)
    prefix = reference.record["architecture"]
    told = {key.replace(f"{prefix}.", f"{architecture}."): one for key, one in reference.metadata.items()}
    scale = told.pop(f"{architecture}.attention.scale", None)
    told["general.architecture"] = architecture
    theirs = dict(reference.exported)
    for block in range(reference.imported.config["num_hidden_layers"] if kept else 0):
        for part in "qk":
            own = f"model.layers.{block}.self_attn.{part}_proj.weight"
            theirs[f"blk.{block}.attn_{part}.weight"] = reference.checkpoint[own]
    found = read(told, reference.shapes, theirs, "model")
    wanted = dict(reference.imported.config)
    if scale is not None:
        wanted["attention_multiplier"] = (wanted["hidden_size"] // wanted["num_attention_heads"]) ** -0.5
    parsed, again = (find_family(one).parse(one) for one in (wanted, found.config))
    assert parsed == again
    assert not differences(undone(found, theirs), undone(reference.imported, reference.exported))


def test_hunyuan_for_pictures_says_how_far_its_rotation_is_stretched() -> None:
    reference = GgufReference("hunyuan")
    told = {key.replace("-dense.", "_vl."): one for key, one in reference.metadata.items()}
    told |= {"general.architecture": "hunyuan_vl", "hunyuan_vl.rope.freq_base": 10000.0}
    told |= {"hunyuan_vl.rope.scaling.type": "none", "hunyuan_vl.rope.scaling.alpha": 1000.0}
    told |= {"hunyuan_vl.rope.dimension_sections": [2, 2, 2, 2]}
    block = read(told, reference.shapes, reference.exported, "model").config["rope_parameters"]
    assert block["rope_theta"] == pytest.approx(10000 * 1000 ** (16 / 14))


def test_a_llama_for_embeddings_looks_both_ways() -> None:
    reference = GgufReference("llama")
    told = {key.replace("llama.", "llama-embed."): one for key, one in reference.metadata.items()}
    told["general.architecture"] = "llama-embed"
    found = read(told, reference.shapes, reference.exported, "model")
    assert found.config["is_causal"] is False
    assert found.tensors == reference.imported.tensors


def test_heads_of_the_second_baichuan_are_written_normed() -> None:
    """llama.cpp takes them as they stand."""
    reference = GgufReference("baichuan")
    config = {**reference.config, "z_loss_weight": 0}
    found = export(describe(config, reference.package, "model"), reference.package)
    wanted = dict(reference.exported)
    head = wanted.pop("output.weight")
    assert np.allclose(found.pop("output.weight"), head / np.linalg.norm(head, axis=1, keepdims=True))
    assert not differences(found, wanted)


def test_what_old_files_of_minicpm_do_not_say_is_the_published_models() -> None:
    reference = GgufReference("granite")
    told = {key.replace("granite.", "minicpm."): one for key, one in reference.metadata.items()}
    gone = ("embedding_scale", "residual_scale", "logit_scale", "attention.scale")
    told = {key: one for key, one in told.items() if not key.endswith(gone)}
    told["general.architecture"] = "minicpm"
    config = read(told, reference.shapes, reference.exported, "model").config
    assert config["embedding_multiplier"] == 12.0
    assert config["residual_multiplier"] == pytest.approx(1.4 / config["num_hidden_layers"] ** 0.5)
    assert config["logits_scaling"] == config["hidden_size"] / 256


def test_a_matrix_for_all_three_of_glm_with_axes_is_refused() -> None:
    """Its rows would be taken for those of a file whose pairs are neighbours."""
    reference = GgufReference("glm_ocr")
    shapes = dict(reference.shapes)
    parts = [shapes.pop(f"blk.0.attn_{part}.weight") for part in "qkv"]
    shapes["blk.0.attn_qkv.weight"] = (sum(rows for rows, _ in parts), parts[0][1])
    with pytest.raises(UnsupportedSource, match="attn_qkv"):
        read(reference.metadata, shapes, reference.exported, "model")


def test_passes_of_ouro_end_in_the_norm() -> None:
    reference = GgufReference("ouro")
    assert reference.imported.config["total_ut_steps"] == 4
    told = {**reference.metadata, "ouro.skip_loop_final_norm": True}
    with pytest.raises(UnsupportedSource, match="passes do not end in the last norm"):
        read(told, reference.shapes, reference.exported, "model")


def test_passes_of_nanbeige_are_read() -> None:
    reference = GgufReference("nanbeige")
    config = reference.imported.config
    assert (config["num_loops"], config["skip_loop_final_norm"]) == (2, False)
    assert find_family(config).layout is not find_family({**config, "num_loops": 1}).layout
