"""What one architecture file offers, and how a config finds its file.

A family is one module in this folder with four names (see `Architecture`). `ARCHITECTURES` maps what
config.json says in `architectures` or `model_type` to the module. The text of a config only ever selects a
row of this table; it never names code to import. What is in no row is for `foreign`, which asks mlx-lm.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from runtime.cache.layout import LayerSpec
from runtime.errors import UnsupportedModel, shown
from runtime.models.document import check_document
from runtime.models.wrapper import levels

if TYPE_CHECKING:
    import mlx.core as mx

    from runtime.step import Step


class Network(Protocol):
    """The modules of a model: an `mlx.nn.Module` with these two calls.

    B rows, L tokens, D hidden size, V vocabulary. `caches` holds one entry per layer of the layout, None
    where a layer remembers nothing.
    """

    def __call__(self, tokens: "mx.array", step: "Step", caches: Sequence[Any]) -> "mx.array":
        """int32 [B, L] -> the last layer's normed hidden states [B, L, D]."""
        ...

    def logits(self, hidden: "mx.array") -> "mx.array":
        """[..., D] -> [..., V]."""
        ...


class Config(Protocol):
    """What every family's frozen config can say; the rest is the family's own."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def context_length(self) -> int: ...


class Architecture(Protocol):
    """The four names that a module of this folder defines."""

    def parse(self, raw: Mapping[str, Any]) -> Any:
        """config.json -> the family's frozen Config; UnsupportedModel for a value it would compute
        wrongly.
        """
        ...

    def layout(self, config: Any) -> list[LayerSpec]:
        """What each layer remembers, one entry per layer."""
        ...

    def build(self, config: Any) -> Any:
        """Modules with lazy (unallocated) weights, named as the tensors of the checkpoint."""
        ...

    def adapt(self, config: Any, weights: "dict[str, mx.array]") -> "dict[str, mx.array]":
        """Checkpoint names and layouts -> those of `build`. Lazy: no array is evaluated."""
        ...


_LLAMA = "runtime.models.llama"
_LLAMA_KIN = "runtime.models.llama_kin"
_MAMBA = "runtime.models.mamba"
_QWEN3_5 = "runtime.models.qwen3_5"
_GEMMA = "runtime.models.gemma"
_PHI3 = "runtime.models.phi3"
_SMOLLM3 = "runtime.models.smollm3"
_OLMO2 = "runtime.models.olmo2"
_GRANITE = "runtime.models.granite"
_COHERE = "runtime.models.cohere"
_GLM4 = "runtime.models.glm4"
_LFM2 = "runtime.models.lfm2"
_FALCON_H1 = "runtime.models.falcon_h1"
_NEMOTRON_H = "runtime.models.nemotron_h"
_MINISTRAL3 = "runtime.models.ministral3"
_SEED_OSS = "runtime.models.seed_oss"
_QWEN_VL = "runtime.models.qwen_vl"
_HUNYUAN = "runtime.models.hunyuan"
_APERTUS = "runtime.models.apertus"
_STARCODER2 = "runtime.models.starcoder2"
_NEMOTRON = "runtime.models.nemotron"
_STABLELM = "runtime.models.stablelm"
_GRANITE_HYBRID = "runtime.models.granite_hybrid"
_BAMBA = "runtime.models.bamba"
_JAMBA = "runtime.models.jamba"
_RECURRENT_GEMMA = "runtime.models.recurrent_gemma"
_GEMMA4 = "runtime.models.gemma4"
_ZAMBA2 = "runtime.models.zamba2"
_QWEN_MOE = "runtime.models.qwen_moe"
_MIXTRAL = "runtime.models.mixtral"
_OLMOE = "runtime.models.olmoe"
_PHIMOE = "runtime.models.phimoe"
_GRANITEMOE = "runtime.models.granitemoe"
_GPT_OSS = "runtime.models.gpt_oss"
_GEMMA3N = "runtime.models.gemma3n"
_GEMMA4_ASSISTANT = "runtime.models.gemma4_assistant"
_OLMO_HYBRID = "runtime.models.olmo_hybrid"
_DEEPSEEK = "runtime.models.deepseek"
_GLM4_MOE = "runtime.models.glm4_moe"
_GPT2 = "runtime.models.gpt2"
_GPT_NEOX = "runtime.models.gpt_neox"
_LLAMA4 = "runtime.models.llama4"
_KIMI_LINEAR = "runtime.models.kimi_linear"
_MLLAMA = "runtime.models.mllama"
_COHERE2_MOE = "runtime.models.cohere2_moe"
_LAGUNA = "runtime.models.laguna"
_MIMO_V2_FLASH = "runtime.models.mimo_v2_flash"
_MUSE_GLIMMER = "runtime.models.muse_glimmer"
_MUSE_GLIMMER_ASSISTANT = "runtime.models.muse_glimmer_assistant"
_DFLASH = "runtime.models.dflash"
_ERNIE4_5 = "runtime.models.ernie4_5"
_MINIMAX_M2 = "runtime.models.minimax_m2"
_PHI = "runtime.models.phi"
_MISTRAL4 = "runtime.models.mistral4"
_DOTS1 = "runtime.models.dots1"

ARCHITECTURES: dict[str, str] = {
    "LlamaForCausalLM": _LLAMA,
    "MistralForCausalLM": _LLAMA,
    "Qwen2ForCausalLM": _LLAMA,
    "Qwen3ForCausalLM": _LLAMA,
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    "InternLM3ForCausalLM": _LLAMA_KIN,
    "IQuestCoderForCausalLM": _LLAMA_KIN,
    "XverseForCausalLM": _LLAMA_KIN,
    "TeleChat3ForCausalLM": _LLAMA_KIN,
    "NanbeigeForCausalLM": _LLAMA_KIN,
    "internlm3": _LLAMA_KIN,
    "iquestcoder": _LLAMA_KIN,
    "xverse": _LLAMA_KIN,
    "telechat3": _LLAMA_KIN,
    "nanbeige": _LLAMA_KIN,
    "Mamba2ForCausalLM": _MAMBA,
    "mamba2": _MAMBA,
    "GemmaForCausalLM": _GEMMA,
    "Gemma2ForCausalLM": _GEMMA,
    "Gemma3ForCausalLM": _GEMMA,
    "Gemma3ForConditionalGeneration": _GEMMA,
    "gemma": _GEMMA,
    "gemma2": _GEMMA,
    "gemma3": _GEMMA,
    "gemma3_text": _GEMMA,
    "Qwen3NextForCausalLM": _QWEN3_5,
    "Qwen3_5ForCausalLM": _QWEN3_5,
    "Qwen3_5ForConditionalGeneration": _QWEN3_5,
    "Qwen3_5MoeForCausalLM": _QWEN3_5,
    "Qwen3_5MoeForConditionalGeneration": _QWEN3_5,
    "qwen3_next": _QWEN3_5,
    "qwen3_5": _QWEN3_5,
    "qwen3_5_text": _QWEN3_5,
    "qwen3_5_moe": _QWEN3_5,
    "qwen3_5_moe_text": _QWEN3_5,
    "Phi3ForCausalLM": _PHI3,
    "phi3": _PHI3,
    "SmolLM3ForCausalLM": _SMOLLM3,
    "smollm3": _SMOLLM3,
    "Olmo2ForCausalLM": _OLMO2,
    "Olmo3ForCausalLM": _OLMO2,
    "Exaone4ForCausalLM": _OLMO2,
    "olmo2": _OLMO2,
    "olmo3": _OLMO2,
    "exaone4": _OLMO2,
    "GraniteForCausalLM": _GRANITE,
    "granite": _GRANITE,
    "CohereForCausalLM": _COHERE,
    "Cohere2ForCausalLM": _COHERE,
    "cohere": _COHERE,
    "cohere2": _COHERE,
    "Glm4ForCausalLM": _GLM4,
    "glm4": _GLM4,
    "Lfm2ForCausalLM": _LFM2,
    "Lfm2MoeForCausalLM": _LFM2,
    "lfm2": _LFM2,
    "lfm2_moe": _LFM2,
    "Lfm2VlForConditionalGeneration": _LFM2,
    "lfm2_vl": _LFM2,
    "FalconH1ForCausalLM": _FALCON_H1,
    "falcon_h1": _FALCON_H1,
    "NemotronHForCausalLM": _NEMOTRON_H,
    "nemotron_h": _NEMOTRON_H,
    "NemotronH_Nano_VL_V2": _NEMOTRON_H,
    "NemotronH_Nano_Omni_Reasoning_V3": _NEMOTRON_H,
    "Ministral3ForCausalLM": _MINISTRAL3,
    "Mistral3ForConditionalGeneration": _MINISTRAL3,
    "ministral3": _MINISTRAL3,
    "mistral3": _MINISTRAL3,
    "SeedOssForCausalLM": _SEED_OSS,
    "seed_oss": _SEED_OSS,
    "Qwen2VLForConditionalGeneration": _QWEN_VL,
    "Qwen2_5_VLForConditionalGeneration": _QWEN_VL,
    "Qwen3VLForConditionalGeneration": _QWEN_VL,
    "qwen2_vl": _QWEN_VL,
    "qwen2_5_vl": _QWEN_VL,
    "qwen3_vl": _QWEN_VL,
    "HunYuanDenseV1ForCausalLM": _HUNYUAN,
    "hunyuan_v1_dense": _HUNYUAN,
    "ApertusForCausalLM": _APERTUS,
    "apertus": _APERTUS,
    "Starcoder2ForCausalLM": _STARCODER2,
    "starcoder2": _STARCODER2,
    "NemotronForCausalLM": _NEMOTRON,
    "nemotron": _NEMOTRON,
    "StableLmForCausalLM": _STABLELM,
    "stablelm": _STABLELM,
    "GraniteMoeHybridForCausalLM": _GRANITE_HYBRID,
    "granitemoehybrid": _GRANITE_HYBRID,
    "BambaForCausalLM": _BAMBA,
    "bamba": _BAMBA,
    "MambaForCausalLM": _MAMBA,
    "FalconMambaForCausalLM": _MAMBA,
    "mamba": _MAMBA,
    "falcon_mamba": _MAMBA,
    "JambaForCausalLM": _JAMBA,
    "jamba": _JAMBA,
    "RecurrentGemmaForCausalLM": _RECURRENT_GEMMA,
    "recurrent_gemma": _RECURRENT_GEMMA,
    "Gemma4ForCausalLM": _GEMMA4,
    "Gemma4ForConditionalGeneration": _GEMMA4,
    "Gemma4UnifiedForCausalLM": _GEMMA4,
    "Gemma4UnifiedForConditionalGeneration": _GEMMA4,
    "gemma4": _GEMMA4,
    "gemma4_text": _GEMMA4,
    "gemma4_unified": _GEMMA4,
    "gemma4_unified_text": _GEMMA4,
    "Zamba2ForCausalLM": _ZAMBA2,
    "zamba2": _ZAMBA2,
    "Qwen2MoeForCausalLM": _QWEN_MOE,
    "Qwen3MoeForCausalLM": _QWEN_MOE,
    "Qwen3VLMoeForConditionalGeneration": _QWEN_MOE,
    "qwen2_moe": _QWEN_MOE,
    "qwen3_moe": _QWEN_MOE,
    "qwen3_vl_moe": _QWEN_MOE,
    "qwen3_vl_moe_text": _QWEN_MOE,
    "MixtralForCausalLM": _MIXTRAL,
    "mixtral": _MIXTRAL,
    "OlmoeForCausalLM": _OLMOE,
    "olmoe": _OLMOE,
    "PhimoeForCausalLM": _PHIMOE,
    "PhiMoEForCausalLM": _PHIMOE,
    "phimoe": _PHIMOE,
    "GraniteMoeForCausalLM": _GRANITEMOE,
    "GraniteMoeSharedForCausalLM": _GRANITEMOE,
    "granitemoe": _GRANITEMOE,
    "granitemoeshared": _GRANITEMOE,
    "GptOssForCausalLM": _GPT_OSS,
    "gpt_oss": _GPT_OSS,
    "Gemma3nForCausalLM": _GEMMA3N,
    "Gemma3nForConditionalGeneration": _GEMMA3N,
    "gemma3n": _GEMMA3N,
    "gemma3n_text": _GEMMA3N,
    "Gemma4AssistantForCausalLM": _GEMMA4_ASSISTANT,
    "Gemma4UnifiedAssistantForCausalLM": _GEMMA4_ASSISTANT,
    "gemma4_assistant": _GEMMA4_ASSISTANT,
    "gemma4_unified_assistant": _GEMMA4_ASSISTANT,
    "OlmoHybridForCausalLM": _OLMO_HYBRID,
    "olmo_hybrid": _OLMO_HYBRID,
    "DeepseekV2ForCausalLM": _DEEPSEEK,
    "DeepseekV3ForCausalLM": _DEEPSEEK,
    "DeepseekV32ForCausalLM": _DEEPSEEK,
    "Glm4MoeLiteForCausalLM": _DEEPSEEK,
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v32": _DEEPSEEK,
    "glm4_moe_lite": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "Glm4MoeForCausalLM": _GLM4_MOE,
    "glm4_moe": _GLM4_MOE,
    "GPT2LMHeadModel": _GPT2,
    "gpt2": _GPT2,
    "GPTNeoXForCausalLM": _GPT_NEOX,
    "gpt_neox": _GPT_NEOX,
    "Llama4ForCausalLM": _LLAMA4,
    "Llama4ForConditionalGeneration": _LLAMA4,
    "llama4": _LLAMA4,
    "llama4_text": _LLAMA4,
    "KimiLinearForCausalLM": _KIMI_LINEAR,
    "kimi_linear": _KIMI_LINEAR,
    "MllamaForConditionalGeneration": _MLLAMA,
    "MllamaForCausalLM": _MLLAMA,
    "mllama": _MLLAMA,
    "mllama_text_model": _MLLAMA,
    "Cohere2MoeForCausalLM": _COHERE2_MOE,
    "cohere2_moe": _COHERE2_MOE,
    "LagunaForCausalLM": _LAGUNA,
    "laguna": _LAGUNA,
    "MiMoV2FlashForCausalLM": _MIMO_V2_FLASH,
    "mimo_v2_flash": _MIMO_V2_FLASH,
    "MuseGlimmerForConditionalGeneration": _MUSE_GLIMMER,
    "muse_glimmer": _MUSE_GLIMMER,
    "muse_glimmer_text": _MUSE_GLIMMER,
    "MuseGlimmerAssistantModel": _MUSE_GLIMMER_ASSISTANT,
    "muse_glimmer_assistant": _MUSE_GLIMMER_ASSISTANT,
    "DFlashDraftModel": _DFLASH,
    "DFlashLagunaForCausalLM": _DFLASH,
    "Ernie4_5ForCausalLM": _ERNIE4_5,
    "Ernie4_5_ForCausalLM": _ERNIE4_5,
    "Ernie4_5_MoeForCausalLM": _ERNIE4_5,
    "ernie4_5": _ERNIE4_5,
    "ernie4_5_moe": _ERNIE4_5,
    "MiniMaxM2ForCausalLM": _MINIMAX_M2,
    "minimax_m2": _MINIMAX_M2,
    "PhiForCausalLM": _PHI,
    "phi": _PHI,
    "Mistral4ForCausalLM": _MISTRAL4,
    "mistral4": _MISTRAL4,
    "Dots1ForCausalLM": _DOTS1,
    "SolarOpenForCausalLM": _DOTS1,
    "ExaoneMoeForCausalLM": _DOTS1,
    "ExaoneMoEForCausalLM": _DOTS1,
    "dots1": _DOTS1,
    "solar_open": _DOTS1,
    "exaone_moe": _DOTS1,
}

# Wrappers with text towers of several families: the wrapper's own module, but for these model types of a
# tower.
_TOWERS: dict[str, dict[str, str]] = {_MINISTRAL3: {"mistral4": _MISTRAL4}}


@dataclass(frozen=True, slots=True)
class Described:
    """A config understood: its architecture, parsed config and layout. Nothing is allocated for it."""

    name: str
    architecture: Architecture
    config: Any
    layout: tuple[LayerSpec, ...]

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @property
    def hidden_size(self) -> int:
        return self.config.hidden_size

    @property
    def context_length(self) -> int:
        return self.config.context_length

    @property
    def through(self) -> str | None:
        """What runs it, if that is none of ours: "mlx-lm 0.32.2 (helium)"."""
        return getattr(self.architecture, "through", None)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the user."""
        if self.through is None:
            return ()
        return (f"modelkit has no {self.name} of its own: it runs through the model class of {self.through}",)


def architecture_name(raw: Mapping[str, Any]) -> str:
    """What the config calls itself: `architectures[0]`, else `model_type`, else "(none named)"."""
    listed = raw.get("architectures")
    if isinstance(listed, list) and listed and isinstance(listed[0], str):
        return listed[0]
    kind = raw.get("model_type")
    return kind if isinstance(kind, str) else "(none named)"


def find_architecture(raw: Mapping[str, Any]) -> Architecture:
    """The module that runs this config, or UnsupportedModel naming what the config asked for."""
    name = architecture_name(raw)
    module = ARCHITECTURES.get(name)
    if module is None and "architectures" not in raw:
        module = ARCHITECTURES.get(str(raw.get("model_type")))
    if module is None:
        return _find_foreign(name, raw)
    for _, block in levels(raw)[1:]:
        module = _TOWERS.get(module, {}).get(str(block.get("model_type")), module)
    return import_module(module)  # pyright: ignore[reportReturnType] -- modules satisfy the protocol by their functions


def _find_foreign(name: str, raw: Mapping[str, Any]) -> Architecture:
    """mlx-lm's class behind our memory, where that is installed and has one."""
    if str(raw.get("model_type")) in ARCHITECTURES:
        reason = f"only other classes of {raw['model_type']} are"
    else:
        from runtime.models.foreign import find_foreign

        try:
            return find_foreign(name, raw)
        except UnsupportedModel as fault:
            reason = str(fault)
    known = [key for key in ARCHITECTURES if key[0].isupper()]
    near = ", ".join(get_close_matches(name[:80], known, 3, 0.4)) or ", ".join(known[:3])
    raise UnsupportedModel(
        f"the architecture {shown(name)} is not supported: {reason}; docs/models.md lists what is, as {near}"
    )


def describe(raw: Mapping[str, Any]) -> Described:
    """Parse a config and lay out its memory; UnsupportedModel when it cannot be run right."""
    check_document(raw)
    architecture = find_architecture(raw)
    config = architecture.parse(raw)
    return Described(architecture_name(raw), architecture, config, tuple(architecture.layout(config)))
