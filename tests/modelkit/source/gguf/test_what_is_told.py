"""What a GGUF file or a model says that the other side cannot take: refused by name, or told."""

import re
from typing import Any

import numpy as np
import pytest

from modelkit.errors import MalformedFile, UnsupportedSource
from modelkit.source.gguf.architectures import NAMES
from modelkit.source.gguf.architectures.llama3 import llama3_block, llama3_factors
from runtime.config.text import text_config
from runtime.nn.positions.rope_spec import read_rope
from tests.support.checkpoints import legacy_config
from tests.support.gguf_references import GgufReference, describe, export, read

_KEPT: dict[str, GgufReference] = {}


def _changed(name: str, **changes: Any) -> Any:
    """Read a reference with other metadata (None: without the key)."""
    reference = _KEPT.setdefault(name, GgufReference(name))
    metadata = {**reference.metadata, **{key.replace("__", "."): value for key, value in changes.items()}}
    metadata = {key: value for key, value in metadata.items() if value is not None}
    return read(metadata, reference.shapes, reference.exported, "model.gguf")


@pytest.mark.parametrize(
    ("name", "said"),
    [("lama", r"read: llama, .*\. docs/import\.md lists"), ("zzz", r"^docs/import\.md lists")],
)
def test_an_unknown_architecture_is_refused_with_those_that_are_like_it(name: str, said: str) -> None:
    with pytest.raises(UnsupportedSource, match=f"`{name}`, which") as caught:
        _changed("llama", general__architecture=name)
    assert re.search(said, caught.value.hint or "")
    assert len(caught.value.hint or "") < 150
    assert f"all {len(NAMES)}, under `Architectures of GGUF`" in (caught.value.hint or "")


def test_a_key_that_nothing_reads_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedSource, match=r"`llama\.attention\.stripes`"):
        _changed("llama", llama__attention__stripes=3)


def test_an_importance_matrix_is_called_so_though_it_has_no_architecture() -> None:
    with pytest.raises(UnsupportedSource, match=r"is not a model: its `general\.type` is 'imatrix'"):
        _changed("llama", general__architecture=None, general__type="imatrix")


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("general__type", "adapter", UnsupportedSource),
        ("general__architecture", None, MalformedFile),
        ("llama__block_count", None, MalformedFile),
        ("llama__block_count", 0, MalformedFile),
        ("llama__block_count", "four", MalformedFile),
        ("llama__block_count", 1 << 40, MalformedFile),
        ("llama__embedding_length", None, MalformedFile),
        ("llama__nextn_predict_layers", 9, MalformedFile),
        ("llama__rope__dimension_count", 64, MalformedFile),
        ("llama__rope__scaling__type", "spiral", UnsupportedSource),
        ("llama__attention__value_length", 8, UnsupportedSource),
    ],
)
def test_metadata_that_cannot_be_is_refused(key: str, value: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"model\.gguf"):
        _changed("llama", **{key: value})


def test_who_sees_what_stands_behind() -> None:
    assert _changed("llama", llama__attention__causal=False).config["is_causal"] is False
    assert "is_causal" not in _changed("llama", llama__attention__causal=True).config
    with pytest.raises(UnsupportedSource, match="tokens see those behind them"):
        _changed("granite", granite__attention__causal=False)


def test_what_ollama_keeps_in_the_same_file_is_left_out_and_told() -> None:
    """The tower for images with its keys, and a draft head."""
    reference = GgufReference("gemma3")
    shapes = {**reference.shapes, "v.blk.0.attn_q.weight": (8, 8), "mm.input.weight": (8, 8)}
    metadata = {**reference.metadata, "gemma3.vision.block_count": 27, "gemma3.attention.causal": True}
    imported = read(metadata, {**shapes, "mtp.fc.weight": (8, 8)}, reference.exported, "model.gguf")
    assert imported.tensors.keys() == reference.imported.tensors.keys()
    assert [note for note in imported.notes if "2 tensors for images" in note]
    assert [note for note in imported.notes if "draft head" in note]


@pytest.mark.parametrize("key", ["expert_gating_func", "expert_weights_scale"])
def test_a_router_of_another_kind_is_refused(key: str) -> None:
    with pytest.raises((MalformedFile, UnsupportedSource), match=key):
        _changed("qwen3_moe", **{f"qwen3moe__{key}": 2})


@pytest.mark.parametrize(
    ("tensor", "shape"), [("blk.0.stripes.weight", (4,)), ("blk.9.attn_q.weight", (63, 64)), ("stray", (1,))]
)
def test_a_tensor_too_many_is_refused_by_name(tensor: str, shape: tuple[int, ...]) -> None:
    reference = GgufReference("llama")
    with pytest.raises(UnsupportedSource, match=tensor.replace(".", r"\.")):
        read(reference.metadata, {**reference.shapes, tensor: shape}, reference.exported, "model.gguf")


def test_rows_of_a_head_that_have_no_id_are_left_out() -> None:
    """PLaMo's checkpoints have a multiple of 16; llama.cpp loads as many as there are tokens."""
    reference = GgufReference("plamo2")
    config = {**reference.config, "vocab_size": 150, "tie_word_embeddings": False}
    table = reference.package["model.embed_tokens.weight"]
    ours = {**reference.package, "model.embed_tokens.weight": table[:150], "lm_head.weight": table}
    assert np.array_equal(export(describe(config, ours, "it"), ours)["output.weight"], table[:150])


def test_a_file_without_an_embedding_is_no_model() -> None:
    reference = GgufReference("llama")
    shapes = {name: shape for name, shape in reference.shapes.items() if name != "token_embd.weight"}
    with pytest.raises(MalformedFile, match=r"token_embd\.weight"):
        read(reference.metadata, shapes, reference.exported, "model.gguf")


def test_heads_of_keys_that_contradict_the_tensors_are_refused() -> None:
    """llama.cpp's converter writes zeros for configs of transformers 5, and leaves rows as they were."""
    with pytest.raises(UnsupportedSource, match="head_count_kv"):
        _changed("granitemoehybrid", granitehybrid__attention__head_count_kv=[0, 0, 0])


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("kimi_linear", "kimi-linear__attention__head_count_kv", [1, 0, 1]),
        ("kimi_linear", "kimi-linear__expert_weights_norm", False),
        ("mistral4", "mistral4__rope__scaling__yarn_log_multiplier", 0.07),
        ("mistral4", "mistral4__attention__temperature_length", 9),
        ("mistral4", "mistral4__expert_gating_func", 2),
        ("t5", "t5__decoder_block_count", 1),
        ("t5", "t5__attention__value_length", 8),
        ("phi3_window", "phi3__rope__scaling__attn_factor", 2.0),
    ],
)
def test_what_contradicts_the_rest_or_is_not_computed_is_refused(name: str, key: str, value: Any) -> None:
    with pytest.raises((MalformedFile, UnsupportedSource), match=r"model\.gguf"):
        _changed(name, **{key: value})


def test_a_slope_that_the_converter_does_not_write_is_told() -> None:
    reference = GgufReference("mistral4")
    assert any("0.1 is taken" in note for note in reference.imported.notes)
    told = {f"mistral4.attention.temperature_{key}": value for key, value in (("scale", 0.3), ("length", 64))}
    again = read({**reference.metadata, **told}, reference.shapes, reference.exported, "it")
    assert again.config["rope_parameters"]["llama_4_scaling_beta"] == 0.3
    assert not again.notes


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (
            "t5",
            {"feed_forward_proj": "gated-relu", "is_gated_act": True},
            "computes 'relu', gated",
        ),
        ("t5", {"scale_decoder_outputs": False}, "scaled before the head"),
        ("kimi_linear", {"linear_attn_config": {"num_heads": 8}}, "KDA has 8 heads"),
        ("kimi_linear", {"moe_renormalize": False}, "not normalized"),
        ("mistral4", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "mscale"),
    ],
)
def test_what_has_no_key_is_not_written(name: str, change: dict[str, Any], said: str) -> None:
    reference = GgufReference(name)
    with pytest.raises(UnsupportedSource, match=said):
        describe({**reference.config, **change}, reference.package, "model")


def test_a_wrapper_may_leave_out_what_the_class_fills_in() -> None:
    """Sizes of Mistral 4's heads that its config does not say are not those of DeepSeek."""
    reference = GgufReference("mistral4")
    unsaid = ("head_dim", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim")
    config = {key: value for key, value in reference.config.items() if key not in unsaid}
    small = {name: array for name, array in reference.package.items() if "layers" not in name}
    found = describe(config, small, "model").metadata
    assert found["mistral4.attention.kv_lora_rank"] == 256
    assert found["mistral4.attention.key_length_mla"] == 128


def test_a_rotation_in_the_older_spelling_is_not_the_classs_own() -> None:
    reference = GgufReference("mistral4")
    older = legacy_config(text_config(reference.config))
    assert "rope_parameters" not in older
    found = describe(older, reference.package, "model").metadata
    assert found == reference.described.metadata


@pytest.mark.parametrize("head_dim", [16, 48, 128])
@pytest.mark.parametrize(
    ("factor", "low", "high", "context"),
    [
        (8.0, 1.0, 4.0, 64),  # a context of no published model
        (7.5, 1.0, 5.0, 777),
        (40.0, 1.5, 6.0, 5000),
        (3.0, 2.0, 2.5, 8192),
        (16.0, 1.0, 1.0, 8192),  # Llama 4 Scout: nothing between the bounds
    ],
)
def test_parameters_of_llama3s_rotation_are_found_from_its_factors(
    factor: float, low: float, high: float, context: int, head_dim: int
) -> None:
    block = {
        "rope_type": "llama3",
        "rope_theta": 50000.0,
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": context,
    }
    found = llama3_block(llama3_factors(block, head_dim), 50000.0, 131072)
    assert found is not None
    specs = [
        read_rope(one, head_dim=head_dim, max_positions=131072)
        for one in (block, {**found, "rope_theta": 50000.0})
    ]
    assert specs[1].wavelengths == pytest.approx(specs[0].wavelengths, rel=1e-5)


def test_factors_of_a_rotation_that_is_not_llama3s_are_refused() -> None:
    reference = GgufReference("llama_llama3_rope")
    theirs = {**reference.exported, "rope_freqs.weight": np.linspace(1, 3, 8, dtype=np.float32)}
    with pytest.raises(UnsupportedSource, match=r"rope_freqs\.weight"):
        read(reference.metadata, reference.shapes, theirs, "model.gguf")


def test_a_window_that_gguf_cannot_say_is_told() -> None:
    reference = GgufReference("llama")
    config = {**reference.config, "model_type": "mistral", "sliding_window": 12}
    notes = describe(config, reference.package, "model").notes
    assert any("window of 12" in note for note in notes)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("smollm3", "no_rope_layers", [1, 1, 0, 0]),
        ("gemma2", "query_pre_attn_scalar", 24),
        ("qwen3_next", "norm_topk_prob", False),
        ("gpt_oss", "swiglu_limit", 3.0),
        ("llama4", "attention_chunk_size", 128),
        ("mamba2", "time_step_limit", [0.1, 0.5]),
    ],
)
def test_what_llama_cpp_takes_for_granted_is_not_written_away(name: str, field: str, value: Any) -> None:
    reference = GgufReference(name)
    with pytest.raises(UnsupportedSource, match=field.partition("_layers")[0]):
        describe({**reference.config, field: value}, reference.package, "model")


def test_a_draft_head_that_has_no_place_is_told() -> None:
    """llama.cpp has none for ERNIE in its files, and files of EXAONE have one that is not run here."""
    reference = GgufReference("ernie4_5_moe")
    head = {"model.mtp_linear_proj.0.weight": np.zeros((64, 128), np.float32)}
    described = describe(reference.config, reference.package | head, "model")
    assert described.tensors.keys() == reference.described.tensors.keys()
    assert any("draft head is left out" in note for note in described.notes)
    theirs = GgufReference("exaone_moe")
    metadata = {**theirs.metadata, "exaone-moe.block_count": 5, "exaone-moe.nextn_predict_layers": 1}
    shapes = {**theirs.shapes, "blk.4.attn_q.weight": (8, 64)}
    imported = read(metadata, shapes, theirs.exported, "model.gguf")
    assert imported.tensors.keys() == theirs.imported.tensors.keys()
    assert any("draft head is left out" in note for note in imported.notes)


@pytest.mark.parametrize("key", ["hidden_activation", "classifier.pooling_type", "vocab_size"])
def test_a_list_where_one_value_belongs_is_refused(key: str) -> None:
    reference = GgufReference("modernbert")
    metadata = {**reference.metadata, f"modern-bert.{key}": (1, 2)}
    with pytest.raises(MalformedFile, match=r"is \(1, 2\); "):
        read(metadata, reference.shapes, reference.exported, "model.gguf")


def test_a_file_with_nothing_but_a_draft_head_is_refused() -> None:
    """As the converter makes with `--mtp`."""
    reference = GgufReference("glm4_moe_lite_head")
    shapes = {name: shape for name, shape in reference.shapes.items() if not re.match(r"blk\.[0-2]\.", name)}
    assert len(shapes) < len(reference.shapes)
    with pytest.raises(UnsupportedSource, match="draft head alone"):
        read(reference.metadata, shapes, reference.exported, "mtp-model.gguf")


def test_a_draft_that_is_not_read_is_refused_as_such() -> None:
    with pytest.raises(UnsupportedSource, match="draft"):
        read({"general.architecture": "eagle3"}, {}, {}, "model.gguf")


def test_clusters_of_an_assistants_vocabulary_are_left_out_and_told() -> None:
    """The converter leaves them out, llama.cpp takes them and scores all tokens."""
    reference = GgufReference("gemma4_assistant")
    theirs = {"masked_embd_centroids.weight": (16, 32), "masked_embd_ordering": (128,)}
    imported = read(reference.metadata, {**reference.shapes, **theirs}, reference.exported, "it")
    assert imported.tensors.keys() == reference.imported.tensors.keys()
    assert any("clusters" in note for note in imported.notes)
    assert imported.config["use_ordered_embeddings"] is False
