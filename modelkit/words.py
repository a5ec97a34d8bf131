"""What other programs call things, and what they are called here.

One table for each kind of word: commands, options, parameters, weight formats. Messages about a word that is
not ours are made from it, and so is docs/words.md. A word stands here only if somebody who knows Ollama,
mlx-lm, llama.cpp or an OpenAI client would type it; misspellings are found elsewhere.

Plain data that imports nothing, so every room above may use it.
"""

from typing import NamedTuple


class Word(NamedTuple):
    """A word of other programs."""

    theirs: str
    """As they write it."""
    ours: str
    """Our word for the same thing; "" where there is none."""
    whose: str
    """Who says it."""
    instead: str = ""
    """A sentence on what to do, where `ours` alone does not say it."""
    of: str = ""
    """The only command that it would be an option of; "" where it does not matter."""


COMMANDS: tuple[Word, ...] = (
    Word("download", "pull", "various", "`modelkit pull hf.co/OWNER/MODEL` fetches a model"),
    Word("server", "serve", "mlx-lm", "`modelkit serve NAME`"),
    Word("chat", "run", "mlx-lm", "`modelkit run NAME` without a prompt is a conversation"),
    Word("generate", "run", "mlx-lm", "`modelkit run NAME PROMPT` answers once"),
    Word("convert", "create", "mlx-lm", "`modelkit create NAME -f Modelfile -q q4` converts and packages"),
    Word("quantize", "create", "llama.cpp", "`modelkit create NAME -f Modelfile -q q4` quantizes"),
    Word("import", "create", "various", "`modelkit create NAME -f Modelfile` imports what FROM names"),
    Word("embedding", "embed", "llama.cpp", "`modelkit embed NAME TEXT` prints its vector"),
    Word("bench", "run", "llama.cpp", "`modelkit run NAME PROMPT --verbose` says how long it took"),
    Word("benchmark", "run", "mlx-lm", "`modelkit run NAME PROMPT --verbose` says how long it took"),
    Word("perplexity", "compare", "mlx-lm", "`modelkit compare A B --text FILE` says that of two models"),
    Word("evaluate", "", "mlx-lm", "Model.logits scores token ids from Python"),
    Word("lora", "", "mlx-lm", "adapters are not trained here; ADAPTER in a Modelfile brings one"),
    Word("fuse", "create", "mlx-lm", "`modelkit create NAME -f Modelfile --fuse-adapters` merges them"),
    Word("help", "--help", "Ollama", "`modelkit --help` lists the commands, `modelkit COMMAND --help` one"),
    Word("version", "--version", "various", "`modelkit --version`"),
    Word("remove", "rm", "various"),
    Word("delete", "rm", "various"),
    Word("copy", "cp", "various"),
    Word("rename", "cp", "various", "`modelkit cp OLD NEW`, then `modelkit rm OLD`"),
    Word("mv", "cp", "various", "`modelkit cp OLD NEW`, then `modelkit rm OLD`"),
    Word("inspect", "show", "various"),
    Word("info", "show", "various"),
    Word("signin", "login", "Ollama", "`modelkit login HOST` keeps a password for a registry"),
    Word("signout", "logout", "Ollama", "`modelkit logout HOST` forgets it"),
)

_ARGUMENT = "the model is the first argument: modelkit run NAME PROMPT"
_SERVED = "models are arguments: modelkit serve NAME"
_MADE_OF = (
    "what a package is made of stands in the Modelfile: FROM ./folder, FROM m.gguf, FROM hf.co/OWNER/NAME"
)
_PIPED = "a prompt in a file is piped in: modelkit run NAME < FILE"
_DRAFT = "a draft belongs to the package: DRAFT in the Modelfile"
_ADAPTER = "ADAPTER in the Modelfile; then --adapter NAME[=SCALE]"
_SCHEMA = "--format @FILE or --format with the schema itself"
_UNASKED = "nothing is asked before a package is removed"
_WRAPPED = "answers are wrapped on terminals only: modelkit run NAME PROMPT | cat"

_GGUF = "a name that ends in .gguf makes one file: modelkit export NAME FILE.gguf"

# For what is not a parameter. A parameter's name as an option (--temperature, --top-p) needs no row, nor does
# any word of PARAMETERS.
OPTIONS: tuple[Word, ...] = (
    Word("--model", "NAME", "mlx-lm", _ARGUMENT, "run"),
    Word("-m", "NAME", "llama.cpp", _ARGUMENT, "run"),
    Word("-hf", "NAME", "llama.cpp", "the model is the first argument: modelkit run hf.co/OWNER/NAME", "run"),
    Word("--prompt", "PROMPT", "mlx-lm", "the prompt is an argument: modelkit run NAME PROMPT", "run"),
    Word("-n", "-p num_predict=128", "llama.cpp"),
    Word("-t", "-p num_thread=4", "llama.cpp"),
    Word("-np", "-p num_parallel=16", "llama.cpp"),
    Word("-b", "-p num_batch=512", "llama.cpp"),
    Word("-s", "-p seed=7", "llama.cpp"),
    Word("-ngl", "", "llama.cpp", "MLX keeps all layers on one device, so there is none to offload"),
    Word("-f", "< FILE", "llama.cpp", _PIPED, "run"),
    Word("--file", "< FILE", "llama.cpp", _PIPED, "run"),
    Word("-md", "DRAFT", "llama.cpp", _DRAFT),
    Word("--draft-model", "DRAFT", "mlx-lm", _DRAFT),
    Word("--lora", "ADAPTER", "llama.cpp", _ADAPTER),
    Word("--adapter-path", "ADAPTER", "mlx-lm", _ADAPTER),
    Word("--system-prompt", "--system", "mlx-lm", "", "run"),
    Word("-sys", "--system", "llama.cpp", "", "run"),
    Word("--json-schema", "--format", "llama.cpp", _SCHEMA, "run"),
    Word("-j", "--format", "llama.cpp", _SCHEMA, "run"),
    Word("--grammar-file", "--grammar @FILE", "llama.cpp", "", "run"),
    Word("--ignore-chat-template", "--raw", "mlx-lm", "", "run"),
    Word("--hidethinking", "--hide-thinking", "Ollama", "", "run"),
    Word("--nowordwrap", "| cat", "Ollama", _WRAPPED, "run"),
    Word("--keepalive", "", "Ollama", "`modelkit serve --keep-alive` says how long a model stays loaded"),
    Word("--insecure", "", "Ollama", "it is for pull, push and login; a run pulls over https only", "run"),
    Word("--trust-remote-code", "", "mlx-lm", "code that comes with a model is never run"),
    Word("--q-bits", "-q q4", "mlx-lm", "formats are for create: modelkit create NAME -q q4"),
    Word("--model", "NAME", "mlx-lm", _SERVED, "serve"),
    Word("-m", "NAME", "llama.cpp", _SERVED, "serve"),
    Word("--model", "FROM", "various", _MADE_OF, "create"),
    Word("--from", "FROM", "various", _MADE_OF, "create"),
    Word("--hf-path", "FROM", "mlx-lm", _MADE_OF, "create"),
    Word("--mlx-path", "NAME", "mlx-lm", "a folder is made of a package: modelkit export NAME DIR", "create"),
    Word(
        "--outfile",
        "NAME",
        "llama.cpp",
        "a file is made of a package: modelkit export NAME FILE.gguf",
        "create",
    ),
    Word("--draft", "DRAFT", "various", _DRAFT, "create"),
    Word("--adapter", "ADAPTER", "various", _ADAPTER, "create"),
    Word("--system", "SYSTEM", "various", "SYSTEM in the Modelfile", "create"),
    Word("--template", "TEMPLATE", "various", "TEMPLATE in the Modelfile", "create"),
    Word("--gguf", "FILE.gguf", "various", _GGUF, "export"),
    Word("--outtype", "-q bf16", "llama.cpp", "", "create"),
    Word("--dtype", "-q bf16", "mlx-lm", "", "create"),
    Word("-f", "", "various", _UNASKED, "rm"),
    Word("--force", "", "various", _UNASKED, "rm"),
)

# By command: what somebody may mean who gives it an argument too many.
BEYOND = {
    "create": f"{_MADE_OF[:1].upper()}{_MADE_OF[1:]}; -f FILE names another Modelfile",
    "pull": "--name NAME gives the package another name",
    "prune": "`modelkit rm NAME` removes a package",
    "login": "The user's name goes to -u",
    "export": "Each package goes to a place of its own",
    "stop": "Each model is unloaded by itself",
    "load": "Each model is loaded by itself",
}

# By argument, or by command and argument: what it is, for somebody who left it out.
MISSING = {
    "NAME": "`modelkit list` lists the packages in the store",
    "NAME...": "`modelkit list` lists the packages in the store",
    "pull ADDRESS": "such as hf.co/OWNER/MODEL, or oci://HOST/REPOSITORY:TAG",
    "push ADDRESS": "such as oci://HOST/REPOSITORY:TAG",
    "HOST": "that of a registry, such as registry.example.org",
    "DIR|FILE.gguf": "a new folder, or a file for llama.cpp",
    "A": "a model to compare with another, B",
    "B": "a second model to compare A with",
    "SOURCE": "`modelkit list` lists the packages in the store",
    "TARGET": "a second name for the package",
}

PARAMETERS: tuple[Word, ...] = (
    Word("max_tokens", "num_predict", "mlx-lm, OpenAI"),
    Word("max_completion_tokens", "num_predict", "OpenAI"),
    Word("max_output_tokens", "num_predict", "OpenAI"),
    Word("src_lang", "source_language", "transformers"),
    Word("tgt_lang", "target_language", "transformers"),
    Word("max_new_tokens", "num_predict", "transformers"),
    Word("max_length", "num_predict", "transformers"),
    Word("n_predict", "num_predict", "llama.cpp"),
    Word("predict", "num_predict", "llama.cpp"),
    Word("n_keep", "num_keep", "llama.cpp"),
    Word("keep", "num_keep", "llama.cpp"),
    Word("shift", "context_shift", "Ollama"),
    Word("ctx_shift", "context_shift", "llama.cpp"),
    Word("temp", "temperature", "mlx-lm, llama.cpp"),
    Word("repetition_penalty", "repeat_penalty", "mlx-lm, transformers"),
    Word("repetition_context_size", "repeat_last_n", "mlx-lm"),
    Word("typical", "typical_p", "llama.cpp"),
    Word("top_nsigma", "top_n_sigma", "llama.cpp"),
    Word("dynatemp_exp", "dynatemp_exponent", "llama.cpp"),
    Word("dry_sequence_breaker", "dry_sequence_breakers", "llama.cpp"),
    Word("ignore_eos", "min_tokens", "llama.cpp, vLLM"),
    Word("min_new_tokens", "min_tokens", "transformers"),
    Word("random_seed", "seed", "various"),
    Word("stop_sequences", "stop", "various"),
    Word("stop_words", "stop", "various"),
    Word("extra_eos_token", "stop", "mlx-lm"),
    Word("reverse_prompt", "stop", "llama.cpp"),
    Word("ctx_size", "num_ctx", "llama.cpp"),
    Word("n_ctx", "num_ctx", "llama.cpp"),
    Word("context_length", "num_ctx", "various"),
    Word("max_kv_size", "num_ctx", "mlx-lm"),
    Word("max_model_len", "num_ctx", "vLLM"),
    Word("kv_bits", "kv_format", "mlx-lm"),
    Word("cache_type_k", "kv_format", "llama.cpp"),
    Word("cache_type_v", "kv_format", "llama.cpp"),
    Word("threads", "num_thread", "llama.cpp"),
    Word("n_threads", "num_thread", "llama.cpp"),
    Word("parallel", "num_parallel", "llama.cpp"),
    Word("n_parallel", "num_parallel", "llama.cpp"),
    Word("max_num_seqs", "num_parallel", "vLLM"),
    Word("n_batch", "num_batch", "llama.cpp"),
    Word("batch_size", "num_batch", "llama.cpp"),
    Word("prefill_step_size", "num_batch", "mlx-lm"),
    Word("num_draft_tokens", "draft_num_predict", "mlx-lm"),
    Word("draft_max", "draft_num_predict", "llama.cpp"),
    Word("n_draft", "draft_num_predict", "llama.cpp"),
    Word("n_gpu_layers", "", "llama.cpp", "MLX keeps all layers on one device, so there is none to offload"),
    Word("gpu_layers", "", "llama.cpp", "MLX keeps all layers on one device, so there is none to offload"),
    Word("keep_alive", "", "Ollama", "`modelkit serve --keep-alive` says how long a model stays loaded"),
    Word("logit_bias", "", "OpenAI", "Python and the server take it: chat(messages, logit_bias={id: bias})"),
    Word("samplers", "", "llama.cpp", "the order of samplers is fixed; one that is not wanted is turned off"),
    Word(
        "min_keep", "", "llama.cpp", "samplers keep the likeliest token, and no more than they are meant to"
    ),
    Word("bad_words", "", "vLLM", "Python and the server take logit_bias, which lowers single tokens"),
    Word(
        "allowed_token_ids", "", "vLLM", "an answer's form says what it may be: `run --regex` or `--grammar`"
    ),
    Word("num_beams", "", "transformers", "beams are not offered"),
    Word("do_sample", "", "transformers", "temperature 0 always takes the likeliest token"),
)

# Names of the same width or type elsewhere. Bytes are not the same: see docs/words.md.
FORMATS: tuple[Word, ...] = tuple(
    Word(theirs, ours, whose)
    for ours, whose, names in (
        ("f16", "various", "fp16 float16 half"),
        ("bf16", "various", "bfloat16"),
        ("f32", "various", "fp32 float32 full"),
        ("q2", "llama.cpp", "q2_k"),
        ("q3", "llama.cpp", "q3_k q3_k_s q3_k_m q3_k_l iq3_xxs"),
        ("q4", "llama.cpp", "q4_0 q4_1 q4_k q4_k_s q4_k_m iq4_nl iq4_xs"),
        ("q5", "llama.cpp", "q5_0 q5_1 q5_k q5_k_s q5_k_m"),
        ("q6", "llama.cpp", "q6_k"),
        ("q8", "llama.cpp", "q8_0"),
        ("q2", "mlx-lm", "2bit 2-bit"),
        ("q3", "mlx-lm", "3bit 3-bit"),
        ("q4", "mlx-lm, various", "4bit 4-bit nf4 w4a16 awq gptq"),
        ("q5", "mlx-lm", "5bit 5-bit"),
        ("q6", "mlx-lm", "6bit 6-bit"),
        ("q8", "mlx-lm, various", "8bit 8-bit w8a16"),
        ("mxfp4", "various", "fp4"),
        ("mxfp8", "various", "fp8"),
    )
    for theirs in names.split()
)


def find(words: tuple[Word, ...], text: str, command: str = "") -> Word | None:
    """The row of that word. Case does not matter, and `-` inside a word is `_`, as in options. command: whose
    option it would be.
    """
    wanted = _plain(text)
    return next((word for word in words if _plain(word.theirs) == wanted and word.of in ("", command)), None)


def _plain(text: str) -> str:
    dashes = len(text) - len(text.lstrip("-"))
    return text[:dashes] + text[dashes:].strip().lower().replace("-", "_")
