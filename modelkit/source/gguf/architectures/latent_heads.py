"""Latent attention, as files of several architectures have it.

A head's part of `kv_b_proj` is two tensors in GGUF, and the one for keys is turned over ([head, rank, size]).
Read, they stay two, under MLX's names (`embed_q`, `unembed_out`), which lie the same way; so packed ones
stay as they are.
"""

from dataclasses import replace

from modelkit.source.gguf.architectures.changes import TURNED
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.moves import Atom, Link, Side
from modelkit.source.gguf.architectures.parts import (
    CONTEXT,
    HEAD_COUNT,
    HIDDEN,
    INNER,
    RMS,
    VOCAB,
    rule,
    rules,
)
from modelkit.source.gguf.architectures.rope import read_scaling, rope_block, write_scaling
from modelkit.source.gguf.architectures.rules import Members
from modelkit.source.gguf.architectures.settings import Special
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class LatentHeads:
    """kv_b_proj [heads * (content + value), rank] -> k_b [heads, rank, content] and v_b [heads, value,
    rank].
    """

    def link(self, members: Members) -> Link | None:
        given = members.shapes.get(members.ours[0])
        heads, content = members.facts.heads, members.facts.count("qk_nope_head_dim", default=128)
        value = members.facts.count("v_head_dim", default=128)
        if given is None or len(given) != 2 or given[0] != heads * (content + value):
            return None
        rank = given[1]
        return Link(
            (
                Side(members.theirs[0], (heads, rank, content), (0,), change=TURNED),
                Side(members.theirs[1], (heads, value, rank), (1,)),
            ),
            (Side(members.ours[0], given, (0, 1), heads),),
            (Atom(heads * content), Atom(heads * value)),
        )


def _rope_size(facts: Facts) -> int:
    return facts.count("qk_rope_head_dim", default=64)


def read_sizes(file: Reading) -> None:
    """The parts of a head, of which one is rotated."""
    rotated = file.count("rope.dimension_count")
    whole, value = file.count("attention.key_length_mla", 0), file.count("attention.value_length_mla", 0)
    if not whole:  # files from before the two tensors have the true sizes here
        whole, value = file.count("attention.key_length"), file.count("attention.value_length")
    file.skip("attention.key_length", "attention.value_length", "attention.head_count_kv")
    if not 0 < rotated < whole:
        file.refuse(f"{rotated} of {whole} numbers of a key are rotated, which cannot be")
    file.config |= {
        "num_key_value_heads": file.config["num_attention_heads"],
        "q_lora_rank": file.get("attention.q_lora_rank", int),
        "kv_lora_rank": file.count("attention.kv_lora_rank"),
        "qk_nope_head_dim": whole - rotated,
        "qk_rope_head_dim": rotated,
        "head_dim": rotated,
        "v_head_dim": value,
    }


def read_yarn(file: Reading) -> None:
    """The rotation, of neighbouring pairs."""
    block = {"rope_theta": file.number("rope.freq_base", 10000.0)} | read_scaling(file)
    if block["rope_type"] not in ("default", "yarn"):
        file.unsupported(
            "the rotation is scaled, and not by yarn, which is not computed for latent attention"
        )
    scale = file.get("rope.scaling.yarn_log_multiplier")
    if scale is not None and block["rope_type"] == "yarn":
        # The converter writes a tenth of it in this architecture.
        temperature = round(scale * 10, 6)
        block |= {"mscale": temperature, "mscale_all_dim": temperature}
    file.config["rope_parameters"] = block


def write_sizes(out: Writing) -> None:
    """What `read_sizes` reads."""
    facts = out.facts
    rank, rotated = facts.count("kv_lora_rank", default=512), _rope_size(facts)
    content, value = facts.count("qk_nope_head_dim", default=128), facts.count("v_head_dim", default=128)
    out.put("attention.head_count_kv", 1)
    if facts.get("q_lora_rank") is not None:
        out.put("attention.q_lora_rank", facts.get("q_lora_rank"))
    out.put("attention.kv_lora_rank", rank)
    out.put("attention.key_length", rank + rotated)
    out.put("attention.value_length", rank)
    out.put("attention.key_length_mla", content + rotated)
    out.put("attention.value_length_mla", value)
    out.put("rope.dimension_count", rotated)


def write_yarn(out: Writing) -> None:
    """What `read_yarn` reads."""
    facts, block = out.facts, rope_block(out.facts)
    if not (facts.get("rope_interleave", default=True) or facts.get("model_type") == "deepseek_v2"):
        out.refuse(f"halves of a head are rotated, not pairs, which GGUF cannot say for {out.architecture}")
    out.put("rope.freq_base", float(block.get("rope_theta", 10000.0)))
    write_scaling(out, block, mscale=True)
    scale = block.get("mscale_all_dim")
    if block["rope_type"] != "yarn" or scale is None:
        return
    if block.get("mscale", scale) != scale:
        out.refuse("mscale and mscale_all_dim differ, which GGUF cannot say")
    out.put("rope.scaling.yarn_log_multiplier", 0.1 * scale)


_LATENT = rules("""
    attn_q.* = self_attn.q_proj.*
    attn_q_a.* = self_attn.q_a_proj.*
    attn_q_a_norm.* = self_attn.q_a_layernorm.*
    attn_q_b.* = self_attn.q_b_proj.*
    attn_kv_a_mqa.* = self_attn.kv_a_proj_with_mqa.*
    attn_kv_a_norm.* = self_attn.kv_a_layernorm.*
    attn_k_b.weight = self_attn.embed_q.weight
    attn_v_b.weight = self_attn.unembed_out.weight
    attn_output.* = self_attn.o_proj.*
""")
LATENT = (
    *_LATENT,
    rule(("attn_k_b.weight", "attn_v_b.weight"), "self_attn.kv_b_proj.weight", LatentHeads()),
    replace(rule("attn_kv_b.weight", "self_attn.kv_b_proj.weight"), written=False),
)
DECODER = (CONTEXT, HIDDEN, INNER, HEAD_COUNT, RMS, VOCAB)
"""Sizes of a decoder whose heads are told by `LATENT_SIZES`."""
LATENT_SIZES = Special(read_sizes, write_sizes)
LATENT_ROPE = Special(read_yarn, write_yarn)
