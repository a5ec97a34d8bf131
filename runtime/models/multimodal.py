"""Multimodal models whose text model is one of the other families': run as that, under the wrapper's names.

A wrapper adds towers, and projectors from these into the embedding; of text it changes nothing. Where tokens
have positions on three axes (M-RoPE), all three count alike for text, which is the plain rotation. What a
text model's own class does to its logits (Cohere's and Granite's scale) transformers' wrappers leave out, and
so does this: the likeliest token is the same one.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import mlx.core as mx

from runtime.config.fields import Fields
from runtime.config.text import TEXT_BLOCKS, levels, text_block
from runtime.errors import UnsupportedModel
from runtime.models.architecture import find_family
from runtime.models.family import Family
from runtime.quoting import quoted
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint
from runtime.tensors.names import text_tower
from runtime.tensors.towers import THINKER, USUAL, Towers

Raw = Mapping[str, Any]
Adapt = Callable[[Any, dict[str, mx.array]], dict[str, mx.array]]
_TIED = "tie_word_embeddings"
_NOT = ("architectures", *TEXT_BLOCKS)


@dataclass(frozen=True, slots=True)
class Wrapper:
    text: str
    """The model_type of a text model whose block names none."""
    ties: Literal["outer", "either", "inner", "never"] = "outer"
    """Whose word on tying the head counts: the wrapper's where it has one, a yes of either, the text's,
    nobody's (the head is one of its own, whatever is said)."""
    tied: bool | None = None
    """What its class takes for its own word where a file has none; None: nothing, as the text's counts."""
    inside: str = "model.language_model."
    """What transformers 5 has before the names of the text model."""
    head: str = ""
    """And before the head's."""
    flat: bool = False
    """Files may have the fields of the text model beside those of the wrapper, and no block for them."""


_OMNI = f"{THINKER}model.language_model."
# By model_type.
WRAPPERS: dict[str, Wrapper] = {
    "apertus1p5": Wrapper("apertus1p5_text"),
    "aria": Wrapper("aria_text"),
    "audioflamingo3": Wrapper("qwen2"),
    "aya_vision": Wrapper("cohere2"),
    "cohere2_vision": Wrapper("cohere2"),
    "cohere_compass": Wrapper("cohere_compass_text"),
    "deepseek_vl": Wrapper("llama"),
    "deepseek_vl_hybrid": Wrapper("llama"),
    "dots3_note": Wrapper("dots3_note_text"),
    "emu3": Wrapper("emu3_text_model", inside="model.text_model."),
    "ernie4_5_vl_moe": Wrapper("ernie4_5_vl_moe_text", tied=True),
    "ernie4_5_moe_vl": Wrapper("ernie4_5_vl_moe_text", flat=True),
    "exaone4_5": Wrapper("exaone4"),
    "fast_vlm": Wrapper("qwen2", "either"),
    "glm46v": Wrapper("glm4v_text"),
    "glm4v": Wrapper("glm4v_text", "either"),
    "glm4v_moe": Wrapper("glm4v_moe_text", "either"),
    "fun_asr_nano": Wrapper("qwen3", tied=True),
    "fuyu": Wrapper("persimmon"),
    "glmga": Wrapper("glm4v_text"),
    "glm_ocr": Wrapper("glm_ocr_text"),
    "glmasr": Wrapper("llama"),
    "got_ocr2": Wrapper("qwen2"),
    "granite4_vision": Wrapper("granite4_vision_text"),
    "granite_docling": Wrapper("granite_docling_text", inside="model.text_model."),
    "granite_speech": Wrapper("granite"),
    "granite_speech_plus": Wrapper("granite"),
    "hunyuan_vl": Wrapper("hunyuan_vl_text", "either", flat=True),
    "hy_v4_vl": Wrapper("hy_v4_vl_text"),
    "hyperclovax_vision_v2": Wrapper("hyperclovax"),
    "inkling_mm_model": Wrapper("inkling_text"),
    "inkling2": Wrapper("inkling2_text"),
    "inkling2_loop": Wrapper("inkling2_loop_text"),
    "idefics2": Wrapper("mistral", inside="model.text_model."),
    "idefics3": Wrapper("llama", inside="model.text_model."),
    "internvl": Wrapper("qwen2"),
    "internvl_chat": Wrapper("llama", "inner"),
    "janus": Wrapper("llama"),
    "kimi_k25": Wrapper("deepseek_v3"),
    "kimi_vl": Wrapper("deepseek_v3"),
    "lighton_ocr": Wrapper("qwen3"),
    "llava": Wrapper("llama", "either"),
    "llava_next": Wrapper("llama"),
    "llava_next_video": Wrapper("llama", "either"),
    "llava_onevision": Wrapper("qwen2", "either"),
    "minimax_m3_vl": Wrapper("minimax_m3_vl_text", "either"),
    "molmo2": Wrapper("molmo2_text"),
    "moss_transcribe_diarize": Wrapper("qwen3", tied=True),
    "musicflamingo": Wrapper("qwen2"),
    "omniasr": Wrapper("llama", "never"),
    "ovis2": Wrapper("qwen2"),
    "paddleocr_vl": Wrapper("paddleocr_vl_text", flat=True),
    "perception_lm": Wrapper("llama"),
    "pixtral": Wrapper("mistral", "never"),  # as MLX's converter calls a LLaVA with Pixtral's tower
    "qianfan_ocr": Wrapper("qwen3"),
    "pp_chart2table": Wrapper("qwen2"),
    "qwen2_5_omni": Wrapper("qwen2_5_omni_text", inside=_OMNI, head=THINKER),
    "qwen2_5_omni_thinker": Wrapper("qwen2_5_omni_text"),
    "qwen2_audio": Wrapper("qwen2", "never"),
    "qwen3_asr": Wrapper("qwen3", tied=True),
    "qwen3_omni_moe": Wrapper("qwen3_omni_moe_text", inside=_OMNI, head=THINKER),
    "qwen3_omni_moe_thinker": Wrapper("qwen3_omni_moe_text"),
    "smolvlm": Wrapper("llama", inside="model.text_model."),
    "step3p7": Wrapper("step3p5"),
    "vibevoice_asr": Wrapper("qwen2", "never"),
    "video_llama_3": Wrapper("qwen2", "either"),
    "video_llava": Wrapper("llama"),
    "vipllava": Wrapper("llama"),
    "voxtral": Wrapper("llama", "never"),
}


_LLAMA = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
}
_QWEN = {**_LLAMA, "vocab_size": 151936, "intermediate_size": 22016, "num_key_value_heads": 32}

# By the text model's model_type: what its config in transformers takes for fields that a file leaves out, and
# the family does not.
TEXTS: dict[str, dict[str, Any]] = {
    "apertus1p5_text": {"vocab_size": 266752},
    "aria_text": {},
    "cohere": {},
    "cohere2": {},
    "cohere_compass_text": {},
    "deepseek_v3": {},
    "dots3_note_text": {},
    "emu3_text_model": {
        **_LLAMA,
        "vocab_size": 184622,
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 9216,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e6,
    },
    "ernie4_5": {},
    "ernie4_5_vl_moe_text": {
        "vocab_size": 103424,
        "hidden_size": 2560,
        "intermediate_size": 12288,
        "num_hidden_layers": 28,
        "num_attention_heads": 20,
    },
    "exaone4": {},
    "exaone4_5_text": {},
    "gemma": {},
    "glm4": {},
    "glm4_moe": {},
    "glm4v_moe_text": {},
    "glm4v_text": {},
    "glm_ocr_text": {
        "vocab_size": 59392,
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 16,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
    },
    "gpt_oss": {},
    "granite": {},
    "granite4_vision_text": {**_LLAMA, "max_position_embeddings": 2048},
    "granite_docling_text": {
        "vocab_size": 133800,
        "hidden_size": 1024,
        "intermediate_size": 2048,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "embedding_multiplier": 12.0,
        "logits_scaling": 4.0,
        "residual_multiplier": 0.263,
        "attention_multiplier": 0.015625,
    },
    "hunyuan_v1_dense": {},
    "hunyuan_vl_text": {**_LLAMA, "vocab_size": 290943, "tie_word_embeddings": True},
    "hy_v4_vl_text": {},
    "hyperclovax": {},
    "inkling_text": {},
    "inkling2_text": {},
    "inkling2_loop_text": {},
    "internlm2": {},
    "kimi_k2": {},
    "llama": _LLAMA,
    "minimax_m3_vl_text": {},
    "ministral3": {},
    "mistral": {**_LLAMA, "intermediate_size": 14336, "num_key_value_heads": 8},
    "mixtral": {},
    "molmo2_text": {"num_hidden_layers": 36},
    "olmo2": {},
    "olmo3": {},
    "paddleocr_vl_text": {
        "vocab_size": 103424,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 18,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "tie_word_embeddings": True,
    },
    "persimmon": {},
    "phi3": {},
    "qwen2": _QWEN,
    "qwen2_5_omni_text": {
        **_QWEN,
        "vocab_size": 152064,
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "rope_theta": 1e6,
    },
    "qwen2_moe": {},
    "qwen3": {**_QWEN, "head_dim": 128},
    "qwen3_moe": {},
    "qwen3_omni_moe_text": {
        "vocab_size": 3584,
        "hidden_size": 2048,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "norm_topk_prob": True,
        "rope_theta": 1e6,
    },
    "seed_oss": {},
    "smollm3": {},
    "starcoder2": {},
    "step3p5": {},
}

# What a text model's own class does to its logits, and no wrapper does.
_BARE = {"cohere": {"logit_scale": 1.0}, "cohere2": {"logit_scale": 1.0}, "granite": {"logits_scaling": 1.0}}
SAME = {
    "emu3_text_model": "llama",
    "exaone4_5_text": "exaone4",
    "granite4_vision_text": "granite",
    "granite_docling_text": "granite",
    "hunyuan_vl_text": "hunyuan_v1_dense",
    "paddleocr_vl_text": "llama",
    "qwen2_5_omni_text": "qwen2",
    "qwen3_omni_moe_text": "qwen3_moe",
}
"""What computes text models whose names are a wrapper's own."""

ALL_TOWERS = Towers(
    images=(
        *USUAL.images,
        *("image_tower.", "video_tower.", "high_res_vision_", "vqmodel.", "generation_"),
        *("vision_projection.", "visual_embeddings_table.", "image_newline", "vision_embed_tokens."),
        *("vit.", "vision_tokenizer.", "vision_backbone."),
    ),
    sound=(
        *USUAL.sound,
        "audio_tokenizer.",
        "acoustic_tokenizer_encoder.",
        "semantic_tokenizer_encoder.",
        "audio.",
        "encoder.",
        "talker.",
        "token2wav.",
        "code2wav.",
    ),
    projectors=(
        *USUAL.projectors,
        "connector.",
        "aligner.",
        "projector.",
        "mm_projector.",
        "mlp1.",
        "mlp_AR.",
        "vit_large_projector.",
        "patch_merge_mlp.",
        "layerwise_projectors.",
        "resampler_model.",
        "spatial_projectors.",
    ),
)


def alone(raw: Raw) -> dict[str, Any]:
    """The text model's own config, as of a file that has nothing else. Raises UnsupportedModel."""
    Fields(raw)  # for what it refuses
    row, name = _row(raw), text_block(raw)
    if name is None and not row.flat:
        raise UnsupportedModel(f"config.json: {raw['model_type']} has no block for its text model")
    block = {**raw, "model_type": None} if name is None else levels(raw)[-1][1]
    kind = str(block.get("model_type") or row.text)
    if kind not in TEXTS:
        raise UnsupportedModel(
            f"config.json: {name}.model_type is {quoted(kind)}, which is none of the text models that are "
            f"computed inside {raw['model_type']}; docs/models.md lists them"
        )
    own = {"model_type": SAME.get(kind, kind), _TIED: _tied(row, _around(raw).get(_TIED), block.get(_TIED))}
    known = {**block, **_BARE.get(kind, {}), **own, **_RESPELLED.get(kind, _as_it_is)(block)}
    given = {key: value for key, value in known.items() if (key, value) != (_TIED, None)}
    return {key: value for key, value in {**TEXTS[kind], **given}.items() if key not in _NOT}


def _as_it_is(_: Raw) -> dict[str, Any]:
    return {}


def _one_flag(block: Raw) -> dict[str, Any]:
    """PaddleOCR's, for all biases."""
    biases = Fields(dict(block)).flag("use_bias")
    return {"attention_bias": biases, "mlp_bias": biases}


def _same_axes(block: Raw) -> dict[str, Any]:
    """Hunyuan's rotation by several axes, which count alike for text, has a name of its own."""
    found: dict[str, Any] = {}
    for name in ("rope_scaling", "rope_parameters"):
        rope = block.get(name)
        if isinstance(rope, Mapping):
            found[name] = {key: "dynamic" if word == "xdrope" else word for key, word in rope.items()}
    return found


def _by_baidu(block: Raw) -> dict[str, Any]:
    """ERNIE 4.5 VL's, in files from before transformers had it: experts for text and for images counted
    apart, and a first and a last layer that has them.
    """
    told, found = block.get("moe_num_experts"), dict[str, Any]()
    if isinstance(told, list) and told:
        if len({*map(str, told)}) > 1:
            Fields(dict(block)).refuse("moe_num_experts", "as many experts for text as for images")
        found["moe_num_experts"] = told[0]
    layers = Fields({**TEXTS["ernie4_5_vl_moe_text"], **block}).count("num_hidden_layers", high=4096)
    start, stop = (_of_both(block, name) for name in ("moe_layer_start_index", "moe_layer_end_index"))
    if block.get("mlp_layer_types") is None and start is not None:
        Fields(dict(block)).count("moe_layer_interval", 1, high=1)
        last = layers - 1 if stop in (None, -1) else stop
        sparse = (start <= i <= last for i in range(layers))
        found["mlp_layer_types"] = ["sparse" if one else "dense" for one in sparse]
    return found


def _of_both(block: Raw, name: str) -> int | None:
    """Which layers have experts for text; those for images must have them where these do."""
    told = block.get(name)
    listed = told if isinstance(told, list) else [told]
    return None if told is None else Fields({name: listed[0] if listed else None}).count(name, low=-1)


_RESPELLED = {
    "ernie4_5_vl_moe_text": _by_baidu,
    "paddleocr_vl_text": _one_flag,
    "hunyuan_vl_text": _same_axes,
}


def _row(raw: Raw) -> Wrapper:
    row = WRAPPERS.get(str(raw.get("model_type")))
    if row is None:
        raise UnsupportedModel(
            f"config.json: model_type is {quoted(raw.get('model_type'))}, which is not a wrapper's"
        )
    return row


def _around(raw: Raw) -> Raw:
    """The level whose head it is: what stands around the text model's block."""
    return levels(raw)[-2:][0][1]


def _tied(row: Wrapper, outer: Any, inner: Any) -> Any:
    if row.ties == "inner":
        return inner
    if row.ties == "never":
        return False
    if row.ties == "either" and True in (outer, inner):
        return True
    outer = row.tied if outer is None else outer
    return inner if outer is None else outer


def _variant(raw: Raw) -> Family:
    """The text model's family, which finds its config in the block and its tensors behind the wrapper's
    names.
    """
    text, row = alone(raw), _row(raw)
    family, layers = find_family(text), TEXTS[text["model_type"]].get("num_hidden_layers", 0)

    def checkpoint(config: Raw) -> Checkpoint:
        own = family.checkpoint(config)
        return replace(
            own,
            towers=ALL_TOWERS,
            heads=(*own.heads, "mtp."),
            inside=(row.inside, row.head),
            prefix="",
            default_layers=own.default_layers or layers,
        )

    head = family.head
    return replace(
        family,
        parse=lambda raw: family.parse(alone(raw)),
        adapt=_unwrapping(family.adapt),
        head=None if head is None else replace(head, adapt=_unwrapping(head.adapt)),
        checkpoint=checkpoint,
    )


def _unwrapping(adapt: Adapt) -> Adapt:
    return lambda config, weights: adapt(config, text_tower(weights))


def _never(_: Any, *more: Any) -> Any:
    raise AssertionError("a variant runs it")


FAMILY = Family(
    parse=_never,
    layout=_never,
    build=_never,
    adapt=_never,
    variant=_variant,
)
