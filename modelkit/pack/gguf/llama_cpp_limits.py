"""What llama.cpp is known to compute otherwise, or not to load, of a file that says all that GGUF can say.

Every row was found by exporting tiny models of each family and comparing llama.cpp's logits with those of
transformers (`python -m tests.support.llama_cpp_check`; llama.cpp of autumn 2026). An import of the file
computes the model as it is. Windows that GGUF cannot say at all are told by the table of architectures.
"""

from collections.abc import Collection, Iterator, Mapping
from math import isclose
from typing import Any

from modelkit.pack.gguf import llama_cpp_conditions as when
from modelkit.pack.gguf.llama_cpp_conditions import Config, When
from modelkit.source.gguf.architectures.rope import FREQS
from runtime.nn.positions.rope_spec import yarn_scale
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Limit:
    """Something that llama.cpp does otherwise."""

    families: tuple[str, ...]
    """Model types, of the text model."""
    when: When
    """Asked of the text model's config and of the names of the file's tensors."""
    says: str
    """What llama.cpp does, after its name."""


_MLP = ("ffn_gate", "ffn_up", "ffn_down")

ROWS = (
    Limit(
        ("exaone4",),
        when.windows_unless_64_layers,
        "has windows for 64 layers only: here it sees further back, and rotates layers without a window, too",
    ),
    Limit(
        ("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next", "qwen4_exp_text"),
        when.uneven_heads,
        "does not load it where heads of keys and of values differ in size in the delta nets",
    ),
    Limit(
        ("deepseek_v4", "glm5_next_text"),
        lambda config, _: config.get("hc_mult", 4) != 4,
        "does not load it with other than four streams",
    ),
    Limit(
        ("deepseek_v4",),
        lambda config, _: config.get("index_head_dim", 128) % 64 != 0,
        "turns keys of its indexers 64 numbers at a time, and ends where theirs are not multiples of it",
    ),
    Limit(
        ("qwen4_exp_text",),
        lambda config, _: config.get("indexer_compress_ratio", 1) > 1,
        "looks at a part of one more block, too, but where a block lacks its last token alone",
    ),
    Limit(
        ("qwen4_exp_text",),
        lambda config, _: config.get("ple_embed_dim") not in (None, config["hidden_size"]),
        "does not load it where ple_embed_dim is not hidden_size",
    ),
    Limit(("phi3",), when.has_windows, "leaves the window out, and sees further back"),
    Limit(("bamba",), when.partly_rotated, "rotates other numbers of a head where only a part is rotated"),
    Limit(("deepseek_v2",), when.by_group, "chooses groups of experts by their two best, not by the best"),
    Limit(
        (
            *(
                "apertus",
                "baichuan",
                "deepseek_v4",
                "dots1",
                "gpt_neox",
                "mellum",
                "minimax_m2",
                "minimax_m3_vl_text",
            ),
            *("codeshell", "nemotron", "orion", "plamo", "rwkv6", "rwkv7", "stablelm", "xverse"),
        ),
        when.no_head,
        "does not load it without an output head of its own",
    ),
    Limit(
        ("grove_moe",),
        lambda _config, _names: True,
        "gives small experts what the large ones have answered, not what those were given",
    ),
    Limit(
        ("minimax_m3_vl_text",),
        lambda _config, _names: True,
        "attends to all blocks, not to those that indexers choose, where its flash attention is off",
    ),
    Limit(
        (
            *("arcee", "cohere", "hunyuan_v1_dense", "hunyuan_v1_moe", "hy_v3", "lfm2", "nanbeige", "olmo"),
            "seed_oss",
        ),
        when.biased("attn_output", "shortconv.conv", "shortconv.in_proj", "shortconv.out_proj", *_MLP),
        "does not load it with biases other than those of queries, keys and values",
    ),
    Limit(
        ("t5", "umt5"),
        when.scaled,
        "leaves out a factor before the head, which the likeliest tokens do not show and temperatures do",
    ),
    Limit(("t5", "mt5", "umt5"), when.deep_decoder, "loads no decoder that is deeper than its encoder"),
    Limit(
        ("mimo_v2_flash",),
        when.biased("attn_q", "attn_k", "attn_v"),
        "adds no biases to queries, keys and values",
    ),
    Limit(("nemotron_h",), when.dense_and_mixed, "loads no plain MLPs beside mixtures of experts"),
    Limit(("kimi_linear",), when.ranked, "knows whole projections of queries only"),
    Limit(
        ("kimi_linear",), when.biased("attn_q_a", "attn_kv_a_mqa", "attn_output"), "does not load its biases"
    ),
    Limit(
        ("ernie4_5_moe",),
        when.dense_behind,
        "loads no plain MLP behind the first mixture (moe_layer_interval, moe_layer_end_index)",
    ),
    Limit(("nomic_bert",), when.narrow_heads, "loads heads only that share the hidden state among them"),
    Limit(("modernbert", "gemma3_text"), when.only_windows, "fails where every layer has a window"),
    Limit(("ernie4_5",), when.biased(*_MLP), "does not load it with biases in its MLPs"),
    Limit(("cohere",), when.normed_heads, "has norms of queries and keys from 64 layers on only"),
    Limit(
        ("deepseek_v2", "deepseek_v3", "glm4_moe_lite", "youtu", "youtu_llm"),
        when.whole_queries,
        "does not load it without q_lora_rank unless it has 26 or 27 layers",
    ),
    Limit(
        ("deepseek_v2", "deepseek_v3", "youtu", "youtu_llm"),
        when.biased("attn_q_a", "attn_kv_a_mqa", "attn_output"),
        "does not load its biases",
    ),
    Limit(
        ("deepseek_v32", "glm_moe_dsa"),
        when.narrow_index,
        "fails where index_head_dim is not a multiple of 64",
    ),
    Limit(("dots1",), when.fewer_keys, "loads as many heads of keys as of queries only"),
    Limit(("gemma", "olmo2", "olmo3"), when.biased("attn_q"), "does not load it with biases"),
    Limit(
        ("gemma4_text",),
        when.shared_otherwise,
        "fails where the last layers with keys of their own are not one with a window and one without",
    ),
    Limit(
        ("gemma3n_text",),
        when.altered_streams,
        "takes the streams, sparse layers and shared keys of E2B and E4B for granted",
    ),
    Limit(
        ("gemma3n_text",),
        when.without_unused,
        "loads it only with keys and values of the layers that have no use for them, as the published files",
    ),
    Limit(("jamba",), when.biased("ssm_in", "ssm_out"), "does not load it with biases in its projections"),
    Limit(("mamba2",), when.biased("ssm_in", "ssm_out"), "does not load it with biases in its projections"),
    Limit(("mamba2",), when.missing("ssm_conv1d.bias"), "does not load it without biases in its filters"),
    Limit(
        ("nemotron", "xverse"), when.narrow_heads, "loads heads only that share the hidden state among them"
    ),
    Limit(("phi",), when.other_width, "loads MLPs only that are four times as wide as the hidden state"),
    Limit(
        ("rwkv7",), when.other_heads, "computes heads of 64 numbers, and norms them by norm_eps of 0.00001"
    ),
    Limit(("plamo3",), when.stretched, "begins and ends YaRN's band at whole pairs of a head"),
    Limit(("jais2", "starcoder2"), when.missing("attn_output.bias"), "does not load it without biases"),
)

_READS_BANDS = ("mistral3",)
_READS_FACTORS = (
    "apertus", "deci", "exaone", "exaone-moe", "exaone4", "gemma4", "gemma4-assistant", "granite",
    "granitehybrid", "granitemoe", "llama", "llama4", "mistral3", "nanbeige", "step35",
)  # fmt: skip
_YARN = "rope.scaling.yarn_"
_BAND = {"beta_fast": 32.0, "beta_slow": 1.0}


def limits(config: Config, names: Collection[str], metadata: Mapping[str, Any]) -> Iterator[str]:
    """Sentences for the user. config: the text model's. names: of the file's tensors."""
    found = [row.says for row in ROWS if config.get("model_type") in row.families and row.when(config, names)]
    for says in (*found, *_factors(names, metadata), *_unread(metadata)):
        yield f"llama.cpp does not compute this {config['model_type']} as it is: it {says}"


def _factors(names: Collection[str], metadata: Mapping[str, Any]) -> Iterator[str]:
    """Of Llama 3's rotation, which llama.cpp knows of some architectures only."""
    architecture = metadata["general.architecture"]
    if FREQS in names and architecture not in _READS_FACTORS:
        passes = architecture == "falcon-h1"
        yield f"{'passes over' if passes else 'does not load it with'} the factors of Llama 3's rotation"


def _unread(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Keys of YaRN that its converter writes and its program passes over."""
    architecture = metadata["general.architecture"]
    told = {key: metadata.get(f"{architecture}.{_YARN}{key}") for key in ("attn_factor", *_BAND)}
    factor = float(metadata.get(f"{architecture}.rope.scaling.factor", 1.0))
    usual = {"attn_factor": yarn_scale(factor), **_BAND}
    read = (*_BAND,) if architecture in _READS_BANDS else ()
    if architecture == "deepseek2" and not metadata.get(
        f"{architecture}.{_YARN}log_multiplier", factor == 1.0
    ):
        yield "scales attention by YaRN's factor twice where mscale_all_dim is not told"
    for key, value in told.items():
        if value is not None and key not in read and not isclose(value, usual[key], rel_tol=1e-6):
            yield f"takes YaRN's {key.replace('attn', 'attention')} as {usual[key]:.4g}, not {value:.4g}"
