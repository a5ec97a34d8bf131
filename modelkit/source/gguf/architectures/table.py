"""The architectures that modelkit reads and writes, by their name in GGUF."""

from modelkit.source.gguf.architectures import (
    gemma,
    gpt,
    granite,
    latent,
    lfm2,
    llama,
    llama4,
    mixtures,
    muse,
    phi,
    plain,
    qwen,
    qwen_next,
)
from modelkit.source.gguf.architectures.architecture import Architecture

TABLE: dict[str, Architecture] = {
    row.name: row
    for row in (
        llama.LLAMA,
        llama.MISTRAL3,
        llama.SMOLLM3,
        llama.APERTUS,
        granite.GRANITE,
        granite.GRANITEMOE,
        qwen.QWEN2,
        qwen.QWEN2MOE,
        qwen.QWEN3,
        qwen.QWEN3MOE,
        qwen_next.QWEN3NEXT,
        qwen_next.QWEN35,
        qwen_next.QWEN35MOE,
        gemma.GEMMA,
        gemma.GEMMA2,
        gemma.GEMMA3,
        phi.PHI2,
        phi.PHI3,
        plain.OLMO2,
        plain.OLMOE,
        plain.SEED_OSS,
        plain.STARCODER2,
        plain.STABLELM,
        plain.EXAONE4,
        plain.NEMOTRON,
        plain.HUNYUAN,
        plain.GLM4,
        plain.ERNIE,
        plain.COMMAND_R,
        plain.COHERE2,
        mixtures.GLM4MOE,
        mixtures.DOTS1,
        mixtures.EXAONE_MOE,
        mixtures.ERNIE_MOE,
        mixtures.MINIMAX,
        mixtures.COHERE2MOE,
        llama4.LLAMA4,
        gpt.GPT2,
        gpt.GPTNEOX,
        gpt.GPT_OSS,
        lfm2.LFM2,
        lfm2.LFM2MOE,
        muse.MUSE,
        latent.DEEPSEEK2,
        latent.DEEPSEEK32,
    )
}

# Known names that FROM does not take, and why.
ELSEWHERE: dict[str, str] = {
    "clip": "this is the tower for images or sound of a model (mmproj), and FROM takes the text model's file",
    "gptoss": "Ollama's own layout of gpt-oss is not read; convert the original checkpoint with llama.cpp",
}
