"""What wrappers say and do otherwise than their text models: whose word counts, what names begin with."""

from collections.abc import Mapping
from typing import Any, Literal

from runtime.errors import UnsupportedModel
from runtime.quoting import quoted
from runtime.records import dataclass
from runtime.tensors.towers import THINKER


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


def find_wrapper(raw: Mapping[str, Any]) -> Wrapper:
    """The row of a config. Raises UnsupportedModel."""
    row = WRAPPERS.get(str(raw.get("model_type")))
    if row is None:
        raise UnsupportedModel(
            f"config.json: model_type is {quoted(raw.get('model_type'))}, which is not a wrapper's"
        )
    return row
