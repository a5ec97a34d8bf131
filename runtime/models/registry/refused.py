"""Models that are known and not run, and why.

By architecture and by model_type, as `names.NAMES`. Whoever adds one of them to that takes its rows
from here.
"""

_TOKENIZER = "its tokenizer is a program in Python, and code that comes with a model is never run"
_BOTH_WAYS = (
    "every token of its prompt sees those behind it, and answers here continue prompts whose tokens see what "
    "came before"
)
_DIFFUSION = (
    "it writes by diffusion, whole blocks of tokens at a time, and answers here are written token by token"
)
_CAPACITY = (
    "its experts take so many tokens each, and what one token gets depends on all that are read with it"
)
_MEDIA = "it answers pictures, sound or other data, and models run on text alone here"
_SPARSE = "its layers see parts of a text by hashes or in blocks, which no layer here does"
_WORDS = "it fills in masked words; of encoders only those are run that embeddings are made of"
_UNCHECKED = "neither transformers nor mlx-lm has a class for it with which its answers could be compared"
_PLACES = "its layers score pairs of places in a way that no layer here does"

_ROWS: dict[str, tuple[str, ...]] = {
    _TOKENIZER: (
        *("biogpt", "BioGptForCausalLM", "ctrl", "CTRLLMHeadModel"),
        *("gpt_neox_japanese", "GPTNeoXJapaneseForCausalLM", "cpmant", "CpmAntForCausalLM"),
        *("xlm", "XLMWithLMHeadModel", "fsmt", "FSMTForConditionalGeneration"),
        *("prophetnet", "ProphetNetForConditionalGeneration", "ProphetNetForCausalLM"),
        *("Emu3", "Emu3ForCausalLM"),  # as first published; emu3 of transformers is run
        *("flaubert", "FlaubertWithLMHeadModel", "roc_bert", "RoCBertForCausalLM", "RoCBertForMaskedLM"),
    ),
    _BOTH_WAYS: (*("paligemma", "PaliGemmaForConditionalGeneration", "hrm_text", "HrmTextForCausalLM"),),
    _DIFFUSION: (
        *("diffusion_gemma", "DiffusionGemmaForBlockDiffusion", "llada", "LLaDAModelLM"),
        *("llada_moe", "LLaDAMoEModelLM", "LLaDAMoEModel", "Dream", "DreamModel", "RND1", "RND1Model"),
    ),
    _UNCHECKED: (
        *("grok-1", "Grok1ForCausalLM", "Grok1ModelForCausalLM"),  # Grok 2 is one too, and calls itself git
        *("gpt_refact", "GPTRefactForCausalLM", "maincoder", "MaincoderForCausalLM"),
        *("cogvlm", "CogVLMForCausalLM", "CogVLMVideoForCausalLM"),
        *("rwkv6qwen2", "RWKV6Qwen2ForCausalLM", "rwkv_hybrid", "RwkvHybridForCausalLM"),
    ),
    _CAPACITY: (
        *("switch_transformers", "SwitchTransformersForConditionalGeneration"),
        *("nllb-moe", "NllbMoeForConditionalGeneration"),
    ),
    _SPARSE: (
        *(
            "reformer",
            "ReformerModelWithLMHead",
            "ReformerForMaskedLM",
            "longformer",
            "LongformerForMaskedLM",
        ),
        *("big_bird", "BigBirdForCausalLM", "BigBirdForMaskedLM", "led", "LEDForConditionalGeneration"),
        *("bigbird_pegasus", "BigBirdPegasusForConditionalGeneration", "BigBirdPegasusForCausalLM"),
        *("longt5", "LongT5ForConditionalGeneration", "pegasus_x", "PegasusXForConditionalGeneration"),
    ),
    _PLACES: (
        *("xlnet", "XLNetLMHeadModel", "deberta", "DebertaForMaskedLM", "deberta-v2", "DebertaV2ForMaskedLM"),
        *("DebertaModel", "DebertaV2Model", "funnel", "FunnelForMaskedLM"),
    ),
    _WORDS: (
        *("convbert", "ConvBertForMaskedLM", "data2vec-text", "Data2VecTextForMaskedLM"),
        *("Data2VecTextForCausalLM", "esm", "EsmForMaskedLM", "esmc", "EsmcForMaskedLM", "fnet"),
        *("FNetForMaskedLM", "ibert", "IBertForMaskedLM", "layoutlm", "LayoutLMForMaskedLM", "luke"),
        *("LukeForMaskedLM", "megatron-bert", "MegatronBertForMaskedLM", "MegatronBertForCausalLM"),
        *("mobilebert", "MobileBertForMaskedLM", "mra", "MraForMaskedLM", "neomme", "NeoMMEForMaskedLM"),
        *("nystromformer", "NystromformerForMaskedLM", "rembert", "RemBertForMaskedLM"),
        *("RemBertForCausalLM", "roberta-prelayernorm", "RobertaPreLayerNormForMaskedLM"),
        *("RobertaPreLayerNormForCausalLM", "roformer", "RoFormerForMaskedLM", "RoFormerForCausalLM"),
        *("squeezebert", "SqueezeBertForMaskedLM", "tapas", "TapasForMaskedLM", "ultrabert"),
        *("UltrabertForMaskedLM", "xlm-roberta-xl", "XLMRobertaXLForMaskedLM", "XLMRobertaXLForCausalLM"),
        *("xmod", "XmodForMaskedLM", "XmodForCausalLM", "yoso", "YosoForMaskedLM", "bert-generation"),
        *("BertGenerationDecoder", "neobert", "NeoBERT", "NeoBERTLMHead"),
    ),
    _MEDIA: (
        *("blip", "BlipForConditionalGeneration", "blip-2", "Blip2ForConditionalGeneration"),
        *("instructblip", "InstructBlipForConditionalGeneration", "instructblipvideo"),
        *("InstructBlipVideoForConditionalGeneration", "kosmos-2", "Kosmos2ForConditionalGeneration"),
        *("kosmos-2.5", "Kosmos2_5ForConditionalGeneration", "deepseek_ocr2"),
        *("DeepseekOcr2ForConditionalGeneration", "unlimited_ocr", "UnlimitedOcrForConditionalGeneration"),
        *("DeepseekOCRForCausalLM", "DeepseekOCR2ForCausalLM", "florence2"),
        *("Florence2ForConditionalGeneration", "evolla", "EvollaForProteinText2Text", "idefics"),
        *("IdeficsForVisionText2Text", "pix2struct", "Pix2StructForConditionalGeneration"),
        *("pp_formulanet", "PPFormulaNetForConditionalGeneration", "udop", "UdopForConditionalGeneration"),
        *("vision-encoder-decoder", "VisionEncoderDecoderModel", "trocr", "TrOCRForCausalLM"),
        *("whisper", "WhisperForConditionalGeneration", "WhisperForCausalLM", "moshi", "MoshiForCausalLM"),
        *("musicgen", "MusicgenForCausalLM", "musicgen_melody", "MusicgenMelodyForCausalLM"),
        *("kyutai_speech_to_text", "KyutaiSpeechToTextForConditionalGeneration", "nemo_speechlm"),
        *("Nemotron3_5TranscribeForConditionalGeneration", "voxtral_realtime"),
        *("VoxtralRealtimeForConditionalGeneration", "seamless_m4t", "SeamlessM4TForTextToText"),
        *("seamless_m4t_v2", "SeamlessM4Tv2ForTextToText", "perceiver", "PerceiverForMaskedLM"),
        *("git", "GitForCausalLM", "pi0", "PI0ForConditionalGeneration"),
        *("modernvbert", "ModernVBertForMaskedLM", "ultravbert", "UltraVBertForMaskedLM"),
    ),
    "two checkpoints stand in it, each with a config of its own; ask for the model that each is": (
        *("encoder-decoder", "EncoderDecoderModel"),
    ),
    "it reads bytes in patches that a second model cuts, and texts are read as tokens here": (
        *("blt", "BltForCausalLM"),
    ),
    "it has a memory of n-grams (engram) that no layer here has": (
        *("deepseek_v41", "DeepseekV41ForCausalLM"),
    ),
    "its keys and values are rounded to eight bits as they are computed, which no layer here does": ("afm7",),
    "its weights are rotated (Hadamard), and what they are multiplied by would have to be": (
        *("prism_hadamard_qwen35",),
    ),
    "its files are from before transformers had Phi, under names of their own; those of PhiForCausalLM with "
    "the model_type phi are run": ("phixtral", "phi-msft"),
}

REFUSED: dict[str, str] = {name: why for why, names in _ROWS.items() for name in names}
"""Why it is not run, by architecture or model_type."""
