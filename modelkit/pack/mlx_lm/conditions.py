"""Conditions of the rows in `limits`, asked of a block of the config and of tensors' names."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

Block = Mapping[str, Any]
When = Callable[[Block, Collection[str]], bool]


def ever(_block: Block, _names: Collection[str]) -> bool:
    return True


def equals(field: str, value: Any) -> When:
    return lambda block, _names: block.get(field) == value


def is_set(field: str) -> When:
    return lambda block, _names: block.get(field) is not None


def above_one(field: str) -> When:
    return lambda block, _names: type(block.get(field)) is int and block[field] > 1


def named(part: str) -> When:
    return lambda _block, names: any(part in name for name in names)


def ordered(_block: Block, names: Collection[str]) -> bool:
    """Other tensors may be called so; these are beside codes."""
    modules = [name.removesuffix(".order") for name in names if name.endswith(".order")]
    return any(f"{module}.scales" in names for module in modules)


def packed_shared(_block: Block, names: Collection[str]) -> bool:
    """Some of their matrices may be too narrow to be packed."""
    return any(".block_sparse_moe.shared_experts." in name and name.endswith(".scales") for name in names)


def rope_of(block: Block) -> Block:
    rope = block.get("rope_scaling") or block.get("rope_parameters")
    return rope if isinstance(rope, Mapping) else {}


def scaled(block: Block, _names: Collection[str]) -> bool:
    rope = rope_of(block)
    return (rope.get("rope_type") or rope.get("type") or "default") != "default"


def unscaled(block: Block, names: Collection[str]) -> bool:
    return not scaled(block, names)


def turns_a_part(block: Block, _names: Collection[str]) -> bool:
    """Half of each head, where nothing is said."""
    return block.get("partial_rotary_factor", rope_of(block).get("partial_rotary_factor", 0.5)) != 1


def shares_choices(block: Block, names: Collection[str]) -> bool:
    said: Any = block.get("indexer_types") or block.get("index_topk_pattern")
    if said:
        return "shared" in said or "S" in said
    return above_one("index_topk_freq")(block, names)


def slides(block: Block, _names: Collection[str]) -> bool:
    window, length = block.get("sliding_window"), block.get("max_position_embeddings")
    if type(window) is not int or block.get("use_sliding_window") is False:
        return False
    kinds = block.get("layer_types")
    if isinstance(kinds, list) and "sliding_attention" not in kinds:
        return False
    return type(length) is not int or window < length


def unlike_64(block: Block, _names: Collection[str]) -> bool:
    size, eps = block.get("head_dim", 64), block.get("norm_eps", 1e-5)
    return type(size) is not int or not isinstance(eps, float) or abs(size * eps - 64e-5) > 1e-9


def attends_by_window(block: Block, _names: Collection[str]) -> bool:
    window, length = block.get("attention_window_size", 2048), block.get("max_position_embeddings")
    return type(window) is not int or type(length) is not int or window < length


def slides_by_plamo(block: Block, _names: Collection[str]) -> bool:
    window, length = block.get("window_size"), block.get("max_position_embeddings")
    return type(window) is not int or type(length) is not int or window < length


def packed(block: Block, _names: Collection[str]) -> bool:
    return "quantization" in block


def differs(field: str, *values: Any) -> When:
    """Is it there, and none of these?"""
    return lambda block, _names: block.get(field) is not None and block[field] not in values


def irregular(field: str, interval: str | int, kinds: tuple[Any, Any]) -> When:
    """Is a list of layers' kinds another than the second kind at every `interval`, and the first between?"""

    def when(block: Block, _names: Collection[str]) -> bool:
        listed, every = block.get(field), block.get(interval, 4) if isinstance(interval, str) else interval
        if not isinstance(listed, list) or type(every) is not int or every < 1:
            return False
        return listed != [kinds[(place + 1) % every == 0] for place in range(len(listed))]

    return when


def normed_groups(block: Block, names: Collection[str]) -> bool:
    return block.get("mamba_rms_norm") is True and above_one("mamba_n_groups")(block, names)


def other_inner(block: Block, _names: Collection[str]) -> bool:
    return block.get("intermediate_size") != 4 * int(block.get("hidden_size") or 0)


def other_n_inner(block: Block, _names: Collection[str]) -> bool:
    return block.get("n_inner") not in (None, 4 * int(block.get("n_embd") or 0))


def named_other(*known: str) -> When:
    """Is the activation another one?"""
    return lambda block, _names: block.get("activation_function") not in (None, *known)


def other_values(block: Block, _names: Collection[str]) -> bool:
    wide = int(block.get("hidden_size") or 0) // int(block.get("num_attention_heads") or 1)
    return block.get("v_head_dim") not in (None, wide)


def other_heads(block: Block, _names: Collection[str]) -> bool:
    wide, heads = int(block.get("hidden_size") or 0), int(block.get("num_attention_heads") or 1)
    return block.get("head_dim") not in (None, wide // heads)


def dense_granite(block: Block, _names: Collection[str]) -> bool:
    inner = block.get("shared_intermediate_size")
    return not block.get("num_local_experts") and inner != block.get("intermediate_size")


def no_silu(block: Block, _names: Collection[str]) -> bool:
    return block.get("hidden_act") not in (None, "silu", "swish")


def tied_and_packed(block: Block, _names: Collection[str]) -> bool:
    return block.get("tie_word_embeddings", True) is True and "quantization" in block


def other_gelu(block: Block, _names: Collection[str]) -> bool:
    return block.get("hidden_act") not in (None, "gelu_new", "gelu_pytorch_tanh")


def block_of(block: Block, name: str) -> Block:
    inner = block.get(name)
    return inner if isinstance(inner, Mapping) else {}


def unsaid(name: str, *fields: str) -> When:
    """Is one of these fields of that inner block not there, or null?"""
    return lambda block, _names: any(block_of(block, name).get(field) is None for field in fields)


def unnormed(block: Block, _names: Collection[str]) -> bool:
    return block_of(block, "ffn_config").get("moe_normalize_expert_weights", 1) is None


def other_experts(block: Block, _names: Collection[str]) -> bool:
    return block_of(block_of(block, "ffn_config"), "ffn_act_fn").get("name", "silu") not in ("silu", "swish")
