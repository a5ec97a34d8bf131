"""DeepSeek V2 to V3.2 with Kimi K2 and GLM-4.7 Flash: latent attention.

A head's part of `kv_b_proj` is two tensors in GGUF, and the one for keys is turned over ([head, rank, size]).
Read, they stay two, under MLX's names (`embed_q`, `unembed_out`), which lie the same way; so packed ones
stay as they are.
"""

from dataclasses import replace

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.changes import TURNED
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.moe import (
    CORRECTION,
    MOE_INNER,
    NEXTN,
    ROUTED_SCALE,
    ROUTER,
    SHARED_COUNT,
    expert_settings,
    experts,
    heads_behind,
    leading_dense,
    shared_expert,
)
from modelkit.source.gguf.architectures.moves import Atom, Link, Side
from modelkit.source.gguf.architectures.parts import (
    CONTEXT,
    HIDDEN,
    INNER,
    MLP,
    NORMS,
    RMS,
    TOP,
    VOCAB,
    bias_flag,
    rule,
    rules,
)
from modelkit.source.gguf.architectures.rope import read_scaling, rope_block, write_scaling
from modelkit.source.gguf.architectures.rules import Members
from modelkit.source.gguf.architectures.settings import Same, Special
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


def _read_latent(file: Reading) -> None:
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
    block = {"rope_theta": file.number("rope.freq_base", 10000.0)} | read_scaling(file)
    scale = file.get("rope.scaling.yarn_log_multiplier")
    if scale is not None and block["rope_type"] == "yarn":
        # The converter writes a tenth of it in this architecture.
        temperature = round(scale * 10, 6)
        block |= {"mscale": temperature, "mscale_all_dim": temperature}
    file.config["rope_parameters"] = block


def _write_latent(out: Writing) -> None:
    facts = out.facts
    in_pairs = facts.get("rope_interleave", default=True) or facts.get("model_type") == "deepseek_v2"
    if not in_pairs:
        out.refuse(f"halves of a head are rotated, not pairs, which GGUF cannot say for {out.architecture}")
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
    block = rope_block(facts)
    out.put("rope.freq_base", float(block.get("rope_theta", 10000.0)))
    write_scaling(out, block)
    scale = block.get("mscale_all_dim")
    if block["rope_type"] == "yarn" and scale is not None:
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
LATENT_SIZES = Special(_read_latent, _write_latent)


def _groups(file: Reading) -> None:
    for key, name in (("expert_group_count", "n_group"), ("expert_group_used_count", "topk_group")):
        told = file.get(key, int)
        if told is not None:
            file.config[name] = told


def _write_groups(out: Writing) -> None:
    facts = out.facts
    if facts.get("topk_method", default="") == "greedy":
        return
    for key, name in (("expert_group_count", "n_group"), ("expert_group_used_count", "topk_group")):
        if facts.get(name) is not None:
            out.put(key, facts.get(name))


def _corrected(file: Reading) -> bool:
    return any(file.has(layer, "exp_probs_b") for layer in range(file.layers))


def _second(file: Reading) -> None:
    """V2 routes by a softmax, within groups if the file has any."""
    if file.count("expert_gating_func", 1) != 1:
        file.unsupported(f"`{file.full('expert_gating_func')}` is not 1 and no choice is corrected")
    groups = file.config.get("n_group", 1)
    file.config |= {
        "topk_method": "group_limited_greedy" if groups > 1 else "greedy",
        "scoring_func": "softmax",
        "norm_topk_prob": False,
    }


def _third(file: Reading) -> None:
    if file.count("expert_gating_func", 2) != 2:
        file.unsupported(f"`{file.full('expert_gating_func')}` is not 2, and the choice is corrected")
    file.config |= {"topk_method": "noaux_tc", "scoring_func": "sigmoid"}
    file.config.setdefault("n_group", 1)
    file.config.setdefault("topk_group", 1)


def _write_norm(out: Writing) -> None:
    if out.facts.get("norm_topk_prob", default=False):
        out.put("expert_weights_norm", True)


def _write_softmax(out: Writing) -> None:
    out.put("expert_gating_func", 1)


def _write_sigmoid(out: Writing) -> None:
    """llama.cpp takes a softmax for most files that do not say, old ones of V3 among them."""
    out.put("expert_gating_func", 2)


_COMMON = (
    CONTEXT,
    HIDDEN,
    INNER,
    Same("attention.head_count", ("num_attention_heads",), needed=True),
    RMS,
    VOCAB,
    LATENT_SIZES,
    *expert_settings("n_routed_experts", "num_local_experts"),
    Special(_groups, _write_groups),
    MOE_INNER,
    SHARED_COUNT,
    ROUTED_SCALE,
    Special(
        lambda file: file.config.update(norm_topk_prob=bool(file.get("expert_weights_norm"))), _write_norm
    ),
    bias_flag("attention_bias", "attn_kv_a_mqa"),
)
_NO_HEAD = Special(lambda file: file.config.update(num_nextn_predict_layers=0), lambda _: None)
_THIRD = (leading_dense(default=3), Special(_third, _write_sigmoid))
_BLOCK = (
    *NORMS,
    *LATENT,
    *MLP,
    ROUTER,
    CORRECTION,
    *experts(),
    *shared_expert("mlp.shared_experts"),
)

DEEPSEEK2 = Architecture(
    "deepseek2",
    (
        Kind(
            "deepseek_v3",
            "DeepseekV3ForCausalLM",
            _corrected,
            aliases=("kimi_k2", "glm4_moe_lite"),
            settings=_THIRD,
        ),
        Kind(
            "deepseek_v2",
            "DeepseekV2ForCausalLM",
            settings=(leading_dense(), Special(_second, _write_softmax)),
        ),
    ),
    (*_COMMON, _NO_HEAD),
    TOP,
    _BLOCK,
)
DEEPSEEK32 = Architecture(
    "deepseek32",
    (Kind("deepseek_v32", "DeepseekV32ForCausalLM", settings=_THIRD),),
    (
        *_COMMON,
        Same("attention.indexer.head_count", ("index_n_heads",), default=64, needed=True),
        Same("attention.indexer.key_length", ("index_head_dim",), default=128, needed=True),
        Same("attention.indexer.top_k", ("index_topk",), default=2048, needed=True),
        heads_behind(),
    ),
    TOP,
    (
        *_BLOCK,
        *rules("""
            indexer.k_norm.* = self_attn.indexer.k_norm.*
            indexer.proj.* = self_attn.indexer.weights_proj.*
            indexer.attn_k.* = self_attn.indexer.wk.*
            indexer.attn_q_b.* = self_attn.indexer.wq_b.*
        """),
    ),
    head=NEXTN,
)
