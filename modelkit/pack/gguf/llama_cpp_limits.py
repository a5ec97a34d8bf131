"""What llama.cpp is known to compute otherwise, or not to load, of a file that says all that GGUF can say.

Every row was found by exporting tiny models of each family and comparing llama.cpp's logits with those of
transformers (`python -m tests.support.llama_cpp_check`; llama.cpp of autumn 2026). An import of the file
computes the model as it is. Windows that GGUF cannot say at all are told by the table of architectures.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from math import isclose
from typing import Any

from modelkit.source.gguf.architectures.rope import FREQS
from runtime.nn.positions.rope_spec import yarn_scale
from runtime.records import dataclass

Config = Mapping[str, Any]
When = Callable[[Config, Collection[str]], bool]


@dataclass(frozen=True, slots=True)
class Limit:
    """Something that llama.cpp does otherwise."""

    families: tuple[str, ...]
    """Model types, of the text model."""
    when: When
    """Asked of the text model's config and of the names of the file's tensors."""
    says: str
    """What llama.cpp does, after its name."""


def _has_windows(config: Config, _: Collection[str]) -> bool:
    kinds = config.get("layer_types")
    return config.get("sliding_window") is not None and (not kinds or "sliding_attention" in kinds)


def _exaone_windows(config: Config, names: Collection[str]) -> bool:
    return config.get("num_hidden_layers") != 64 and _has_windows(config, names)


def _normed_heads(config: Config, names: Collection[str]) -> bool:
    return config.get("num_hidden_layers", 40) < 64 and any("attn_q_norm" in name for name in names)


def _whole_queries(config: Config, names: Collection[str]) -> bool:
    whole = any(name.endswith(".attn_q.weight") for name in names)
    layers = config.get("num_hidden_layers")
    known = layers in (26, 27) or (layers == 48 and config.get("vocab_size") == 128256)
    return whole and not known


def _narrow_index(config: Config, _: Collection[str]) -> bool:
    return bool(config.get("index_head_dim", 128) % 64)


def _shared_otherwise(config: Config, _: Collection[str]) -> bool:
    """Are the last layers with keys of their own not one with a window and one without?"""
    kinds = list(config.get("layer_types") or ())
    shared = config.get("num_kv_shared_layers") or 0
    return bool(shared) and kinds[-shared - 2 : -shared] != ["sliding_attention", "full_attention"]


def _altered_streams(config: Config, _: Collection[str]) -> bool:
    """Is a Gemma 3n other than E2B and E4B in what a file does not say?"""
    usual = {
        "altup_num_inputs": 4,
        "altup_active_idx": 0,
        "hidden_size_per_layer_input": 256,
        "laurel_rank": 64,
    }
    layers, shared = config.get("num_hidden_layers", 35), config.get("num_kv_shared_layers", 15)
    sparse, usually_sparse = config.get("activation_sparsity_pattern"), [0.95] * 10 + [0.0] * (layers - 10)
    return (
        any(config.get(field, value) != value for field, value in usual.items())
        or layers - shared != min(layers, 20)
        or layers <= 10
        or (sparse is not None and sparse != usually_sparse)
    )


def _without_unused(config: Config, names: Collection[str]) -> bool:
    """Have the layers that read others' keys none of their own in the file?"""
    shared = config.get("num_kv_shared_layers", 15)
    return bool(shared) and len(_blocks(names, ".attn_k.weight")) < config.get("num_hidden_layers", 35)


def _missing(ending: str) -> When:
    """Does no block have a tensor of this name?"""
    return lambda _, names: not any(name.endswith(ending) for name in names)


def _fewer_keys(config: Config, _: Collection[str]) -> bool:
    heads = config.get("num_attention_heads")
    return config.get("num_key_value_heads", heads) != heads


def _other_width(config: Config, _: Collection[str]) -> bool:
    return config.get("intermediate_size") != 4 * config.get("hidden_size", 0)


def _partly_rotated(config: Config, _: Collection[str]) -> bool:
    block = config.get("rope_parameters") or {}
    share = block.get("partial_rotary_factor", config.get("partial_rotary_factor"))
    size = config.get("attn_rotary_emb")
    return share not in (None, 1, 1.0) or (size is not None and size != config.get("head_dim"))


def _by_group(config: Config, _: Collection[str]) -> bool:
    return config.get("topk_method") == "group_limited_greedy" and (config.get("n_group") or 1) > 1


def _scaled(config: Config, _: Collection[str]) -> bool:
    """Are hidden states divided by the root of their size before the head?"""
    tied = config.get("tie_word_embeddings", True)
    return bool(config.get("scale_decoder_outputs", tied))


def _deep_decoder(config: Config, _: Collection[str]) -> bool:
    layers = config.get("num_layers") or 0
    return (config.get("num_decoder_layers") or layers) > layers


def _ranked(config: Config, _: Collection[str]) -> bool:
    return config.get("q_lora_rank") is not None


def _dense_and_mixed(_: Config, names: Collection[str]) -> bool:
    ends = (".ffn_gate_inp.weight", ".ffn_up.weight")
    return all(any(name.endswith(end) for name in names) for end in ends)


def _blocks(names: Collection[str], ending: str) -> list[int]:
    """Those that have a tensor of this name."""
    return [int(name.split(".")[1]) for name in names if name.startswith("blk.") and name.endswith(ending)]


def _dense_behind(_: Config, names: Collection[str]) -> bool:
    mixtures = _blocks(names, ".ffn_gate_inp.weight")
    return bool(mixtures) and max(_blocks(names, ".ffn_gate.weight"), default=-1) > min(mixtures)


def _no_head(_: Config, names: Collection[str]) -> bool:
    return "output.weight" not in names


def _biased(*parts: str) -> When:
    """Has a block a bias in one of these parts?"""
    ends = tuple(f".{part}.bias" for part in parts)
    return lambda _, names: any(name.endswith(ends) for name in names)


def _narrow_heads(config: Config, _: Collection[str]) -> bool:
    size = config.get("head_dim")
    return size is not None and size * config.get("num_attention_heads", 12) != config.get("hidden_size", 768)


def _only_windows(config: Config, _: Collection[str]) -> bool:
    """Of encoders: has every layer one?"""
    kinds = config.get("layer_types") or ()
    ahead = config.get("model_type") == "modernbert" or config.get("use_bidirectional_attention")
    return bool(ahead and kinds) and "full_attention" not in kinds


def _uneven_heads(config: Config, _: Collection[str]) -> bool:
    """Of delta nets: do keys and values differ in size?"""
    keys = config.get("linear_key_head_dim", 128)
    return keys != config.get("linear_value_head_dim", 128)


def _other_heads(config: Config, _: Collection[str]) -> bool:
    return config.get("head_dim", 64) != 64 or not isclose(config.get("norm_eps", 1e-5), 1e-5)


def _stretched(config: Config, _: Collection[str]) -> bool:
    return config.get("rope_scaling_factor", 1) != 1


_MLP = ("ffn_gate", "ffn_up", "ffn_down")

ROWS = (
    Limit(
        ("exaone4",),
        _exaone_windows,
        "has windows for 64 layers only: here it sees further back, and rotates layers without a window, too",
    ),
    Limit(
        ("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next", "qwen4_exp_text"),
        _uneven_heads,
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
    Limit(("phi3",), _has_windows, "leaves the window out, and sees further back"),
    Limit(("bamba",), _partly_rotated, "rotates other numbers of a head where only a part is rotated"),
    Limit(("deepseek_v2",), _by_group, "chooses groups of experts by their two best, not by the best"),
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
        _no_head,
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
        _biased("attn_output", "shortconv.conv", "shortconv.in_proj", "shortconv.out_proj", *_MLP),
        "does not load it with biases other than those of queries, keys and values",
    ),
    Limit(
        ("t5", "umt5"),
        _scaled,
        "leaves out a factor before the head, which the likeliest tokens do not show and temperatures do",
    ),
    Limit(("t5", "mt5", "umt5"), _deep_decoder, "loads no decoder that is deeper than its encoder"),
    Limit(
        ("mimo_v2_flash",),
        _biased("attn_q", "attn_k", "attn_v"),
        "adds no biases to queries, keys and values",
    ),
    Limit(("nemotron_h",), _dense_and_mixed, "loads no plain MLPs beside mixtures of experts"),
    Limit(("kimi_linear",), _ranked, "knows whole projections of queries only"),
    Limit(("kimi_linear",), _biased("attn_q_a", "attn_kv_a_mqa", "attn_output"), "does not load its biases"),
    Limit(
        ("ernie4_5_moe",),
        _dense_behind,
        "loads no plain MLP behind the first mixture (moe_layer_interval, moe_layer_end_index)",
    ),
    Limit(("nomic_bert",), _narrow_heads, "loads heads only that share the hidden state among them"),
    Limit(("modernbert", "gemma3_text"), _only_windows, "fails where every layer has a window"),
    Limit(("ernie4_5",), _biased(*_MLP), "does not load it with biases in its MLPs"),
    Limit(("cohere",), _normed_heads, "has norms of queries and keys from 64 layers on only"),
    Limit(
        ("deepseek_v2", "deepseek_v3", "glm4_moe_lite", "youtu", "youtu_llm"),
        _whole_queries,
        "does not load it without q_lora_rank unless it has 26 or 27 layers",
    ),
    Limit(
        ("deepseek_v2", "deepseek_v3", "youtu", "youtu_llm"),
        _biased("attn_q_a", "attn_kv_a_mqa", "attn_output"),
        "does not load its biases",
    ),
    Limit(
        ("deepseek_v32", "glm_moe_dsa"), _narrow_index, "fails where index_head_dim is not a multiple of 64"
    ),
    Limit(("dots1",), _fewer_keys, "loads as many heads of keys as of queries only"),
    Limit(("gemma", "olmo2", "olmo3"), _biased("attn_q"), "does not load it with biases"),
    Limit(
        ("gemma4_text",),
        _shared_otherwise,
        "fails where the last layers with keys of their own are not one with a window and one without",
    ),
    Limit(
        ("gemma3n_text",),
        _altered_streams,
        "takes the streams, sparse layers and shared keys of E2B and E4B for granted",
    ),
    Limit(
        ("gemma3n_text",),
        _without_unused,
        "loads it only with keys and values of the layers that have no use for them, as the published files",
    ),
    Limit(("jamba",), _biased("ssm_in", "ssm_out"), "does not load it with biases in its projections"),
    Limit(("mamba2",), _biased("ssm_in", "ssm_out"), "does not load it with biases in its projections"),
    Limit(("mamba2",), _missing("ssm_conv1d.bias"), "does not load it without biases in its filters"),
    Limit(("nemotron", "xverse"), _narrow_heads, "loads heads only that share the hidden state among them"),
    Limit(("phi",), _other_width, "loads MLPs only that are four times as wide as the hidden state"),
    Limit(("rwkv7",), _other_heads, "computes heads of 64 numbers, and norms them by norm_eps of 0.00001"),
    Limit(("plamo3",), _stretched, "begins and ends YaRN's band at whole pairs of a head"),
    Limit(("jais2", "starcoder2"), _missing("attn_output.bias"), "does not load it without biases"),
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
