"""Kimi K3, its text: Kimi Linear's layers, in front of which a softmax over earlier sums says what is read.

What scores a sum is a norm's weight times a vector, of which llama.cpp has the product alone: it comes back
as the vector, beside a norm of ones.
"""

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.changes import DECAY, PRODUCT
from modelkit.source.gguf.architectures.delta_nets import DELTA, LOW_RANK
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.kimi import recurrent_layers
from modelkit.source.gguf.architectures.latent_heads import LATENT, read_sizes, write_sizes
from modelkit.source.gguf.architectures.moe import (
    MOE_INNER,
    SIGMOID,
    experts,
    gating,
    leading_dense,
    shared_expert,
)
from modelkit.source.gguf.architectures.moves import Atom, Link, Side, row_count
from modelkit.source.gguf.architectures.parts import (
    CONTEXT,
    HIDDEN,
    INNER,
    MLP,
    NORMS,
    RMS,
    TOP,
    VOCAB,
    rule,
    rules,
)
from modelkit.source.gguf.architectures.rules import Kept, Members, Rule, flat
from modelkit.source.gguf.architectures.settings import Always, Same, Special
from runtime.records import dataclass

_SCORED = (("attn_res_score", "self_attention_res"), ("ffn_res_score", "mlp_res"))
_LAST = ("output_res_score", "output_attn_res")


def _read_layers(file: Reading) -> None:
    """Counted from 1, as published files count them."""
    read_sizes(file)
    del file.config["head_dim"]
    delta = [file.has(layer, "ssm_a") for layer in range(file.layers)]
    told = file.get("attention.head_count_kv")
    if isinstance(told, list) and [not one for one in told[: file.layers]] != delta:
        file.refuse(f"`{file.full('attention.head_count_kv')}` names other layers than the tensors do")
    lowest = file.get("kda.gate_lower_bound")
    file.config["linear_attn_config"] = {
        "kda_layers": [i + 1 for i, one in enumerate(delta) if one],
        "full_attn_layers": [i + 1 for i, one in enumerate(delta) if not one],
        "num_heads": file.config["num_attention_heads"],
        "head_dim": file.count("kda.head_dim"),
        "short_conv_kernel_size": file.count("ssm.conv_kernel"),
        "gate_lower_bound": None if lowest is None else file.number("kda.gate_lower_bound"),
        "use_full_rank_gate": True,
    }
    file.config["mla_use_output_gate"] = any(file.has(i, "attn_gate") for i in range(file.layers))
    file.config["latent_moe_use_norm"] = any(file.has(i, "ffn_routed_norm") for i in range(file.layers))


def _write_layers(out: Writing) -> None:
    facts = out.facts
    own = facts.get("linear_attn_config", default={})
    if own.get("num_heads") != facts.heads:
        out.refuse(f"KDA has {own.get('num_heads')} heads and attention {facts.heads}, which GGUF cannot say")
    if not own.get("use_full_rank_gate"):
        out.refuse("delta nets open by two small matrices, which llama.cpp has not for kimi-k3")
    if facts.count("num_expert_group", "n_group", default=1) > 1:
        out.refuse("experts are in groups, which llama.cpp has not for kimi-k3")
    write_sizes(out)
    out.put("attention.head_count_kv", [int(not one) for one in recurrent_layers(facts)])
    out.put("kda.head_dim", own.get("head_dim"))
    out.put("ssm.conv_kernel", own.get("short_conv_kernel_size"))
    if own.get("gate_lower_bound") is not None:
        out.put("kda.gate_lower_bound", float(own["gate_lower_bound"]))


def _read_scores(file: Reading) -> None:
    names = [
        (f"blk.{layer}.{theirs}", f"model.layers.{layer}.{ours}")
        for theirs, ours in _SCORED
        for layer in range(file.layers)
    ]
    for theirs, ours in (*names, (_LAST[0], f"model.{_LAST[1]}")):
        size = row_count(file.shapes.get(f"{theirs}.weight", (0,)))
        file.constants[f"{ours}_norm.weight"] = (size,), (1.0,) * size


@dataclass(frozen=True, slots=True)
class _Scored:
    """A norm's weight times a vector."""

    def link(self, members: Members) -> Link | None:
        norm, vector = members.ours
        if norm not in members.shapes or vector not in members.shapes:
            return None
        size = row_count(members.shapes[norm])
        ours = Side(norm, members.shapes[norm], (0,)), Side(vector, members.shapes[vector], (1,))
        return Link(
            (Side(members.theirs[0], (size,), (0, 1), change=PRODUCT),), ours, (Atom(size), Atom(size))
        )


def _scores(theirs: str, ours: str) -> tuple[Rule, ...]:
    parts = f"{ours}_norm.weight", f"{ours}_proj.weight"
    return (
        rule(f"{theirs}.weight", parts, _Scored()),
        rule(f"{theirs}.weight", parts[1], Kept(lambda shape, _: (1, row_count(shape))), written=False),
    )


@dataclass(frozen=True, slots=True)
class _Gate(Kept):
    """Of a delta net, or of latent attention, which files call alike."""

    delta: bool = False

    def link(self, members: Members) -> Link | None:
        mine = recurrent_layers(members.facts)[members.layer : members.layer + 1] == [self.delta]
        return Kept.link(self, members) if mine else None


KIMI_K3 = Architecture(
    "kimi-k3",
    (Kind("kimi_k3", "KimiK3ForConditionalGeneration"),),
    (
        CONTEXT,
        HIDDEN,
        INNER,
        Same("attention.head_count", ("num_attention_heads",), needed=True),
        RMS,
        VOCAB,
        Special(_read_layers, _write_layers),
        Special(_read_scores, lambda _: None),
        Same("expert_count", ("num_experts",), needed=True),
        Same("expert_used_count", ("num_experts_per_token",), default=16, needed=True),
        Same("expert_group_count", ("num_expert_group",), off=1),
        Same("expert_group_used_count", ("topk_group",)),
        Same("expert_weights_norm", ("moe_renormalize",), default=True, absent=False),
        MOE_INNER,
        Same("expert_shared_count", ("num_shared_experts",), default=0, needed=True),
        Same("expert_weights_scale", ("routed_scaling_factor",), default=1.0, absent=1.0, kind=float),
        Same("expert_latent_length", ("routed_expert_hidden_size",)),
        leading_dense(),
        gating(SIGMOID),
        Always("mla_use_nope", True),
        Always("hidden_act", "situ"),
        Same("activation.situ_beta", ("activation_situ_beta",), default=1.0, needed=True, kind=float),
        Same("activation.situ_linear_beta", ("activation_situ_linear_beta",), needed=True, kind=float),
        Same("attn_res.block_size", ("attn_res_block_size",), needed=True),
    ),
    (*TOP, *_scores(_LAST[0], f"model.{_LAST[1]}")),
    (
        *NORMS,
        *LATENT,
        *DELTA,
        *LOW_RANK,
        rule("ssm_g.weight", "self_attn.g_proj.weight", _Gate(delta=True)),
        rule("attn_gate.weight", "self_attn.g_proj.weight", _Gate()),
        rule("ssm_a", "self_attn.A_log", Kept(flat, flat, DECAY)),
        *(one for names in _SCORED for one in _scores(*names)),
        *MLP,
        rule("ffn_gate_inp.weight", "block_sparse_moe.gate.weight"),
        rule("exp_probs_b.bias", "block_sparse_moe.gate.e_score_correction_bias"),
        *rules("""
            ffn_routed_down.weight = block_sparse_moe.routed_expert_down_proj.weight
            ffn_routed_up.weight = block_sparse_moe.routed_expert_up_proj.weight
            ffn_routed_norm.weight = block_sparse_moe.routed_expert_norm.weight
        """),
        *experts("block_sparse_moe.switch_mlp"),
        *shared_expert("block_sparse_moe.shared_experts"),
    ),
    exact="function; A_log within 1.2e-7",
)
