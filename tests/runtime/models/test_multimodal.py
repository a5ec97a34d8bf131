"""A multimodal model's text model answers what it answers alone, under each wrapper's names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from runtime.errors import UnsupportedModel
from runtime.loading.load import load_model
from runtime.loading.unused import unused_parts
from runtime.models import ARCHITECTURES, describe
from runtime.models.multimodal.text_models import SAME, TEXTS
from runtime.models.multimodal.wrappers import WRAPPERS
from runtime.tensors.towers import text_name, unwrapped
from tests.support.checkpoints import random_state
from tests.support.parity import Reference, full_logits

# References of text models by model_type, where one is called otherwise; wrappers have their own.
_CALLED = {
    "dots3_note_text": "dots3_note",
    "phi3": "phi3_window",
    "hy_v4_vl_text": "hy_v4",
    "kimi_k2": "deepseek_v3",
    "minimax_m3_vl_text": "minimax_m3",
    "exaone4_5_text": "exaone4",
    "hunyuan_v1_dense": "hunyuan",
    "emu3_text_model": "llama",
    "granite4_vision_text": "granite",
    "granite_docling_text": "granite",
    "qwen2_5_omni_text": "qwen2",
    "qwen3_omni_moe_text": "qwen3_moe",
    "hunyuan_vl_text": "hunyuan",
    "paddleocr_vl_text": "llama",
}
_WRAPPED = ("ernie4_5_vl_moe_text", "glm4v_text", "glm4v_moe_text", "glm_ocr_text", "molmo2_text")
_LEFT_OUT = {"cohere": "logit_scale", "cohere2": "logit_scale", "granite": "logits_scaling"}
# Names of the trunk and of the head: transformers 4's, 5's and MLX's.
SPELLINGS = [
    ("language_model.model.", "language_model.lm_head."),
    ("model.language_model.", "lm_head."),
    ("language_model.", "language_model.lm_head."),
]
LLAVA = {"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava"}


def text(kind: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The config and the tensors of a text model; no factor on its logits."""
    record = Reference(_CALLED.get(kind, kind)).record
    config = {**record["config"], "model_type": kind}
    return {**config, **({_LEFT_OUT[kind]: 1.0} if kind in _LEFT_OUT else {})}, random_state(
        record["tensors"]
    )


def named(name: str, trunk: str, head: str) -> str:
    own = next((own for own in ("lm_head.", "output.") if name.startswith(own)), None)
    return name.replace("model.", trunk, 1) if own is None else head + name.removeprefix(own)


def logits(config: Mapping[str, Any], tensors: Mapping[str, np.ndarray], folder: Path) -> np.ndarray:
    save_file(dict(tensors), folder / "model.safetensors")
    model = load_model(config, [folder / "model.safetensors"])
    return full_logits(model, np.arange(3, 51))


@pytest.mark.parametrize(("trunk", "head"), SPELLINGS)
@pytest.mark.parametrize("kind", sorted(set(TEXTS) - set(_WRAPPED)))
def test_every_text_model(kind: str, trunk: str, head: str, tmp_path: Path) -> None:
    config, tensors = text(kind)
    alone = {**config, "model_type": SAME.get(kind, kind)}
    wanted = logits(alone, tensors, tmp_path)
    factors = {_LEFT_OUT[kind]: 0.25} if kind in _LEFT_OUT else {}
    inside = {**LLAVA, "text_config": {**config, **factors}}
    tower = {"vision_tower.norm.weight": np.ones(4, np.float32)}
    got = logits(inside, {**{named(n, trunk, head): x for n, x in tensors.items()}, **tower}, tmp_path)
    assert np.array_equal(got, wanted)


@pytest.mark.parametrize("wrapper", sorted(WRAPPERS))
def test_every_wrapper(wrapper: str, tmp_path: Path) -> None:
    row = WRAPPERS[wrapper]
    kind = "llama" if row.text in _WRAPPED or row.ties == "never" else row.text
    config, tensors = text(kind)
    config["model_type"] = SAME.get(kind, kind)
    block = {name: value for name, value in config.items() if name != "model_type" or kind == "llama"}
    own = {} if row.tied is None else {"tie_word_embeddings": config["tie_word_embeddings"]}
    inside = {"model_type": wrapper, "text_config": block, **own}
    names = {named(n, row.inside, "lm_head."): x for n, x in tensors.items()}
    assert np.array_equal(logits(inside, names, tmp_path), logits(config, tensors, tmp_path))


@pytest.mark.parametrize(
    ("wrapper", "own"),
    [
        (
            "paddleocr_vl",
            {"use_bias": False, "rope_scaling": {"type": "default", "mrope_section": [2, 1, 1]}},
        ),
        (
            "hunyuan_vl",
            {"rope_scaling": {"type": "xdrope", "factor": 1.0, "alpha": 1.0, "rope_theta": 10000.0}},
        ),
    ],
)
def test_fields_of_the_text_model_may_stand_beside_the_wrappers(
    wrapper: str, own: dict[str, Any], tmp_path: Path
) -> None:
    """As PaddleOCR-VL and HunyuanOCR are published, with the names of the text model alone."""
    config, tensors = text(WRAPPERS[wrapper].text)
    config["model_type"] = SAME[WRAPPERS[wrapper].text]
    plain = {**config, "rope_parameters": None, "rope_scaling": None, "rope_theta": 10000.0}
    flat = {**plain, "model_type": wrapper, "architectures": None, **own, "vision_config": {"hidden_size": 8}}
    towers = {"mlp_AR.linear_1.bias": np.ones(4, np.float32), "vit.norm.weight": np.ones(4, np.float32)}
    got = logits(flat, {**tensors, **towers}, tmp_path)
    assert np.array_equal(got, logits(plain, tensors, tmp_path))


@pytest.mark.parametrize("wrapper", ["qwen2_5_omni", "qwen3_omni_moe"])
@pytest.mark.parametrize("trunk", ["thinker.model.", "thinker.model.language_model."])
def test_an_omni_model_is_run_as_the_one_that_writes_text(wrapper: str, trunk: str, tmp_path: Path) -> None:
    """As Qwen's are published, and as transformers 5 saves them; what is beside it is for sound."""
    kind = WRAPPERS[wrapper].text
    found, tensors = text(kind)
    config: dict[str, Any] = {**found, "model_type": SAME[kind]}
    rope = {**found["rope_parameters"], "mrope_section": [2, 1, 1]}
    block = {**found, "rope_parameters": rope}
    talker = {"model_type": f"{wrapper}_talker", "text_config": {"num_hidden_layers": 1}}
    thinker = {"model_type": f"{wrapper}_thinker", "text_config": block}
    inside = {"model_type": wrapper, "talker_config": talker, "thinker_config": thinker}
    names = {named(n, trunk, "thinker.lm_head."): x for n, x in tensors.items()}
    towers = ("thinker.visual.a.weight", "thinker.audio_tower.a.weight", "talker.model.layers.0.a.weight")
    names |= dict.fromkeys((*towers, "code2wav.a.weight"), np.ones(4, np.float32))
    assert np.array_equal(logits(inside, names, tmp_path), logits(config, tensors, tmp_path))


def test_the_head_of_an_omni_model_is_tied_by_the_level_around_its_text_model() -> None:
    block = {**text("qwen2")[0], "tie_word_embeddings": True}
    thinker = {"tie_word_embeddings": False, "text_config": block}
    assert describe({"model_type": "qwen2_5_omni", "thinker_config": thinker}).config.tied is False
    alone = {"text_config": block}
    assert describe({"model_type": "qwen2_5_omni", "thinker_config": alone}).config.tied is True


def test_nemotron_omni_as_transformers_saves_it(tmp_path: Path) -> None:
    record = Reference("nemotron_h").record
    config, tensors = record["config"], random_state(record["tensors"])
    names = {f"language_model.{name}": x for name, x in tensors.items()}
    towers = ("vision_model.a.weight", "multi_modal_projector.norm.weight", "audio_tower.a.weight")
    names |= dict.fromkeys((*towers, "vision_final_layernorm.weight"), np.ones(4, np.float32))
    inside: dict[str, Any] = {
        "architectures": ["NemotronH_Omni_Reasoning_V3"],
        "model_type": "nemotron_h_omni",
    }
    got = logits({**inside, "text_config": config}, names, tmp_path)
    assert np.array_equal(got, logits(config, tensors, tmp_path))


def test_the_draft_head_of_glm_ocr_is_left_out(tmp_path: Path) -> None:
    record = Reference("glm_ocr").record
    config, tensors = record["config"], random_state(record["tensors"])
    layers = config["text_config"]["num_hidden_layers"]
    head = {f"model.language_model.layers.{layers}.eh_proj.weight": np.ones((4, 8), np.float32)}
    assert np.array_equal(logits(config, {**tensors, **head}, tmp_path), logits(config, tensors, tmp_path))
    (said,) = unused_parts(describe(config), head)
    assert said.startswith("the draft head is stored and not run")


def test_layers_that_transformers_saves_as_blocks(tmp_path: Path) -> None:
    config, tensors = text("deepseek_v3")
    named = {f"language_model.{n.replace('.layers.', '.blocks.')}": x for n, x in tensors.items()}
    got = logits({"model_type": "kimi_k25", "text_config": config}, named, tmp_path)
    assert np.array_equal(got, logits(config, tensors, tmp_path))


@pytest.mark.parametrize("wrapper", ["minicpmv4_6", "minicpmv4_7", "minicpm_ocr"])
def test_minicpm_v_with_qwen3_5_inside(wrapper: str, tmp_path: Path) -> None:
    record = Reference("qwen3_5").record
    config, tensors = record["config"], random_state(record["tensors"])
    names = {named(n, "model.language_model.", "lm_head."): x for n, x in tensors.items()}
    names["model.merger.mlp.0.pre_norm.weight"] = np.ones(4, np.float32)
    inside = {"model_type": wrapper, "text_config": config, "tie_word_embeddings": False}
    assert np.array_equal(logits(inside, names, tmp_path), logits(config, tensors, tmp_path))


def test_internvl_with_internlm2_inside(tmp_path: Path) -> None:
    """As InternVL2 8B is published."""
    config, tensors = text("internlm2")
    inside = {"model_type": "internvl_chat", "llm_config": config}
    names = {f"language_model.{name}": x for name, x in tensors.items()}
    assert np.array_equal(logits(inside, names, tmp_path), logits(config, tensors, tmp_path))


@pytest.mark.parametrize(
    "start",
    [
        *("model.layers.", "model.language_model.layers.", "language_model.model.layers."),
        *("model.text_model.layers.", "text_model.model.layers.", "model.llm.layers."),
        *("language_model.layers.", "language_model.model.blocks.", "thinker.model.layers."),
    ],
)
def test_what_tensors_are_called_without_their_wrapper(start: str) -> None:
    name = f"{start}3.mlp.up_proj.weight"
    assert text_name(name) == "model.layers.3.mlp.up_proj.weight"
    assert unwrapped(name) == "layers.3.mlp.up_proj.weight"


def test_every_class_stands_beside_its_type() -> None:
    types = {name for name, module in ARCHITECTURES.items() if module == "multimodal" and name.islower()}
    assert types == WRAPPERS.keys()


@pytest.mark.parametrize(
    "tensor",
    [
        *("vision_tower.norm.weight", "multi_modal_projector.linear_1.bias", "image_newline"),
        *("model.image_newline", "model.vision_model.norm.weight", "model.connector.proj.weight"),
        *("mlp1.0.weight", "mm_projector.proj.0.bias", "model.aligner.fc1.weight", "encoder.out.bias"),
        "model.vision_embed_tokens.weight",
        *("model.layerwise_projectors.0.norm.weight", "model.spatial_projectors.0.query"),
        *("model.visual.merger.norm.weight", "image_tower.norm.bias", "model.generation_head.bias"),
    ],
)
def test_towers_are_said(tensor: str) -> None:
    (note,) = unused_parts(describe({**LLAVA, "text_config": text("llama")[0]}), [tensor])
    assert note.startswith(f"what is for images and sound is stored and not run ({tensor})")


@pytest.mark.parametrize(
    ("wrapper", "outer", "inner", "tied"),
    [
        *(("llava", False, True, True), ("llava", True, False, True), ("llava", None, None, False)),
        *(("internvl", False, True, False), ("internvl", None, True, True), ("internvl", True, None, True)),
        *(("internvl_chat", True, False, False), ("internvl_chat", False, True, True)),
        *(("qwen3_asr", None, False, True), ("qwen3_asr", False, True, False)),
        *(("omniasr", True, True, False), ("omniasr", None, None, False)),
    ],
)
def test_whose_word_on_the_head_counts(
    wrapper: str, outer: bool | None, inner: bool | None, tied: bool
) -> None:
    block = {**text("llama")[0], "tie_word_embeddings": inner}
    config = {"model_type": wrapper, "tie_word_embeddings": outer, "text_config": block}
    assert describe(config).config.tied is tied


def test_a_block_may_leave_out_what_llama_has_by_default() -> None:
    """As that of llava-1.5-7b-hf."""
    block = {
        "architectures": ["LlamaForCausalLM"],
        "max_position_embeddings": 4096,
        "model_type": "llama",
        "rms_norm_eps": 1e-05,
        "vocab_size": 32064,
    }
    described = describe({**LLAVA, "text_config": block, "hidden_size": 64})
    assert described.checkpoint.default_layers == 32
    found = described.config
    assert (found.hidden_size, found.intermediate_size, found.layers, found.kv_heads) == (4096, 11008, 32, 32)


def test_mlx_calls_a_llava_after_its_tower() -> None:
    block = {"text_config": text("mistral")[0], "vision_config": {"model_type": "pixtral"}}
    assert describe({**LLAVA, **block, "model_type": "pixtral"}).config == describe({**LLAVA, **block}).config


def test_a_block_inside_the_block_is_none_of_the_models() -> None:
    config, _ = text("llama")
    block = {**config, "text_config": {**config, "num_hidden_layers": 1}}
    assert describe({**LLAVA, "text_config": block}).config.layers == config["num_hidden_layers"]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({**LLAVA, "text_config": {"model_type": "gemma2"}}, "text_config.model_type is 'gemma2'"),
        (LLAVA, "llava has no block for its text model"),
        ({"architectures": LLAVA["architectures"]}, "model_type is None"),
    ],
)
def test_what_is_refused_by_name(config: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedModel, match=said):
        describe(config)


def test_ids_that_a_pruned_head_leaves_out_are_never_drawn(tmp_path: Path) -> None:
    """As Apertus 1.5 is published: what is left out are codes of images and sound."""
    record = Reference("apertus1p5_text_pruned").record
    config, tensors = record["config"], random_state(record["tensors"])
    names = {named(n, "model.language_model.", "lm_head."): x for n, x in tensors.items()}
    names["model.vision_tokenizer.quant_conv.weight"] = np.ones(4, np.float32)
    names["model.audio_tokenizer.codebook.embed"] = np.ones(4, np.float32)
    got = logits({"model_type": "apertus1p5", "text_config": config}, names, tmp_path)
    assert np.array_equal(got, logits(config, tensors, tmp_path))
    drawn = config["output_vocab_size"]
    chances = np.exp(got - got.max(axis=-1, keepdims=True))
    assert got.shape == (48, config["vocab_size"])
    assert chances[:, :drawn].any(axis=-1).all()
    assert not chances[:, drawn:].any()
