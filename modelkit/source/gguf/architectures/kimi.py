"""Kimi Linear: delta attention with a decay per channel (KDA), and latent attention without positions.

Which layers are which is told by their tensors; `attention.head_count_kv` says it again (0: KDA).
"""

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.changes import DECAY
from modelkit.source.gguf.architectures.delta_nets import DELTA, LOW_RANK
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.latent_heads import LATENT, read_sizes, write_sizes
from modelkit.source.gguf.architectures.moe import (
    MOE_INNER,
    SIGMOID,
    experts,
    gating,
    leading_dense,
    routed_scale,
    shared_expert,
)
from modelkit.source.gguf.architectures.moves import row_count
from modelkit.source.gguf.architectures.parts import (
    HEAD_COUNT,
    HIDDEN,
    INNER,
    MLP,
    NORMS,
    RMS,
    TOP,
    VOCAB,
    bias_flag,
    rule,
)
from modelkit.source.gguf.architectures.rules import Kept
from modelkit.source.gguf.architectures.settings import Same, Special

_KINDS = {True: "linear_attention", False: "full_attention"}


def _own(facts: Facts, published: str, name: str, default: int) -> int:
    """Of KDA: published files have a block for it, transformers' own fields."""
    block = facts.get("linear_attn_config", default={})
    told = block.get(published)
    return told if type(told) is int else facts.count(name, default=default)


def recurrent_layers(facts: Facts) -> list[bool]:
    """Of each layer: is it KDA?"""
    kinds = facts.get("layer_types")
    if kinds:
        return [kind == _KINDS[True] for kind in kinds]
    full = facts.get("linear_attn_config", default={}).get("full_attn_layers")
    if full is not None:  # counted from 1
        return [i + 1 not in full for i in range(facts.layers)]
    return [i == 0 or i % 4 != 0 for i in range(facts.layers)]


def _read_layers(file: Reading) -> None:
    recurrent = file.layers_with("ssm_a", "attention.head_count_kv", by_zero=True)
    file.config |= {
        "layer_types": [_KINDS[one] for one in recurrent],
        "linear_num_heads": file.config["num_attention_heads"],
        "linear_head_dim": file.count("kda.head_dim"),
        "linear_conv_kernel_dim": file.count("ssm.conv_kernel"),
    }


def _write_layers(out: Writing) -> None:
    facts = out.facts
    heads = _own(facts, "num_heads", "linear_num_heads", 32)
    if heads != facts.heads:
        out.refuse(
            f"KDA has {heads} heads and attention {facts.heads}, which GGUF cannot say for kimi-linear"
        )
    out.put("attention.head_count_kv", [int(not one) for one in recurrent_layers(facts)])
    out.put("kda.head_dim", _own(facts, "head_dim", "linear_head_dim", 128))
    taps = facts.count("linear_conv_kernel_dim", default=4)
    out.put("ssm.conv_kernel", _own(facts, "short_conv_kernel_size", "linear_conv_kernel_dim", taps))


def _read_latent(file: Reading) -> None:
    """Lengths of keys and values are those of the memory; positions do not turn anything."""
    size = file.get("attention.value_length", int)
    read_sizes(file)
    file.skip("rope.freq_base")
    if size is not None:
        file.config["head_dim"] = size


def _write_latent(out: Writing) -> None:
    kinds = out.metadata[f"{out.architecture}.attention.head_count_kv"]
    write_sizes(out)
    out.put("attention.head_count_kv", kinds)
    del out.metadata[f"{out.architecture}.attention.value_length"]
    size = out.facts.get("head_dim")
    if size is not None:
        out.put("attention.value_length", size)


def _read_mixture(file: Reading) -> None:
    file.config |= {
        "num_expert_group": file.count("expert_group_count", 1),
        "topk_group": file.count("expert_group_used_count", 1),
        "moe_renormalize": True,
    }
    if file.get("expert_weights_norm") is False:
        file.unsupported(f"`{file.full('expert_weights_norm')}` is false, which llama.cpp does not compute")


def _write_mixture(out: Writing) -> None:
    facts = out.facts
    if not facts.get("moe_renormalize", "norm_topk_prob", default=True):
        out.refuse("weights of experts are not normalized, which GGUF cannot say for kimi-linear")
    groups = facts.count("num_expert_group", "n_group", default=1)
    if groups > 1:
        out.put("expert_group_count", groups)
    out.put("expert_group_used_count", facts.count("topk_group", default=1))


_RATES = Kept(
    lambda shape, _: (1, 1, row_count((*shape, 1)), 1),
    lambda shape, _: (1, 1, row_count((*shape, 1)), 1),
    DECAY,
)

KIMI_LINEAR = Architecture(
    "kimi-linear",
    (Kind("kimi_linear", "KimiLinearForCausalLM"),),
    (
        Same("context_length", ("model_max_length", "max_position_embeddings")),
        HIDDEN,
        INNER,
        HEAD_COUNT,
        RMS,
        VOCAB,
        Special(_read_layers, _write_layers),
        Special(_read_latent, _write_latent),
        Same("expert_count", ("num_experts", "num_local_experts"), needed=True),
        Same("expert_used_count", ("num_experts_per_token", "num_experts_per_tok"), needed=True),
        Special(_read_mixture, _write_mixture),
        MOE_INNER,
        Same("expert_shared_count", ("num_shared_experts", "n_shared_experts"), default=1),
        routed_scale(default=2.446),
        leading_dense(default=1),
        gating(SIGMOID),
        bias_flag("attention_bias", "attn_kv_a_mqa"),
    ),
    TOP,
    (
        *NORMS,
        *LATENT,
        *DELTA,
        *LOW_RANK,
        rule("ssm_a", "self_attn.A_log", _RATES),
        *MLP,
        rule("ffn_gate_inp.weight", "block_sparse_moe.gate.weight"),
        rule("exp_probs_b.bias", "block_sparse_moe.gate.e_score_correction_bias"),
        *experts("block_sparse_moe.switch_mlp"),
        *shared_expert("block_sparse_moe.shared_experts"),
    ),
    exact="function; A_log within 1.2e-7",
)
