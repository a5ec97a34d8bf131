"""What fields of a config were called before transformers 5, as data: for each family the older names that
tools still ask for, and where their values stand in the new spelling.

Rows hold for a block with that `model_type`. A value is a path into the block, or is made of it; None adds
nothing. transformers 5 reads every older name here as the same as the new one, or not at all, so both may
stand together.
"""

from collections.abc import Callable, Mapping
from typing import Any

from runtime.records import dataclass

Block = Mapping[str, Any]
Make = Callable[[Block], Any]


@dataclass(frozen=True, slots=True)
class Row:
    """A field that older programs know under another name."""

    families: tuple[str, ...]
    """Model types."""
    name: str
    """The older field."""
    value: Make
    """What it holds; None for nothing to add."""
    null: bool = False
    """Must it be there, if only as null?"""


def at(*path: str) -> Make:
    """What stands there in the block."""

    def find(block: Block) -> Any:
        found: Any = block
        for name in path:
            found = found.get(name) if isinstance(found, Mapping) else None
        return found

    return find


def always(value: Any) -> Make:
    """What every model of the family has, and the new spelling has no word for."""
    return lambda _block: value


def head_size(block: Block) -> int | None:
    hidden, heads = block.get("hidden_size"), block.get("num_attention_heads")
    return hidden // heads if type(hidden) is int and type(heads) is int and heads > 0 else None


def period(block: Block) -> int | None:
    """Every how many layers one sees everything, where `layer_types` is as regular as that."""
    kinds = block.get("layer_types")
    if not isinstance(kinds, list) or "full_attention" not in kinds:
        return None
    every = kinds.index("full_attention") + 1
    regular = all((kind == "full_attention") == ((i + 1) % every == 0) for i, kind in enumerate(kinds))
    return every if regular else None


def letters(block: Block) -> str | None:
    every = period(block)
    return None if every is None or every == 1 else "L" * (every - 1) + "G"


def of_full_layers(field: str) -> Make:
    """What Gemma 4's `per_layer_config` says of all full layers alike."""

    def find(block: Block) -> Any:
        kinds, own = block.get("layer_types"), block.get("per_layer_config")
        if not isinstance(kinds, list) or not isinstance(own, Mapping):
            return None
        places = [own.get(str(i)) for i, kind in enumerate(kinds) if kind == "full_attention"]
        said = [place.get(field) if isinstance(place, Mapping) else None for place in places]
        return said[0] if said and all(one == said[0] for one in said) else None

    return find


def times(factor: int, field: str) -> Make:
    return lambda block: factor * block[field] if type(block.get(field)) is int else None


def less_one(field: str) -> Make:
    return lambda block: block[field] - 1 if type(block.get(field)) is int else None


def old_words(field: str, words: Mapping[str, str]) -> Make:
    """A list with some of its words replaced."""

    def respell(block: Block) -> list[Any] | None:
        listed = block.get(field)
        return [words.get(str(one), one) for one in listed] if isinstance(listed, list) else None

    return respell


def ones(field: str, word: str) -> Make:
    """1 for each layer of that kind, 0 for the others."""

    def number(block: Block) -> list[int] | None:
        kinds = block.get(field)
        return [int(kind == word) for kind in kinds] if isinstance(kinds, list) else None

    return number


def flags(field: str, word: str) -> Make:
    def truth(block: Block) -> list[bool] | None:
        kinds = block.get(field)
        return [kind == word for kind in kinds] if isinstance(kinds, list) else None

    return truth


def leading(field: str, word: str) -> Make:
    """How many layers of that kind there are, where they are the first ones."""

    def count(block: Block) -> int | None:
        kinds = block.get(field)
        if not isinstance(kinds, list):
            return None
        first = sum(kind == word for kind in kinds)
        return first if all(kind == word for kind in kinds[:first]) else None

    return count


def rotated_size(block: Block) -> int | None:
    """The rotated part of a head, in numbers."""
    size, share = block.get("head_dim"), at("rope_parameters", "partial_rotary_factor")(block)
    if type(size) is not int:
        return None
    return int(size * share) if isinstance(share, float) else size


def linear_layers(block: Block) -> dict[str, Any] | None:
    """Kimi's block for its linear layers, which counts layers from one."""
    kinds = block.get("layer_types")
    if not isinstance(kinds, list):
        return None
    return {
        "kda_layers": [i + 1 for i, kind in enumerate(kinds) if kind == "linear_attention"],
        "full_attn_layers": [i + 1 for i, kind in enumerate(kinds) if kind == "full_attention"],
        "head_dim": block.get("linear_head_dim"),
        "num_heads": block.get("linear_num_heads"),
        "short_conv_kernel_size": block.get("linear_conv_kernel_dim"),
    }


_GEMMA4 = ("gemma4_text", "gemma4_unified_text")
_MIMO = ("mimo_v2_flash",)
_LFM2 = ("lfm2", "lfm2_moe")

ROWS: tuple[Row, ...] = (
    Row(("mellum", "qwen3_moe", "qwen3_vl_moe_text"), "num_experts", at("num_local_experts")),
    Row(("exaone",), "num_layers", at("num_hidden_layers")),
    Row(("exaone",), "layer_norm_epsilon", at("rms_norm_eps")),
    Row(("qwen3_vl_moe_text",), "norm_topk_prob", always(True)),
    Row(("qwen3_next",), "full_attention_interval", period),
    Row(("exaone4", "exaone_moe", "falcon_h1", "glm4_moe"), "head_dim", head_size),
    Row(("exaone_moe",), "is_moe_layer", flags("mlp_layer_types", "sparse")),
    Row(("cohere2", "gemma3_text"), "sliding_window_pattern", period),
    Row(("gemma3_text", "gemma3n_text"), "rope_theta", at("rope_parameters", "full_attention", "rope_theta")),
    Row(
        ("gemma3_text", "gemma3n_text"),
        "rope_local_base_freq",
        at("rope_parameters", "sliding_attention", "rope_theta"),
    ),
    Row(("olmo3",), "rope_theta", at("rope_parameters", "full_attention", "rope_theta")),
    Row(("gpt2",), "n_ctx", at("n_positions")),
    Row(("gpt_neox",), "rotary_emb_base", at("rope_parameters", "rope_theta")),
    Row(("gpt_neox",), "rotary_pct", at("rope_parameters", "partial_rotary_factor")),
    Row(("apertus",), "mlp_bias", always(False)),
    Row(("apertus",), "post_norm", always(False)),
    Row(("apertus",), "qk_norm", always(True)),
    Row(_LFM2, "block_dim", at("hidden_size")),
    Row(("minimax_m2",), "shared_intermediate_size", always(0)),
    Row(("minimax_m2",), "rotary_dim", rotated_size),
    Row(("solar_open",), "first_k_dense_replace", always(0)),
    Row(("solar_open",), "partial_rotary_factor", always(1.0)),
    Row(("kimi_linear",), "linear_attn_config", linear_layers),
    Row(("kimi_linear",), "rope_theta", always(10000.0)),
    Row(("kimi_linear",), "mla_use_nope", always(True)),
    Row(("kimi_linear",), "model_max_length", at("max_position_embeddings")),
    Row(("kimi_linear",), "num_experts", at("num_local_experts")),
    Row(("kimi_linear",), "num_experts_per_token", at("num_experts_per_tok")),
    Row(("kimi_linear",), "num_shared_experts", at("n_shared_experts")),
    Row(("kimi_linear",), "num_expert_group", at("n_group")),
    Row(("kimi_linear",), "moe_renormalize", at("norm_topk_prob")),
    Row(("kimi_linear",), "first_k_dense_replace", leading("mlp_layer_types", "dense")),
    Row(_GEMMA4, "global_head_dim", of_full_layers("head_dim")),
    Row(_GEMMA4, "num_global_key_value_heads", of_full_layers("num_key_value_heads")),
    Row(("gemma4_unified_text",), "hidden_size_per_layer_input", always(0)),
    Row(_MIMO, "hybrid_layer_pattern", ones("layer_types", "sliding_attention")),
    Row(_MIMO, "moe_layer_freq", ones("mlp_layer_types", "sparse")),
    Row(_MIMO, "rope_theta", at("rope_parameters", "full_attention", "rope_theta")),
    Row(_MIMO, "swa_rope_theta", at("rope_parameters", "sliding_attention", "rope_theta")),
    Row(_MIMO, "partial_rotary_factor", at("rope_parameters", "full_attention", "partial_rotary_factor")),
    Row(_MIMO, "sliding_window_size", less_one("sliding_window")),
    Row(_MIMO, "layernorm_epsilon", at("rms_norm_eps")),
    Row(_MIMO, "swa_num_attention_heads", at("num_attention_heads")),
    Row(_MIMO, "swa_num_key_value_heads", times(2, "num_key_value_heads")),
    Row(_MIMO, "swa_head_dim", at("head_dim")),
    Row(_MIMO, "swa_v_head_dim", at("v_head_dim")),
    Row(_MIMO, "add_swa_attention_sink_bias", always(True)),
    Row(_MIMO, "add_full_attention_sink_bias", always(False)),
    Row(_MIMO, "scoring_func", always("sigmoid")),
    Row(_MIMO, "topk_method", always("noaux_tc")),
    Row(_MIMO, "n_shared_experts", at("n_shared_experts"), null=True),
)

# Families whose `rope_parameters` hold a block for each type of layer, of which `rope_scaling` was the full
# layers' own.
BY_LAYER_TYPE = ("gemma3_text", "gemma3n_text", "olmo3")

# Fields that kept their names and say it in other words now: these stand in the place of the new ones, since
# transformers 5 reads both.
RESPELLED: tuple[Row, ...] = (
    Row(
        ("granitemoehybrid",),
        "layer_types",
        old_words("layer_types", {"linear_attention": "mamba", "full_attention": "attention"}),
    ),
    Row(("exaone4",), "sliding_window_pattern", letters),
)

# Fields of a wrapper that are its own word, and that tools look for in its text tower's block.
REPEATED: tuple[tuple[tuple[str, ...], str], ...] = ((("qwen3_vl", "qwen3_vl_moe"), "tie_word_embeddings"),)
