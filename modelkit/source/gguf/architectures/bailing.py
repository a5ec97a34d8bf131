"""Ling and Ring, and Sarvam: one matrix for queries, keys and values, and mixtures, of two versions."""

from collections.abc import Mapping
from typing import Any

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.changes import UNIT_COLUMNS
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.moe import (
    GROUPS,
    MOE_INNER,
    NORMALIZED,
    ROUTED_SCALE,
    ROUTER,
    SIGMOID,
    SOFTMAX,
    expert_settings,
    experts,
    gating,
    heads_behind,
    leading_dense,
    shared_expert,
)
from modelkit.source.gguf.architectures.moves import Link
from modelkit.source.gguf.architectures.parts import (
    FUSED_QKV,
    HEAD_NORMS,
    MLP,
    NORMS,
    PAIRED_K,
    PAIRED_Q,
    TOP,
    VOCAB,
    decoder,
    qkv_rows,
    rule,
    rules,
)
from modelkit.source.gguf.architectures.rope import Rope
from modelkit.source.gguf.architectures.rules import Joined, Kept, Members, Parted
from modelkit.source.gguf.architectures.settings import Always, Same, Special, Written
from runtime.records import dataclass

_FUSED = "attention.query_key_value.*"


@dataclass(frozen=True, slots=True)
class _Head(Kept):
    """Files have the columns scaled to length one, where the config says that they are to be."""

    def link(self, members: Members) -> Link | None:
        unit = bool(members.facts.get("norm_head"))
        return Kept.link(self, members) if unit == (self.change is not None) else None


_TOP = (
    *rules("token_embd.* = model.word_embeddings.*\noutput_norm.* = model.norm.*"),
    rule("output.weight", "lm_head.weight", _Head(change=UNIT_COLUMNS)),
    rule("output.weight", "lm_head.weight", _Head()),
)
_MIXTURES = (*MLP, ROUTER, *experts(), *shared_expert("mlp.shared_experts"))
_SHARED = Same("expert_shared_count", ("num_shared_experts",), needed=True)


def _second(config: Mapping[str, Any]) -> bool:
    return config.get("moe_router_enable_expert_bias") is True


def _first(config: Mapping[str, Any]) -> bool:
    return not _second(config)


def _all_sparse(out: Writing) -> None:
    if out.facts.count("first_k_dense_replace"):
        out.refuse("the first layers have no mixture, which GGUF cannot say for bailingmoe")


def _own_head(out: Writing) -> None:
    if out.facts.get("tie_word_embeddings"):
        out.refuse(f"the embedding is the head, too, which llama.cpp does not know of {out.architecture}")


def _own_shared(out: Writing) -> None:
    inner = out.facts.count("moe_intermediate_size")
    if out.facts.count("moe_shared_expert_intermediate_size", default=inner) != inner:
        out.refuse("shared experts are of a size of their own, which GGUF cannot say for bailingmoe")


def _read_second(file: Reading) -> None:
    if not any(file.layers_with("exp_probs_b")):
        file.unsupported("routers have no correction, which is not computed")
    file.config |= {"moe_router_enable_expert_bias": True, "score_function": "sigmoid", "use_qk_norm": True}


def _write_second(out: Writing) -> None:
    if not out.facts.get("use_qk_norm", default=True):
        out.refuse("heads have no norms, which GGUF cannot say for bailingmoe2")
    if out.facts.head_dim * out.facts.heads != out.facts.hidden:
        out.refuse("heads do not share the hidden state among them, as llama.cpp wants it for bailingmoe2")


def _read_shared(file: Reading) -> None:
    """For each of them in our configs, and in llama.cpp's program."""
    told = file.count("expert_shared_feed_forward_length", 0)
    if told:
        file.config["moe_shared_expert_intermediate_size"] = told


BAILINGMOE = Architecture(
    "bailingmoe",
    (Kind("bailing_moe", "BailingMoeForCausalLM"),),
    decoder(
        Rope(theta=600000.0),
        VOCAB,
        *expert_settings("num_experts"),
        leading_dense(),
        Special(writing=_all_sparse),
        Special(writing=_own_shared),
        Special(writing=_own_head),
        MOE_INNER,
        Written("expert_weights_scale", lambda _: 1.0),
        Always("routed_scaling_factor", 1.0),
        Always("use_qkv_bias", False),
        Always("use_qk_norm", False),
        gating(SOFTMAX, written=False),
        _SHARED,
        NORMALIZED,
    ),
    _TOP,
    (
        *NORMS,
        rule(
            ("attn_q.*", "attn_k.*", "attn_v.*"),
            _FUSED,
            Joined(Parted(qkv_rows, (PAIRED_Q, PAIRED_K, None))),
        ),
        rule("attn_output.*", "attention.dense.*"),
        *_MIXTURES,
    ),
    exact="bits; a head whose columns are to be scaled comes back scaled",
    otherwise=("unit_head",),
    condition=_first,
)
BAILINGMOE2 = Architecture(
    "bailingmoe2",
    (Kind("bailing_moe", "BailingMoeV2ForCausalLM"),),
    decoder(
        Rope(theta=600000.0, partial=1.0),
        VOCAB,
        *expert_settings("num_experts"),
        *GROUPS,
        leading_dense(default=1),
        MOE_INNER,
        Special(
            _read_shared,
            lambda out: out.put(
                "expert_shared_feed_forward_length",
                out.facts.count("moe_shared_expert_intermediate_size", "moe_intermediate_size"),
            ),
        ),
        gating(SIGMOID),
        ROUTED_SCALE,
        _SHARED,
        NORMALIZED,
        heads_behind(zero=True),
        Special(_read_second, _write_second),
        Special(writing=_own_head),
        Always("use_qkv_bias", False),
    ),
    _TOP,
    (
        *NORMS,
        rule("attn_qkv.*", _FUSED),
        rule("attn_output.*", "attention.dense.*"),
        rule("attn_q_norm.*", "attention.query_layernorm.*"),
        rule("attn_k_norm.*", "attention.key_layernorm.*"),
        rule("exp_probs_b.bias", "mlp.gate.expert_bias"),
        *_MIXTURES,
    ),
    exact="bits; a head whose columns are to be scaled comes back scaled",
    otherwise=("unit_head",),
    condition=_second,
)


def _write_sarvam(out: Writing) -> None:
    _write_second(out)
    inner = out.facts.count("moe_intermediate_size", default=1024)
    out.put("expert_feed_forward_length", inner)
    out.put("expert_shared_feed_forward_length", inner)


SARVAM = Architecture(
    "bailingmoe2",
    (Kind("sarvam_moe", "SarvamMoEForCausalLM", lambda _: False),),
    decoder(
        Rope(theta=8e6),
        VOCAB,
        *expert_settings("n_routed_experts", "num_local_experts"),
        *GROUPS,
        leading_dense(default=1),
        Special(writing=_write_sarvam),
        gating(SIGMOID),
        Same("expert_weights_scale", ("routed_scaling_factor",), default=2.5, kind=float),
        Same("expert_shared_count", ("n_shared_experts",), default=1),
        Same("expert_weights_norm", ("norm_topk_prob",), default=True),
        Special(writing=_own_head),
        Always("attention_bias", False),
    ),
    TOP,
    (
        *NORMS,
        FUSED_QKV,
        rule("attn_qkv.*", _FUSED),
        rule("attn_output.*", "self_attn.o_proj.*"),
        *HEAD_NORMS,
        rule("exp_probs_b.bias", "mlp.gate.e_score_correction_bias"),
        *_MIXTURES,
    ),
    exact="function, as Ling",
)
"""Ling's second by other names; what is read of a file is Ling."""
