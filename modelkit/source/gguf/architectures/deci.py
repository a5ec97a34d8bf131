"""DeciLM 7B, whose layers have their own numbers of key heads, and Nemotron NAS, where MLPs differ, too, and
layers may be without either.
"""

from typing import Any

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.moves import Link
from modelkit.source.gguf.architectures.parts import (
    ATTENTION,
    CONTEXT,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    INNER,
    MLP,
    NORMS,
    PAIRED_Q,
    RMS,
    TOP,
    VOCAB,
    bias_flag,
    rule,
)
from modelkit.source.gguf.architectures.rope import Rope
from modelkit.source.gguf.architectures.rules import Kept, Members, Regrouped
from modelkit.source.gguf.architectures.settings import Always, Special
from runtime.records import dataclass

_LISTED = "num_key_value_heads_per_layer"
_WHOLE = 256
"""MLPs' sizes are multiples of it."""


def _groups(facts: Facts, layer: int) -> tuple[int, ...]:
    listed = facts.get(_LISTED, default=())[layer : layer + 1]
    share = _attention(facts, layer).get("n_heads_in_group") or facts.heads
    return listed[0] if listed else max(facts.heads // share, 1), -1, 2


def _attention(facts: Facts, layer: int) -> dict[str, Any]:
    """{} of a layer that the config does not count."""
    return next(iter(facts.get("block_configs", default=())[layer : layer + 1]), {}).get("attention", {})


@dataclass(frozen=True, slots=True)
class _Matrix(Kept):
    """One matrix in place of attention."""

    def link(self, members: Members) -> Link | None:
        alone = _attention(members.facts, members.layer).get("replace_with_linear")
        return Kept.link(self, members) if alone else None


def _read(file: Reading) -> None:
    heads, keys = file.each("attention.head_count"), file.each("attention.head_count_kv")
    inner, most = file.each("feed_forward_length"), max(heads, default=0)
    size = file.count("attention.key_length", file.count("embedding_length") // max(most, 1))
    if not most or file.count("attention.value_length", size) != size:
        file.unsupported("there are no heads, or keys and values of different sizes, which is not computed")
    file.config |= {"num_attention_heads": most, "num_key_value_heads": None, "intermediate_size": None}
    file.config |= {"head_dim": size, "block_configs": []}
    for layer in range(file.layers):
        if (keys[layer] and heads[layer] != most) or most % max(keys[layer], 1) or inner[layer] % _WHOLE:
            file.unsupported(
                f"block {layer} has {heads[layer]} heads, {keys[layer]} of keys, and an MLP of "
                f"{inner[layer]}, which is not computed"
            )
        matrix = bool(heads[layer]) and not keys[layer]
        share = most // keys[layer] if keys[layer] else None
        attention = {"no_op": not heads[layer], "replace_with_linear": matrix, "n_heads_in_group": share}
        times = 1.5 * inner[layer] / file.config["hidden_size"] if inner[layer] else None
        ffn = {"no_op": not inner[layer], "replace_with_linear": False, "ffn_mult": times}
        file.config["block_configs"].append({"attention": attention, "ffn": ffn})


def _write(out: Writing) -> None:
    facts = out.facts
    heads, keys, inner = list[int](), list[int](), list[int]()
    for layer, block in enumerate(facts.get("block_configs")):
        attention, ffn = block["attention"], block["ffn"]
        matrix, share = attention.get("replace_with_linear"), attention.get("n_heads_in_group")
        nothing = attention.get("no_op") is True
        if ffn.get("replace_with_linear"):
            out.refuse(f"layer {layer} has one matrix in place of an MLP, which GGUF cannot say for deci")
        if ffn.get("no_op") and not nothing:
            out.refuse(f"layer {layer} has attention and no MLP: llama.cpp would leave out its attention")
        if matrix and facts.get("attention_bias"):
            out.refuse(f"layer {layer} has a biased matrix in place of attention, which llama.cpp has not")
        heads.append(0 if nothing else facts.heads)
        keys.append(0 if nothing or matrix else facts.heads // share)
        size = out.shapes.get(f"model.layers.{layer}.mlp.gate_proj.weight", (0,))[0]
        inner.append(0 if ffn.get("no_op") else size)
    if not keys or not keys[0]:
        out.refuse("the first layer has no heads, by which llama.cpp reckons their size")
    out.put("attention.head_count", heads)
    out.put("attention.head_count_kv", keys)
    out.put("feed_forward_length", inner)
    out.put("attention.key_length", facts.head_dim)
    out.put("attention.value_length", facts.head_dim)


_BLOCK = (
    *NORMS,
    rule("attn_q.*", "self_attn.q_proj.*", PAIRED_Q),
    rule("attn_k.*", "self_attn.k_proj.*", Regrouped(_groups, (0, 2, 1))),
    *ATTENTION[2:],
    *MLP,
)


def _alike(file: Reading) -> bool:
    """Does nothing but the number of key heads differ?"""
    keys, layers = file.each("attention.head_count_kv"), range(file.layers)
    sizes = {*file.each("attention.head_count")}, {*file.each("feed_forward_length")}
    biased = any(file.has(layer, f"{part}.bias") for layer in layers for part in ("attn_q", "ffn_gate"))
    return all(keys) and all(len(one) == 1 and 0 not in one for one in sizes) and not biased


def _read_keys(file: Reading) -> None:
    file.config[_LISTED] = file.each("attention.head_count_kv")


DECILM = Architecture(
    "deci",
    (Kind("deci", "DeciLMForCausalLM", _alike),),
    (
        CONTEXT,
        HIDDEN,
        INNER,
        HEADS[0],
        Special(_read_keys, lambda out: out.put("attention.head_count_kv", out.facts.get(_LISTED))),
        HEAD_DIM,
        RMS,
        VOCAB,
        Rope(),
        Always("hidden_act", "silu"),
    ),
    TOP,
    _BLOCK,
)
DECI = Architecture(
    "deci",
    (Kind("nemotron-nas", "DeciLMForCausalLM"),),
    (
        CONTEXT,
        HIDDEN,
        RMS,
        VOCAB,
        Special(_read, _write),
        Rope(),
        Always("hidden_act", "silu"),
        bias_flag("attention_bias", "attn_q"),
        bias_flag("mlp_bias", "ffn_gate"),
    ),
    TOP,
    (rule("attn_output.*", "self_attn.linear.*", _Matrix()), *_BLOCK),
    exact="bits; an MLP's multiple of the hidden size comes back as another of the same size",
)
