"""How a byte-pair vocabulary cuts its text first, by the name that GGUF files give it (`tokenizer.ggml.pre`).

The names are llama.cpp's (llama-vocab.cpp, conversion/base.py; MIT, The ggml authors), as of autumn 2026. It
normalises no text; where the model's own tokenizer does, so does what is made here.
"""

from difflib import get_close_matches

from modelkit.errors import MalformedFile, UnsupportedSource
from modelkit.source.gguf.vocabulary import patterns as cut
from runtime.quoting import shown
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Splitting:
    """What a name stands for."""

    patterns: tuple[str, ...]
    """Expressions, one after the other; every match becomes a part of its own."""
    whole_first: bool = False
    """A part that is a piece of the vocabulary is taken whole, whatever the merges make of it."""
    begins: bool = False
    """A bare prompt gets the begin-of-text token, where the file does not say."""
    separates: bool = False
    """A bare prompt gets the separator at its end, where the file does not say."""
    cleans: bool = True
    """`clean_up_tokenization_spaces` of the model's own tokenizer_config.json."""
    raw: bool = False
    """Pieces are text with blanks as U+2581, not letters that stand for bytes."""
    nfc: bool = False
    """The model's own tokenizer composes characters first."""


_LLAMA3 = Splitting(cut.LLAMA3, whole_first=True, begins=True)
_GPT2 = Splitting(cut.GPT2)
_GPT2_PLAIN = Splitting(cut.GPT2, cleans=False)
_ROBERTA = Splitting(cut.GPT2, separates=True)
_GPT4O = Splitting(cut.GPT4O, cleans=False)
_GLM = Splitting(cut.LLAMA3, whole_first=True)
_DEEPSEEK3 = Splitting(cut.DEEPSEEK3, cleans=False)
_QWEN2 = Splitting(cut.QWEN2, cleans=False)
_BAILING = Splitting(cut.BAILING, cleans=False)
_TINY_AYA = Splitting(cut.TINY_AYA, cleans=False)
_STARCODER = Splitting(cut.STARCODER)
_LINES = Splitting(cut.LINES, raw=True)

SPLITTINGS: dict[str, Splitting] = {
    "default": Splitting(cut.DEFAULT),
    "gpt-2": _GPT2,
    **dict.fromkeys(("phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de"), _GPT2),
    **dict.fromkeys(("a.x-4.0", "mellum", "exaone4", "jais"), _GPT2),
    "modern-bert": Splitting(cut.GPT2, nfc=True),
    "mpt": Splitting(cut.GPT2, nfc=True),
    "olmo": Splitting(cut.GPT2, nfc=True),
    **dict.fromkeys(("trillion", "granite-docling"), _GPT2_PLAIN),
    **dict.fromkeys(("roberta-bpe", "jina-v1-en", "jina-v2-code"), _ROBERTA),
    **dict.fromkeys(("starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"), _STARCODER),
    "smollm": Splitting(cut.STARCODER, cleans=False),
    "command-r": Splitting(cut.STARCODER, cleans=False, nfc=True),
    "falcon": Splitting(cut.FALCON),
    "llama-bpe": _LLAMA3,
    **dict.fromkeys(("llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral"), _LLAMA3),
    **dict.fromkeys(("midm-2.0", "lfm2", "jina-v5-nano"), _LLAMA3),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe"), Splitting(cut.LLAMA3)),
    **dict.fromkeys(("glm4", "glm5"), _GLM),
    "jais-2": Splitting(cut.JAIS2),
    "qwen2": Splitting(cut.QWEN2, cleans=False, nfc=True),
    **dict.fromkeys(("deepseek-r1-qwen", "kormo", "f2llmv2", "hunyuan", "grok-2", "solar-open"), _QWEN2),
    **dict.fromkeys(("stablelm2", "megrez"), Splitting(cut.QWEN2)),
    "qwen35": Splitting(cut.QWEN35, cleans=False),
    "ufakzeka": Splitting(cut.UFAKZEKA, cleans=False),
    "laguna": Splitting(cut.LAGUNA, cleans=False),
    "minicpm5": Splitting(cut.MINICPM5, whole_first=True),
    "seed-coder": Splitting(cut.SEED_CODER, cleans=False),
    **dict.fromkeys(("bailingmoe", "bailingmoe2", "llada-moe"), _BAILING),
    "exaone-moe": Splitting(cut.EXAONE_MOE),
    "tekken": Splitting(cut.TEKKEN, whole_first=True, begins=True, cleans=False),
    "gpt-4o": _GPT4O,
    **dict.fromkeys(("llama4", "kanana2", "talkie", "minimax-m2"), _GPT4O),
    "granite-embed-multi-97m": Splitting(cut.GRANITE_EMBED, whole_first=True, cleans=False),
    **dict.fromkeys(("tiny_aya", "cohere2moe"), _TINY_AYA),
    "youtu": Splitting(cut.YOUTU, whole_first=True, cleans=False),
    "kimi-k2": Splitting(cut.KIMI, cleans=False),
    "deepseek-llm": Splitting(cut.DEEPSEEK_LLM, cleans=False),
    "deepseek-coder": Splitting(cut.DEEPSEEK_CODER, cleans=False),
    "deepseek-v3": _DEEPSEEK3,
    **dict.fromkeys(("hunyuan-dense", "hy_v4", "joyai-llm"), _DEEPSEEK3),
    "spark2_5": Splitting(cut.SPARK, cleans=False),
    "afmoe": Splitting(cut.AFMOE, cleans=False),
    **dict.fromkeys(("poro-chat",), Splitting(cut.BLOOM, cleans=False)),
    **dict.fromkeys(("bloom", "gpt3-finnish"), Splitting(cut.BLOOM)),
    "viking": Splitting(cut.VIKING, cleans=False),
    "superbpe": Splitting(cut.SUPERBPE, cleans=False),
    "chameleon": Splitting(cut.CHAMELEON, begins=True, cleans=False),
    "gemma4": Splitting(cut.LINES, raw=True, begins=True),
    "granite-embed-multi-311m": _LINES,
    "sarvam-moe": Splitting(cut.LINES, raw=True, cleans=False),
}
"""Where one of several names stands for the same, the first is the one that export writes."""

# Files from before April 2024 have no name; the architecture tells it where it had one vocabulary only.
_BEFORE_NAMES = {
    "falcon": "falcon",
    "mpt": "mpt",
    "starcoder": "starcoder",
    "starcoder2": "starcoder",
    "gpt2": "gpt-2",
    "qwen2": "qwen2",
    "command-r": "command-r",
    "olmo": "olmo",
}


def splitting_of(name: object, architecture: object, label: str) -> tuple[str, Splitting, tuple[str, ...]]:
    """(the name, what it stands for, notes). Raises UnsupportedSource for a name that is not in the table."""
    if not isinstance(name, str | None):
        raise MalformedFile(f"{label}: `tokenizer.ggml.pre` is not text")
    if not name:
        guess = _BEFORE_NAMES.get(architecture, "default") if isinstance(architecture, str) else "default"
        note = f"{label} does not name its pre-tokenizer, as files of early 2024; `{guess}` is taken"
        return guess, SPLITTINGS[guess], (note,)
    if name not in SPLITTINGS:
        near = get_close_matches(name, SPLITTINGS, 1)
        raise UnsupportedSource(
            f"{label} cuts its text by the pre-tokenizer `{shown(name)}`, which is not known here",
            hint=f"Known is `{near[0]}`." if near else "It is newer than this version of modelkit.",
        )
    return name, SPLITTINGS[name], ()
