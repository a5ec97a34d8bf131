"""Ling 3: delta attention with a decay per channel, whose decays have a floor, and gated latent attention.

Which layers are which their tensors say; `attention.head_count_kv` says it again (0: a delta net). Published
checkpoints call attention's tensors otherwise than transformers does: both are written, and the published
names are read.
"""

from collections.abc import Iterable
from dataclasses import replace

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.changes import POWER
from modelkit.source.gguf.architectures.delta_nets import DELTA
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.latent_heads import (
    DECODER,
    LATENT,
    LATENT_ROPE,
    read_sizes,
    write_sizes,
)
from modelkit.source.gguf.architectures.moe import (
    CORRECTION,
    GROUPS,
    MOE_INNER,
    NORMALIZED,
    ROUTED_SCALE,
    ROUTER,
    SIGMOID,
    expert_settings,
    experts,
    gating,
    heads_behind,
    leading_dense,
    shared_expert,
)
from modelkit.source.gguf.architectures.parts import (
    MLP,
    NORMS,
    TOP,
    bias_flag,
    rule,
    rules,
)
from modelkit.source.gguf.architectures.rules import Kept, OfSome, Rule
from modelkit.source.gguf.architectures.settings import Special

_KINDS = {True: "linear_attention", False: "full_attention"}


def _recurrent(facts: Facts) -> list[bool]:
    kinds = facts.get("layer_types")
    if kinds:
        return [kind == _KINDS[True] for kind in kinds]
    size = facts.count("layer_group_size", default=6)
    return [(i + 1) % size != 0 for i in range(facts.layers)]


def _read_layers(file: Reading) -> None:
    recurrent = file.layers_with("ssm_a", "attention.head_count_kv", by_zero=True)
    if file.get("kda.safe_gate") is False:
        file.unsupported(f"`{file.full('kda.safe_gate')}` is false, which llama.cpp does not compute")
    read_sizes(file)
    file.config |= {
        "layer_types": [_KINDS[one] for one in recurrent],
        "head_dim": file.count("kda.head_dim"),
        "short_conv_kernel_size": file.count("ssm.conv_kernel"),
        "kda_safe_gate": True,
        "kda_lower_bound": file.number("kda.gate_lower_bound"),
    }


def _write_layers(out: Writing) -> None:
    facts = out.facts
    size = facts.count("linear_head_dim", "head_dim", default=128)
    heads = facts.count("linear_num_heads", default=facts.heads)
    if heads != facts.heads:
        out.refuse(f"delta nets have {heads} heads and attention {facts.heads}, which GGUF cannot say")
    if not facts.get("kda_safe_gate", default=True):
        out.refuse("kda_safe_gate is False, which llama.cpp does not compute")
    write_sizes(out)
    out.put("attention.value_length", size)
    out.put("attention.head_count_kv", [int(not one) for one in _recurrent(facts)] + [1] * out.heads)
    out.put("kda.head_dim", size)
    taps = facts.count("linear_conv_kernel_dim", "short_conv_kernel_size", default=4)
    out.put("ssm.conv_kernel", taps)
    out.put("kda.safe_gate", True)
    out.put("kda.gate_lower_bound", float(facts.get("kda_lower_bound", default=-5.0)))


def _read_shared(file: Reading) -> None:
    shared = file.count("expert_shared_count", 1)
    inner = file.config.get("moe_intermediate_size", 0)
    told = file.count("expert_shared_feed_forward_length", inner * shared)
    if not inner or told % inner or (shared and told != inner * shared):
        file.unsupported("shared experts are of a size of their own, which is not computed")
    file.config["n_shared_experts"] = shared


def _write_shared(out: Writing) -> None:
    shared = out.facts.count("n_shared_experts", "num_shared_experts", default=1)
    out.put("expert_shared_count", shared)
    out.put(
        "expert_shared_feed_forward_length", shared * out.facts.count("moe_intermediate_size", default=768)
    )


def _of(*, recurrent: bool) -> OfSome:
    return OfSome(lambda facts, layer: (True in _recurrent(facts)[layer : layer + 1]) is recurrent)


def _published(given: Iterable[Rule]) -> tuple[Rule, ...]:
    def name(ours: str) -> str:
        return ours.replace("self_attn.o_proj.", "attention.dense.").replace("self_attn.", "attention.")

    return tuple(replace(one, ours=tuple(map(name, one.ours))) for one in given)


_RATES = Kept(lambda shape, _: shape[:1], lambda shape, _: (max(shape), 1), POWER)
_ATTENTION = (
    rule("attn_gate.weight", "self_attn.g_proj.weight", _of(recurrent=False)),
    rule("ssm_g_a.weight", "self_attn.g_proj.weight", _of(recurrent=True)),
    *LATENT,
    *DELTA,
    *rules("ssm_f_a.weight = self_attn.f_proj.weight"),
    rule("ssm_a", "self_attn.A_log", _RATES),
)
_HERE = rules("""
    ssm_f_a.weight = self_attn.forget_gate.f_proj.weight
    ssm_dt.bias = self_attn.forget_gate.dt_bias
""")

BAILINGMOE3 = Architecture(
    "bailingmoe3",
    (Kind("bailing_hybrid", "BailingMoeV3ForCausalLM"),),
    (
        *DECODER,
        Special(_read_layers, _write_layers),
        LATENT_ROPE,
        *expert_settings("num_local_experts", "num_experts"),
        *GROUPS,
        MOE_INNER,
        Special(_read_shared, _write_shared),
        ROUTED_SCALE,
        NORMALIZED,
        leading_dense(default=2),
        gating(SIGMOID),
        bias_flag("attention_bias", "attn_kv_a_mqa"),
        heads_behind(),
    ),
    (
        *rules("token_embd.* = model.word_embeddings.*"),
        *TOP,
    ),
    (
        *NORMS,
        *_published(_ATTENTION),
        *_ATTENTION,
        *_HERE,
        rule("ssm_a", "self_attn.forget_gate.A_log", _RATES),
        *MLP,
        ROUTER,
        rule("exp_probs_b.bias", "mlp.gate.expert_bias"),
        CORRECTION,
        *experts(),
        *shared_expert("mlp.shared_experts"),
    ),
    exact="function; A_log within 1.2e-7",
)
