"""Files that Ollama's own converter has made, in llama.cpp's words: keys and tensors by other names, and keys
that it leaves out, tokens without a row.

Source: Ollama's `convert`, and `llama/compat`, which does the same before llama.cpp reads such a file.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from modelkit.source.gguf.file import GgufFile
from modelkit.source.gguf.header import GgufTensor
from modelkit.source.gguf.values import Value

_TOWERS = ("v.", "mm.")
_BAND = {f"rope.scaling.beta_{end}": f"rope.scaling.yarn_beta_{end}" for end in ("fast", "slow")}
_DENSE = ("dense.0.weight", "dense.1.weight")
_LATENT = (
    "attention.key_length",
    "attention.value_length",
    "attention.kv_lora_rank",
    "rope.dimension_count",
)
_TOKENS = tuple(f"tokenizer.ggml.{name}" for name in ("tokens", "scores", "token_type"))


def in_llama_cpps_words(file: GgufFile) -> GgufFile:
    """The same model; a file of another converter as it is."""
    name = file.metadata.get("general.architecture")
    change = _CHANGES.get(name) if isinstance(name, str) else None
    return file if change is None else change(file, f"{name}.")


def _gemma3(file: GgufFile, prefix: str) -> GgufFile:
    """Text models have other keys, and those with a tower lack what all have in common; older ones bound
    logits by 30, or turn by places that are not divided by 8, which Ollama mends, too.
    """
    if _DENSE[0] in file.tensors:
        return _embedding(file, prefix)
    metadata = file.metadata
    nested = {"rope.global.freq_base": "rope.freq_base", "rope.local.freq_base": "rope.freq_base_swa"}
    eps = "attention.layer_norm_rms_epsilon"
    towers = any(tensor.startswith(_TOWERS) for tensor in file.tensors)
    if not towers and prefix + eps in metadata and not any(prefix + key in metadata for key in nested):
        return file
    absent: dict[str, Value] = {eps: 1e-6, "rope.freq_base": 1e6, "rope.freq_base_swa": 1e4}
    context = metadata.get(f"{prefix}context_length")
    if type(context) is int and context >= 1 << 17 and f"{prefix}rope.scaling.type" not in metadata:
        absent |= {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}
    bound = {"final_logit_softcapping"} if metadata.get(f"{prefix}block_count") == 26 else set[str]()
    more = {"rope.scaling.extrapolation_factor": "rope.scaling.yarn_ext_factor"}
    return _with_rows(_translated(file, prefix, {**nested, **_BAND, **more}, bound, absent))


def _embedding(file: GgufFile, prefix: str) -> GgufFile:
    """EmbeddingGemma, with its Dense modules."""
    names: dict[str, str] = dict(zip(_DENSE, ("dense_2.weight", "dense_3.weight"), strict=True))
    said = _translated(
        file,
        prefix,
        {},
        {"attention.causal", "attention.sliding_window_pattern"},
        {
            "rope.freq_base_swa": 1e4,
            **{
                f"{names[own].removesuffix('.weight')}_feat_{side}": file.tensors[own].shape[place]
                for own in _DENSE
                for side, place in (("out", 0), ("in", -1))
                if own in file.tensors
            },
        },
    )
    names["norm.weight"] = "output_norm.weight"
    return _named(_as(said, prefix, "gemma-embedding"), lambda name: names.get(name, name))


def _gpt_oss(file: GgufFile, prefix: str) -> GgufFile:
    """Its first files have rows of gates and ups in turn, which nothing in them says."""
    if any(".ffn_gate_up_exps." in name for name in file.tensors):
        return file
    file = _as(file, prefix, "gpt-oss")
    pre: dict[str, Value] = {"tokenizer.ggml.pre": "gpt-4o"}
    file = replace(file, metadata=file.metadata.having(pre))
    said = _translated(file, "gpt-oss.", {}, set(), {"rope.scaling.type": "yarn"})
    names = {".attn_out.": ".attn_output.", ".ffn_norm.": ".post_attention_norm."}

    def named(name: str) -> str:
        for own, theirs in names.items():
            name = name.replace(own, theirs)
        return f"{name}.weight" if name.endswith(".attn_sinks") else name

    return _named(said, named)


def _glm4_lite(file: GgufFile, prefix: str) -> GgufFile:
    """GLM-4.7-Flash is a DeepSeek 2 to llama.cpp: one head of keys, as wide as what all are made of."""
    metadata = file.metadata
    told = [metadata.get(prefix + key) for key in _LATENT]
    whole = [one for one in told if type(one) is int]
    if len(whole) != len(told):
        return file
    keys, values, rank, turned = whole
    sizes: dict[str, Value] = {
        "attention.head_count_kv": 1,
        "attention.key_length": rank + turned,
        "attention.value_length": rank,
        "attention.key_length_mla": keys,
        "attention.value_length_mla": values,
    }
    known = metadata.having({prefix + key: value for key, value in sizes.items()})
    known = known.having({"tokenizer.ggml.pre": "glm4"})
    groups: dict[str, Value] = {"expert_group_count": 1, "expert_group_used_count": 1}
    said = _translated(replace(file, metadata=known), prefix, {}, set(), groups)
    return _as(said, prefix, "deepseek2")


def _mistral3(file: GgufFile, prefix: str) -> GgufFile:
    keys = {
        **_BAND,
        "rope.scaling.mscale_all_dim": "rope.scaling.yarn_log_multiplier",
        "rope.scaling_beta": "attention.temperature_scale",
    }
    return _translated(file, prefix, keys, {"image_token_index", "spatial_merge_size"})


def _nemotron(file: GgufFile, prefix: str) -> GgufFile:
    """The pair of matrices around experts that work in fewer numbers."""
    names = {".ffn_latent_in.": ".ffn_latent_down.", ".ffn_latent_out.": ".ffn_latent_up."}
    first = next((one for name, one in file.tensors.items() if ".ffn_latent_in." in name), None)
    if first is None:
        return file
    file = _translated(file, prefix, {}, set(), {"moe_latent_size": first.shape[0]})
    for own, theirs in names.items():
        file = _named(file, lambda name, own=own, theirs=theirs: name.replace(own, theirs))
    return file


def _qwen25_vl(file: GgufFile, prefix: str) -> GgufFile:
    sections = {"rope.mrope_section": "rope.dimension_sections"}
    return _as(_translated(file, prefix, sections, set()), prefix, "qwen2vl")


def _qwen(file: GgufFile, prefix: str) -> GgufFile:
    """Biases of step sizes lack the ending; heads of keys are listed, 0 for layers that have none."""
    metadata = file.metadata
    passed = {
        *("mrope_sections", "rope.mrope_section", "rope.mrope_interleaved"),
        *("image_token_id", "vision_start_token_id", "vision_end_token_id"),
        *(key for key in ("ssm.v_head_reordered", "norm_top_k_prob") if metadata.get(prefix + key) is True),
    }
    changed: dict[str, Value] = {}
    heads = metadata.get(f"{prefix}attention.head_count_kv")
    if isinstance(heads, tuple) and heads and all(type(one) is int for one in heads):
        some = {one for one in heads if one}
        changed |= {f"{prefix}attention.head_count_kv": some.pop()} if len(some) == 1 else {}
    file = replace(file, metadata=metadata.having(changed))
    said = _translated(file, prefix, {}, passed)
    return _named(said, lambda name: f"{name}.bias" if name.endswith(".ssm_dt") else name)


def _lfm2(file: GgufFile, prefix: str) -> GgufFile:
    """Older files tell another width of MLPs than they have."""
    own, theirs = "output_norm.weight", "token_embd_norm.weight"
    if own not in file.tensors or theirs in file.tensors:
        return file
    gate = file.tensors.get("blk.0.ffn_gate.weight")
    if gate is not None:
        file = replace(file, metadata=file.metadata.having({f"{prefix}feed_forward_length": gate.shape[0]}))
    return _named(file, lambda name: theirs if name == own else name)


_CHANGES: Mapping[str, Callable[[GgufFile, str], GgufFile]] = {
    "gemma3": _gemma3,
    "glm4moelite": _glm4_lite,
    "gptoss": _gpt_oss,
    "lfm2": _lfm2,
    "mistral3": _mistral3,
    "nemotron_h_moe": _nemotron,
    "qwen35": _qwen,
    "qwen35moe": _qwen,
    "qwen25vl": _qwen25_vl,
    "qwen3next": _qwen,
    "qwen3vl": _qwen,
    "qwen3vlmoe": _qwen,
}


def _translated(
    file: GgufFile,
    prefix: str,
    keys: Mapping[str, str],
    passed: set[str],
    absent: Mapping[str, Value] | None = None,
) -> GgufFile:
    """keys: Ollama's and llama.cpp's. passed: those that say nothing. absent: what files leave out."""
    names = {prefix + own: prefix + theirs for own, theirs in keys.items()}
    gone = {prefix + key for key in passed}
    metadata = file.metadata.renamed(lambda key: None if key in gone else names.get(key, key))
    told = {prefix + key: value for key, value in (absent or {}).items() if prefix + key not in metadata}
    return replace(file, metadata=metadata.having(told))


def _as(file: GgufFile, prefix: str, name: str) -> GgufFile:
    """As a file of llama.cpp's architecture of that name."""

    def key(own: str) -> str:
        return f"{name}.{own.removeprefix(prefix)}" if own.startswith(prefix) else own

    return replace(file, metadata=file.metadata.renamed(key).having({"general.architecture": name}))


def _named(file: GgufFile, name: Callable[[str], str]) -> GgufFile:
    def renamed() -> Iterator[GgufTensor]:
        for own, tensor in file.tensors.items():
            theirs = name(own)
            yield tensor if theirs in file.tensors else replace(tensor, name=theirs)

    return replace(file, tensors={tensor.name: tensor for tensor in renamed()})


def _with_rows(file: GgufFile) -> GgufFile:
    """Without the tokens behind the embedding's last row, which are for images."""
    table = file.tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2:
        return file
    cut: dict[str, Value] = {}
    for key in _TOKENS:
        values = file.metadata.get(key)
        if isinstance(values, tuple) and len(values) > table.shape[0]:
            cut[key] = values[: table.shape[0]]
    return replace(file, metadata=file.metadata.having(cut))
