"""Which file of `runtime/models` runs what config.json calls itself.

The text of a config only ever selects a row of these tables; it never names code to import.
"""

from collections.abc import Mapping
from typing import Any

from runtime.config.text import levels

NAMES: dict[str, str] = {
    "afmoe": "AfmoeForCausalLM afmoe",
    "apertus": "ApertusForCausalLM Apertus1p5TextForCausalLM apertus apertus1p5_text",
    "arcee": "ArceeForCausalLM Jais2ForCausalLM arcee jais2",
    "arctic": "ArcticForCausalLM arctic",
    "aria": "AriaTextForCausalLM aria_text",
    "baichuan": "BaichuanForCausalLM BaiChuanForCausalLM baichuan",
    "baichuan_m1": "BaichuanM1ForCausalLM baichuan_m1",
    "bailing_hybrid": (
        "BailingHybridForCausalLM BailingMoeV3ForCausalLM BailingMoeV2_5ForCausalLM bailing_hybrid"
    ),
    "bailing_moe": "BailingMoeForCausalLM BailingMoeV2ForCausalLM bailing_moe",
    "bamba": "BambaForCausalLM bamba",
    "bart": (
        "BartForConditionalGeneration MBartForConditionalGeneration M2M100ForConditionalGeneration "
        "MarianMTModel PegasusForConditionalGeneration BlenderbotForConditionalGeneration "
        "BlenderbotSmallForConditionalGeneration PLBartForConditionalGeneration MvpForConditionalGeneration "
        "bart mbart m2m_100 marian pegasus blenderbot blenderbot-small plbart mvp"
    ),
    "beam": "BeamForCausalLM beam",
    "bert": (
        "BertModel BertForMaskedLM JinaBertModel JinaBertForMaskedLM RobertaModel RobertaForMaskedLM "
        "XLMRobertaModel XLMRobertaForMaskedLM CamembertModel CamembertForMaskedLM MPNetModel "
        "MPNetForMaskedLM ErnieModel ErnieForMaskedLM ElectraModel ElectraForMaskedLM ElectraForPreTraining "
        "AlbertModel AlbertForMaskedLM AlbertForPreTraining DistilBertModel DistilBertForMaskedLM bert "
        "roberta xlm-roberta camembert distilbert mpnet ernie electra albert"
    ),
    "bitnet": "BitNetForCausalLM bitnet",
    "bloom": "BloomForCausalLM bloom",
    "chameleon": "ChameleonForConditionalGeneration chameleon",
    "chatglm": "ChatGLMModel ChatGLMForConditionalGeneration chatglm",
    "codeshell": "CodeShellForCausalLM codeshell",
    "cohere": (
        "CohereForCausalLM Cohere2ForCausalLM CohereCompassForCausalLM cohere cohere2 cohere_compass_text"
    ),
    "cohere2_moe": "Cohere2MoeForCausalLM cohere2_moe",
    "cwm": "CwmForCausalLM MinistralForCausalLM cwm ministral",
    "dbrx": "DbrxForCausalLM dbrx",
    "deepseek": (
        "SarvamMLAForCausalLM AXK2ForCausalLM AXK1ForCausalLM DeepseekV2ForCausalLM DeepseekV3ForCausalLM "
        "DeepseekV32ForCausalLM Glm4MoeLiteForCausalLM GlmMoeDsaForCausalLM sarvam_mla axk2 axk1 "
        "deepseek_v2 deepseek_v3 deepseek_v32 glm4_moe_lite glm_moe_dsa kimi_k2"
    ),
    "deepseek_moe": "DeepseekForCausalLM deepseek",
    "deepseek_v4": "DeepseekV4ForCausalLM deepseek_v4",
    "dflash": "DFlashDraftModel DFlashLagunaForCausalLM",
    "diffllama": "DiffLlamaForCausalLM diffllama",
    "doge": "DogeForCausalLM doge",
    "dory": "DoryForCausalLM dory",
    "dots1": (
        "Dots1ForCausalLM SolarOpenForCausalLM ExaoneMoeForCausalLM ExaoneMoEForCausalLM HYV3ForCausalLM "
        "dots1 solar_open exaone_moe hy_v3"
    ),
    "dots3_note": "Dots3NoteForCausalLM dots3_note_text",
    "embedding_gemma2": (
        "EmbeddingGemma2Model EmbeddingGemma2TextModel embedding_gemma2 embedding_gemma2_text"
    ),
    "ernie4_5": (
        "Ernie4_5ForCausalLM Ernie4_5_ForCausalLM Ernie4_5_MoeForCausalLM ernie4_5 ernie4_5_moe "
        "ernie4_5_vl_moe_text"
    ),
    "eurobert": "EuroBertModel EuroBertForMaskedLM eurobert",
    "falcon": "FalconForCausalLM RWForCausalLM RefinedWeb RefinedWebModel falcon",
    "falcon_h1": "FalconH1ForCausalLM falcon_h1",
    "flint": "FlintForCausalLM flint",
    "gear": "GearForCausalLM gear",
    "gemma": (
        "GemmaForCausalLM Gemma2ForCausalLM VaultGemmaForCausalLM Gemma3ForCausalLM Gemma3TextModel "
        "Gemma3ForConditionalGeneration gemma gemma2 vaultgemma gemma3 gemma3_text"
    ),
    "gemma3n": "Gemma3nForCausalLM Gemma3nForConditionalGeneration gemma3n gemma3n_text",
    "gemma4": (
        "Gemma4ForCausalLM Gemma4ForConditionalGeneration Gemma4UnifiedForCausalLM "
        "Gemma4UnifiedForConditionalGeneration gemma4 gemma4_text gemma4_unified gemma4_unified_text"
    ),
    "gemma4_assistant": (
        "Gemma4AssistantForCausalLM Gemma4UnifiedAssistantForCausalLM gemma4_assistant "
        "gemma4_unified_assistant"
    ),
    "glm4": "GlmForCausalLM Glm4ForCausalLM glm glm4 glm4v_text glm_ocr_text",
    "glm4_moe": "SarvamMoEForCausalLM Glm4MoeForCausalLM sarvam_moe glm4_moe glm4v_moe_text",
    "glm5_next": "Glm5NextForConditionalGeneration glm5_next glm5_next_text",
    "gpt2": "GPT2LMHeadModel gpt2",
    "gpt_bigcode": "GPTBigCodeForCausalLM gpt_bigcode",
    "gpt_neo": "GPTNeoForCausalLM gpt_neo",
    "gpt_neox": "GPTNeoXForCausalLM gpt_neox",
    "gpt_oss": "GptOssForCausalLM gpt_oss",
    "gptj": "GPTJForCausalLM CodeGenForCausalLM gptj codegen",
    "granite": "GraniteForCausalLM GraniteSWAForCausalLM granite granite_swa",
    "granite_hybrid": "GraniteMoeHybridForCausalLM granitemoehybrid",
    "granitemoe": (
        "GraniteMoeForCausalLM GraniteMoeSharedForCausalLM GraniteMoeSWAForCausalLM granitemoe "
        "granitemoeshared granitemoe_swa"
    ),
    "grove_moe": "GroveMoeForCausalLM grove_moe",
    "gte": "GteModel GteForMaskedLM NewModel NewForMaskedLM gte new",
    "helium": "HeliumForCausalLM helium",
    "hunyuan": "HunYuanDenseV1ForCausalLM HunYuanMoEV1ForCausalLM hunyuan_v1_dense hunyuan_v1_moe",
    "hunyuan_large": "HunYuanForCausalLM hunyuan",
    "hy_v4": "HYV4ForCausalLM hy_v4 hy_v4_vl_text",
    "hyperclovax": "HyperCLOVAXForCausalLM hyperclovax",
    "inkling": "InklingForCausalLM inkling_text",
    "inkling2": "Inkling2ForCausalLM Inkling2LoopForCausalLM inkling2_text inkling2_loop_text",
    "internlm2": "InternLM2ForCausalLM internlm2",
    "iquest_loop": "IQuestLoopCoderForCausalLM iquestloopcoder",
    "jais": "JAISLMHeadModel BTLMLMHeadModel jais btlm",
    "jamba": "JambaForCausalLM jamba",
    "jetmoe": "JetMoeForCausalLM jetmoe",
    "jina_embeddings_v3": "JinaEmbeddingsV3Model JinaEmbeddingsV3ForMaskedLM jina_embeddings_v3",
    "kimi_k3": "KimiK3ForConditionalGeneration kimi_k3",
    "kimi_linear": "KimiLinearForCausalLM kimi_linear",
    "klear": "KlearMoeForCausalLM Klear",
    "kolibri1": "Kolibri1ForCausalLM kolibri1",
    "laguna": "LagunaForCausalLM laguna",
    "lara_mini": "LaraMiniForCausalLM lara_mini",
    "lfm2": "Lfm2ForCausalLM Lfm2MoeForCausalLM Lfm2VlForConditionalGeneration lfm2 lfm2_moe lfm2_vl lfm2-vl",
    "lfm3": "Lfm3ForCausalLM Lfm3VlForConditionalGeneration lfm3 lfm3_vl",
    "lille": "LilleForCausalLM lille-130m",
    "llama": (
        "LlamaForCausalLM LlamaModel MistralModel Qwen2Model Qwen3Model MistralForCausalLM Qwen2ForCausalLM "
        "Qwen3ForCausalLM LLaMAForCausalLM llama mistral qwen2 qwen3"
    ),
    "llama4": "Llama4ForCausalLM Llama4ForConditionalGeneration llama4 llama4_text",
    "llama_bidirec": "LlamaBidirectionalModel llama_bidirec",
    "llama_kin": (
        "InternLMForCausalLM AquilaForCausalLM AquilaModel PanguEmbeddedForCausalLM YiForCausalLM "
        "KORMoForCausalLM InternLM3ForCausalLM IQuestCoderForCausalLM XverseForCausalLM "
        "TeleChat3ForCausalLM ExaoneForCausalLM PanguEmbedded Yi kormo internlm aquila internlm3 "
        "iquestcoder xverse telechat3 exaone"
    ),
    "longcat_flash": "LongcatFlashForCausalLM longcat_flash",
    "longcat_ngram": "LongcatFlashNgramForCausalLM longcat_flash_ngram",
    "mamba": "Mamba2ForCausalLM MambaForCausalLM FalconMambaForCausalLM mamba2 mamba falcon_mamba",
    "mellum": "MellumForCausalLM mellum",
    "mimo": "MiMoForCausalLM mimo",
    "mimo_v2_flash": "MiMoV2FlashForCausalLM MiMoV2ForCausalLM mimo_v2_flash mimo_v2",
    "minicpm": "MiniCPMForCausalLM minicpm",
    "minicpm3": "MiniCPM3ForCausalLM minicpm3",
    "minimax": (
        "MiniMaxForCausalLM MiniMaxText01ForCausalLM MiniMaxM1ForCausalLM minimax minimax_text_01 minimax_m1"
    ),
    "minimax_m2": "MiniMaxM2ForCausalLM minimax_m2",
    "minimax_m3": "MiniMaxM3VLForCausalLM minimax_m3_vl_text",
    "ministral3": "Ministral3ForCausalLM Mistral3ForConditionalGeneration ministral3 mistral3",
    "mistral4": "Mistral4ForCausalLM mistral4",
    "mistral_large4": "MistralLarge4ForConditionalGeneration mistral_large4 mistral_large4_text",
    "mixtral": "MixtralForCausalLM mixtral",
    "mllama": "MllamaForConditionalGeneration MllamaForCausalLM mllama mllama_text_model",
    "modernbert": "ModernBertModel ModernBertForMaskedLM modernbert",
    "modernbert_decoder": "ModernBertDecoderForCausalLM modernbert-decoder",
    "molmo2": "molmo2_text",
    "mpt": "MptForCausalLM MPTForCausalLM mpt",
    "multimodal": (
        "apertus1p5 Apertus1p5ForConditionalGeneration aria AriaForConditionalGeneration audioflamingo3 "
        "AudioFlamingo3ForConditionalGeneration aya_vision AyaVisionForConditionalGeneration cohere2_vision "
        "Cohere2VisionForConditionalGeneration cohere_compass CohereCompassForConditionalGeneration "
        "deepseek_vl deepseek_vl_hybrid DeepseekVLForConditionalGeneration "
        "DeepseekVLHybridForConditionalGeneration dots3_note Dots3NoteForConditionalGeneration emu3 "
        "Emu3ForConditionalGeneration ernie4_5_moe_vl ernie4_5_vl_moe "
        "Ernie4_5_VL_MoeForConditionalGeneration Ernie4_5_VLMoeForConditionalGeneration exaone4_5 "
        "Exaone4_5_ForConditionalGeneration fast_vlm FastVlmForConditionalGeneration fun_asr_nano "
        "FunAsrNanoForConditionalGeneration fuyu FuyuForCausalLM glm46v Glm46VForConditionalGeneration "
        "glm4v glm4v_moe Glm4vForConditionalGeneration Glm4vMoeForConditionalGeneration glm_ocr glmasr "
        "GlmAsrForConditionalGeneration glmga GlmOcrForConditionalGeneration got_ocr2 "
        "GotOcr2ForConditionalGeneration granite4_vision Granite4VisionForConditionalGeneration "
        "granite_docling granite_speech granite_speech_plus GraniteDoclingForConditionalGeneration "
        "GraniteSpeechForConditionalGeneration GraniteSpeechPlusForConditionalGeneration hunyuan_vl "
        "HunYuanVLForConditionalGeneration hy_v4_vl hyperclovax_vision_v2 "
        "HyperCLOVAXVisionV2ForConditionalGeneration HYV4VLForConditionalGeneration idefics2 "
        "Idefics2ForConditionalGeneration idefics3 Idefics3ForConditionalGeneration inkling2 inkling2_loop "
        "Inkling2ForConditionalGeneration Inkling2LoopForConditionalGeneration inkling_mm_model "
        "InklingForConditionalGeneration internvl internvl_chat InternVLChatModel "
        "InternVLForConditionalGeneration janus JanusForConditionalGeneration kimi_k25 "
        "Kimi_K25ForConditionalGeneration kimi_vl KimiK25ForConditionalGeneration "
        "KimiVLForConditionalGeneration lighton_ocr LightOnOcrForConditionalGeneration llava llava_next "
        "llava_next_video llava_onevision LlavaForConditionalGeneration LlavaNextForConditionalGeneration "
        "LlavaNextVideoForConditionalGeneration LlavaOnevisionForConditionalGeneration minimax_m3_vl "
        "MiniMaxM3SparseForConditionalGeneration molmo2 Molmo2ForConditionalGeneration "
        "moss_transcribe_diarize MossTranscribeDiarizeForConditionalGeneration musicflamingo "
        "MusicFlamingoForConditionalGeneration omniasr OmniASRForConditionalGeneration ovis2 "
        "Ovis2ForConditionalGeneration paddleocr_vl PaddleOCRVLForConditionalGeneration perception_lm "
        "PerceptionLMForConditionalGeneration pixtral pp_chart2table qianfan_ocr "
        "QianfanOCRForConditionalGeneration qwen2_5_omni qwen2_5_omni_thinker "
        "Qwen2_5OmniForConditionalGeneration Qwen2_5OmniModel Qwen2_5OmniThinkerForConditionalGeneration "
        "qwen2_audio Qwen2AudioForConditionalGeneration qwen3_asr qwen3_omni_moe qwen3_omni_moe_thinker "
        "Qwen3ASRForConditionalGeneration Qwen3OmniMoeForConditionalGeneration "
        "Qwen3OmniMoeThinkerForConditionalGeneration smolvlm SmolVLMForConditionalGeneration step3p7 "
        "Step3p7ForConditionalGeneration vibevoice_asr VibeVoiceAsrForConditionalGeneration video_llama_3 "
        "video_llava VideoLlama3ForConditionalGeneration VideoLlavaForConditionalGeneration vipllava "
        "VipLlavaForConditionalGeneration voxtral VoxtralForConditionalGeneration"
    ),
    "muse_glimmer": "MuseGlimmerForConditionalGeneration muse_glimmer muse_glimmer_text",
    "muse_glimmer_assistant": "MuseGlimmerAssistantModel muse_glimmer_assistant",
    "muse_spark": "MuseSparkForConditionalGeneration muse_spark muse_spark_text",
    "nanbeige": "NanbeigeForCausalLM nanbeige",
    "nanochat": "NanoChatForCausalLM nanochat",
    "nemotron": "NemotronForCausalLM nemotron",
    "nemotron_h": (
        "NemotronHForCausalLM NemotronH_Nano_VL_V2 NemotronH_Omni_Reasoning_V3 "
        "NemotronH_Nano_Omni_Reasoning_V3 nemotron_h nemotron_h_omni"
    ),
    "nemotron_nas": "DeciLMForCausalLM nemotron-nas deci",
    "nomic_bert": "NomicBertModel NomicBertForMaskedLM nomic_bert",
    "olmo": "OlmoForCausalLM olmo",
    "olmo2": "Olmo2ForCausalLM Olmo3ForCausalLM Exaone4ForCausalLM olmo2 olmo3 exaone4",
    "olmo_hybrid": "OlmoHybridForCausalLM olmo_hybrid",
    "olmoe": "OlmoeForCausalLM FlexOlmoForCausalLM olmoe flex_olmo",
    "openai_gpt": "OpenAIGPTLMHeadModel openai-gpt",
    "openelm": "OpenELMForCausalLM openelm",
    "opt": "OPTForCausalLM opt",
    "orion": "OrionForCausalLM orion",
    "ouro": "OuroForCausalLM ouro",
    "persimmon": "PersimmonForCausalLM persimmon",
    "phi": "PhiForCausalLM phi",
    "phi3": "Phi3ForCausalLM Phi4MultimodalForCausalLM Phi4MMForCausalLM phi3 phi4_multimodal phi4mm",
    "phi3small": "Phi3SmallForCausalLM phi3small",
    "phimoe": "PhimoeForCausalLM PhiMoEForCausalLM phimoe",
    "plamo": "PlamoForCausalLM plamo",
    "plamo2": "Plamo2ForCausalLM PLaMo2ForCausalLM plamo2",
    "plamo3": "Plamo3ForCausalLM PLaMo3ForCausalLM plamo3",
    "plm": "PLMForCausalLM plm",
    "qwen1": "QWenLMHeadModel qwen",
    "qwen3_5": (
        "Qwen3NextForCausalLM Qwen3_5ForCausalLM Qwen3_5ForConditionalGeneration Qwen3_5MoeForCausalLM "
        "Qwen3_5MoeForConditionalGeneration MiniCPMOcrForConditionalGeneration "
        "MiniCPMV4_6ForConditionalGeneration MiniCPMV4_7ForConditionalGeneration minicpm_ocr minicpmv4_6 "
        "minicpmv4_7 qwen3_next qwen3_5 qwen3_5_text qwen3_5_moe qwen3_5_moe_text"
    ),
    "qwen4_exp": "Qwen4ExpForCausalLM Qwen4ExpForConditionalGeneration qwen4_exp qwen4_exp_text",
    "qwen_moe": (
        "Qwen2MoeForCausalLM Qwen3MoeForCausalLM Qwen3VLMoeForConditionalGeneration qwen2_moe qwen3_moe "
        "qwen3_vl_moe qwen3_vl_moe_text"
    ),
    "qwen_vl": (
        "Qwen2VLForConditionalGeneration Qwen2_5_VLForConditionalGeneration Qwen3VLForConditionalGeneration "
        "qwen2_vl qwen2_5_vl qwen3_vl"
    ),
    "recurrent_gemma": "RecurrentGemmaForCausalLM recurrent_gemma",
    "ring_linear": "BailingMoeLinearForCausalLM BailingMoeLinearV2ForCausalLM bailing_moe_linear",
    "rwkv": "RwkvForCausalLM rwkv",
    "rwkv6": "Rwkv5ForCausalLM Rwkv6ForCausalLM rwkv5 rwkv6",
    "rwkv7": "RWKV7ForCausalLM rwkv7",
    "seed_oss": "SeedOssForCausalLM seed_oss",
    "smallthinker": "SmallThinkerForCausalLM smallthinker",
    "smollm3": "SmolLM3ForCausalLM smollm3",
    "spark2_5": "Spark2_5ForCausalLM spark2_5",
    "stablelm": "StableLmForCausalLM StableLMEpochForCausalLM stablelm_epoch stablelm",
    "starcoder2": "Starcoder2ForCausalLM starcoder2",
    "step3p5": "Step3p5ForCausalLM step3p5",
    "t5": (
        "T5ForConditionalGeneration MT5ForConditionalGeneration UMT5ForConditionalGeneration T5EncoderModel "
        "MT5EncoderModel UMT5EncoderModel t5 mt5 umt5"
    ),
    "t5gemma": "T5GemmaForConditionalGeneration t5gemma",
    "t5gemma2": "T5Gemma2ForConditionalGeneration t5gemma2",
    "talkie": "TalkieForCausalLM talkie",
    "xglm": "XGLMForCausalLM xglm",
    "xlstm": "xLSTMForCausalLM xlstm",
    "youtu": "YoutuForCausalLM youtu youtu_llm",
    "zamba": "ZambaForCausalLM zamba",
    "zamba2": "Zamba2ForCausalLM zamba2",
    "zaya": "ZayaForCausalLM zaya",
}
"""By module with a FAMILY: what stands in `architectures[0]`, and in `model_type` in a file without
architectures, blanks between."""

ARCHITECTURES: dict[str, str] = {name: module for module, names in NAMES.items() for name in names.split()}
"""The module of each name."""

WELL_KNOWN = tuple(NAMES["llama"].split()[:3])
"""What is named to those who ask for a name that comes near none."""

HEADLESS = {
    "LlamaForCausalLM": "LlamaModel",
    "MistralForCausalLM": "MistralModel",
    "Qwen2ForCausalLM": "Qwen2Model",
    "Qwen3ForCausalLM": "Qwen3Model",
    "Gemma3ForCausalLM": "Gemma3TextModel",
}
"""What files call themselves whose output head was left out, as it takes no part in embeddings: by the name
of the class that has one.
"""

KIN = ("llama", "llama_kin")
"""Modules by architecture and by model_type that do not contradict each other: transformers computes
InternLM3, IQuestCoder and EXAONE 3 with its own Llama, and names that in their files. The model_type counts.
"""

_INSIDE: dict[str, dict[str, str]] = {"ministral3": {"mistral4": "mistral4"}}
"""Wrappers with text models of several families: the wrapper's own module, but for these model types inside.
"""


def architecture_name(raw: Mapping[str, Any]) -> str:
    """What the config calls itself: `architectures[0]`, else `model_type`, else "(none named)"."""
    listed = raw.get("architectures")
    if isinstance(listed, list) and listed and isinstance(listed[0], str):
        return listed[0]
    kind = raw.get("model_type")
    return kind if isinstance(kind, str) else "(none named)"


def by_both_names(raw: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The modules of its architecture and of its model_type; None where no row has one."""
    return ARCHITECTURES.get(architecture_name(raw)), ARCHITECTURES.get(str(raw.get("model_type")))


def module_name(raw: Mapping[str, Any]) -> str | None:
    """The module that runs this config, in this folder; None where no row has it."""
    module, kind = by_both_names(raw)
    if (module is None and "architectures" not in raw) or (module, kind) == KIN:
        module = kind
    for _, block in levels(raw)[1:]:
        module = _INSIDE.get(str(module), {}).get(str(block.get("model_type")), module)
    return module
