"""Qwen3-Next and Qwen3.5: gated delta nets between gated attention layers.

Read under MLX's names: its files have norms whole and filters as [channels, taps, 1], which is how GGUF's
numbers lie, so nothing is computed. Qwen3-Next's two projections stay apart as Qwen3.5's, since GGUF may
hold them in two types. Where there are more value heads than key heads, Qwen3.5's are dealt out in GGUF
([r][k] for [k][r]).
"""

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.changes import DECAY, PLUS_ONE, Change, Columns
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.moe import (
    MOE_INNER,
    PLAIN_SOFTMAX,
    ROUTER,
    expert_settings,
    experts,
    shared_expert,
    shared_inner,
)
from modelkit.source.gguf.architectures.moves import Link, Shape
from modelkit.source.gguf.architectures.parts import ATTENTION, MLP, bias_flag, decoder, rule, rules
from modelkit.source.gguf.architectures.qwen import SHARED_GATE
from modelkit.source.gguf.architectures.rope import SECTIONS, Rope
from modelkit.source.gguf.architectures.rules import Joined, Kept, Members, Move, Parted, Regrouped, Rule
from modelkit.source.gguf.architectures.settings import Always, Same, Special
from runtime.records import dataclass


def filters_to_ours(shape: Shape, _: Facts) -> Shape:
    return (*shape, 1)


def filters_to_theirs(shape: Shape, _: Facts) -> Shape:
    """From [channels, taps, 1] or [channels, 1, taps]."""
    return (shape[0], shape[1] * shape[2]) if len(shape) == 3 else shape


FILTERS = Kept(filters_to_ours, filters_to_theirs)


def _key_heads(facts: Facts) -> int:
    return facts.count("linear_num_key_heads", default=16)


def _value_heads(facts: Facts) -> int:
    return facts.count("linear_num_value_heads", default=32)


def _key_rows(facts: Facts) -> int:
    return _key_heads(facts) * facts.count("linear_key_head_dim", default=128)


def _dealt(facts: Facts, _: int) -> tuple[int, ...]:
    """The value heads as GGUF has them: one of each key head's, then the next of each."""
    return _value_heads(facts) // _key_heads(facts), _key_heads(facts), -1


def _behind_keys(facts: Facts, _: int) -> tuple[int, ...]:
    return (2 * _key_rows(facts),)


_SWAP = (1, 0, 2)
_VALUES = Regrouped(_dealt, _SWAP)


@dataclass(frozen=True, slots=True)
class _DealtColumns:
    """A matrix whose columns are the value heads."""

    def link(self, members: Members) -> Link | None:
        width = next(iter(members.shapes.values()))[-1]
        count, keys, _ = _dealt(members.facts, members.layer)
        if count * keys == 0 or width % (count * keys):
            return None
        change = None if count == 1 else Columns((keys, count, width // (count * keys)), _SWAP)
        return Kept(change=change).link(members)


@dataclass(frozen=True, slots=True)
class _WholeNorm:
    """A norm that GGUF and MLX have whole, and the published checkpoint less one."""

    def link(self, members: Members) -> Link | None:
        change: Change | None = PLUS_ONE if members.facts.less_one else None
        return Kept(change=change).link(members)


def norms(pairs: str) -> tuple[Rule, ...]:
    return rules(pairs, _WholeNorm())


_TOP = (
    *rules("""
        token_embd.* = model.embed_tokens.*
        output.* = lm_head.*
    """),
    *norms("output_norm.* = model.norm.*"),
)
_OWN_NORMS = norms("""
    attn_norm.* = input_layernorm.*
    post_attention_norm.* = post_attention_layernorm.*
    attn_q_norm.* = self_attn.q_norm.*
    attn_k_norm.* = self_attn.k_norm.*
""")


def _delta_net(values: Move, qkv: Move, filters: Move, rates: Move, columns: Move) -> tuple[Rule, ...]:
    home = "linear_attn"
    return (
        rule("attn_qkv.weight", f"{home}.in_proj_qkv.weight", qkv),
        rule("attn_gate.weight", f"{home}.in_proj_z.weight", values),
        rule("ssm_beta.weight", f"{home}.in_proj_b.weight", values),
        rule("ssm_alpha.weight", f"{home}.in_proj_a.weight", values),
        rule("ssm_ba.weight", f"{home}.in_proj_ba.weight"),
        rule("ssm_conv1d.weight", f"{home}.conv1d.weight", filters),
        rule("ssm_a", f"{home}.A_log", rates),
        rule("ssm_dt.bias", f"{home}.dt_bias", values),
        rule("ssm_norm.weight", f"{home}.norm.weight"),
        rule("ssm_out.weight", f"{home}.out_proj.weight", columns),
    )


HEADS_35 = _delta_net(
    _VALUES,
    Regrouped(_dealt, _SWAP, before=_behind_keys),
    Regrouped(_dealt, _SWAP, before=_behind_keys, reshape=FILTERS),
    Regrouped(_dealt, _SWAP, change=DECAY),
    _DealtColumns(),
)


def _joined_rows(facts: Facts, _: int) -> tuple[int, ...]:
    values = _value_heads(facts) * facts.count("linear_value_head_dim", default=128)
    return _key_rows(facts), _key_rows(facts), values, values


_HEADS_NEXT = (
    *_delta_net(Kept(), Kept(), FILTERS, Kept(change=DECAY), Kept()),
    rule(
        ("attn_qkv.weight", "attn_gate.weight"),
        "linear_attn.in_proj_qkvz.weight",
        Joined(Parted(_joined_rows, groups=_key_heads), counts=(3, 1)),
    ),
)


def _read_delta(file: Reading) -> None:
    keys, values = file.count("ssm.group_count"), file.count("ssm.time_step_rank")
    inner = file.count("ssm.inner_size")
    if not keys or not values or values % keys or inner % values:
        file.refuse(f"{keys} key heads, {values} value heads and {inner} values together cannot be")
    file.config |= {
        "linear_num_key_heads": keys,
        "linear_num_value_heads": values,
        "linear_key_head_dim": file.count("ssm.state_size"),
        "linear_value_head_dim": inner // values,
        "linear_conv_kernel_dim": file.count("ssm.conv_kernel"),
    }
    recurrent = file.layers_with("ssm_a", "attention.recurrent_layers")
    file.skip("full_attention_interval")
    file.config["layer_types"] = ["linear_attention" if one else "full_attention" for one in recurrent]


def _write_delta(out: Writing) -> None:
    facts = out.facts
    values = _value_heads(facts)
    out.put("ssm.conv_kernel", facts.count("linear_conv_kernel_dim", default=4))
    out.put("ssm.state_size", facts.count("linear_key_head_dim", default=128))
    out.put("ssm.group_count", _key_heads(facts))
    out.put("ssm.time_step_rank", values)
    out.put("ssm.inner_size", values * facts.count("linear_value_head_dim", default=128))
    interval = facts.count("full_attention_interval", default=4)
    kinds = facts.get("layer_types")
    recurrent = (
        [kind == "linear_attention" for kind in kinds]
        if kinds
        else [(i + 1) % interval != 0 for i in range(facts.layers)]
    )
    out.put("attention.recurrent_layers", recurrent + [False] * out.heads)
    out.put("full_attention_interval", interval)


DELTA = Special(_read_delta, _write_delta)
_SHARED = (
    *expert_settings(),
    *PLAIN_SOFTMAX,
    MOE_INNER,
    shared_inner("shared_expert_intermediate_size"),
)
ROPE = Rope(partial=0.25)


def _write_heads(out: Writing) -> None:
    if out.heads:
        out.put("nextn_predict_layers", out.heads)


_MTP = Special(
    lambda file: file.config.update(mtp_num_hidden_layers=max(file.blocks - file.layers, 1)), _write_heads
)
EXPERTS = (ROUTER, *experts(), *shared_expert("mlp.shared_expert"), SHARED_GATE)
_COMMON = (*_OWN_NORMS, *ATTENTION)
_PREDICTOR = (
    rule("nextn.eh_proj.weight", "^mtp.fc.weight"),
    rule("nextn.enorm.weight", "^mtp.pre_fc_norm_embedding.weight", _WholeNorm()),
    rule("nextn.hnorm.weight", "^mtp.pre_fc_norm_hidden.weight", _WholeNorm()),
    rule("nextn.shared_head_norm.weight", "^mtp.norm.weight", _WholeNorm()),
)

QWEN3NEXT = Architecture(
    "qwen3next",
    (Kind("qwen3_next", "Qwen3NextForCausalLM"),),
    decoder(
        ROPE,
        *_SHARED,
        DELTA,
        _MTP,
        Always("norm_topk_prob", True),
        Always("decoder_sparse_step", 1),
        Always("mlp_only_layers", []),
    ),
    _TOP,
    (*_COMMON, *_HEADS_NEXT, *EXPERTS),
    exact="function; A_log within 1.2e-7",
    head=_PREDICTOR,
    head_home="mtp.layers.{}.",
)


def _put_sections(out: Writing) -> None:
    block = out.facts.get("rope_parameters", default={}) or {}
    out.put("rope.dimension_sections", [*block.get("mrope_section", (11, 11, 10)), 0][:4])


SECTIONS_35 = Special(SECTIONS.reading, _put_sections)

QWEN35 = Architecture(
    "qwen35",
    (Kind("qwen3_5_text", "Qwen3_5ForCausalLM", aliases=("qwen3_5",)),),
    decoder(ROPE, DELTA, _MTP, SECTIONS_35, bias_flag("attention_bias", "attn_q")),
    _TOP,
    (*_COMMON, *HEADS_35, *MLP),
    exact="function; A_log within 1.2e-7; out_proj's columns move by whole heads",
    head=_PREDICTOR,
    head_home="mtp.layers.{}.",
)
QWEN35MOE = Architecture(
    "qwen35moe",
    (Kind("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", aliases=("qwen3_5_moe",)),),
    decoder(
        ROPE, *_SHARED, DELTA, _MTP, SECTIONS_35, inner=Same("feed_forward_length", ("intermediate_size",))
    ),
    _TOP,
    (*_COMMON, *HEADS_35, *EXPERTS),
    exact="as qwen35",
    head=_PREDICTOR,
    head_home="mtp.layers.{}.",
)
