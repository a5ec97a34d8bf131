"""What many rows of the table share: settings of a decoder, and rules for its usual tensors."""

from collections.abc import Sequence
from typing import Any

from modelkit.source.gguf.architectures.changes import PLUS_ONE
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.rope import rope_block
from modelkit.source.gguf.architectures.rules import Kept, Move, Parted, Regrouped, Rule
from modelkit.source.gguf.architectures.settings import Same, Setting, Special, Written

KEPT = Kept()
SHIFTED = Kept(change=PLUS_ONE)
"""Norms that the file has whole and the checkpoint less one."""


def rule(
    theirs: str | Sequence[str], ours: str | Sequence[str], move: Move = KEPT, *, written: bool = True
) -> Rule:
    def names(given: str | Sequence[str]) -> tuple[str, ...]:
        return (given,) if isinstance(given, str) else tuple(given)

    return Rule(names(theirs), names(ours), move, written)


def rules(pairs: str, move: Move = KEPT) -> tuple[Rule, ...]:
    """From lines of `theirs = ours`."""
    found: list[Rule] = []
    for line in pairs.split("\n"):
        theirs, _, ours = line.partition("=")
        if ours:
            found.append(rule(theirs.strip(), ours.strip(), move))
    return tuple(found)


# A head's rows are pairs (i, i + half) in checkpoints and neighbours in GGUF: [heads, half, 2] -> [heads, 2,
# half].
PAIRED_Q = Regrouped(lambda facts, _: (facts.heads, -1, 2), (0, 2, 1))
PAIRED_K = Regrouped(lambda facts, _: (facts.kv_heads, -1, 2), (0, 2, 1))


def _qkv_rows(facts: Facts, layer: int) -> tuple[int, ...]:
    kv = facts.kv_heads * facts.head_dim
    return facts.heads * facts.head_dim, kv, kv


QKV = ("self_attn.q_proj.*", "self_attn.k_proj.*", "self_attn.v_proj.*")
FUSED_QKV = rule("attn_qkv.*", QKV, Parted(_qkv_rows))
FUSED_QKV_PAIRED = rule("attn_qkv.*", QKV, Parted(_qkv_rows, (PAIRED_Q, PAIRED_K, None)))

TOP = rules("""
    token_embd.* = model.embed_tokens.*
    output_norm.* = model.norm.*
    output.* = lm_head.*
""")
ATTENTION = rules("""
    attn_q.* = self_attn.q_proj.*
    attn_k.* = self_attn.k_proj.*
    attn_v.* = self_attn.v_proj.*
    attn_output.* = self_attn.o_proj.*
""")
PAIRED_ATTENTION = (
    rule("attn_q.*", "self_attn.q_proj.*", PAIRED_Q),
    rule("attn_k.*", "self_attn.k_proj.*", PAIRED_K),
    *ATTENTION[2:],
    FUSED_QKV_PAIRED,
)
HEAD_NORMS = rules("""
    attn_q_norm.* = self_attn.q_norm.*
    attn_k_norm.* = self_attn.k_norm.*
""")
NORMS = rules("""
    attn_norm.* = input_layernorm.*
    ffn_norm.* = post_attention_layernorm.*
""")
MLP = rules("""
    ffn_gate.* = mlp.gate_proj.*
    ffn_up.* = mlp.up_proj.*
    ffn_down.* = mlp.down_proj.*
""")
ROUTER = rule("ffn_gate_inp.weight", "mlp.gate.weight")


def expert_rows(facts: Facts, _: int) -> tuple[int, ...]:
    inner = facts.count("moe_intermediate_size", "expert_intermediate_size", "intermediate_size")
    return inner, inner


def experts(home: str = "mlp.switch_mlp") -> tuple[Rule, ...]:
    """Stacks of experts under MLX's names, gate and up together or apart."""
    pair = (f"{home}.gate_proj.*", f"{home}.up_proj.*")
    return (
        *rules(f"""
            ffn_gate_exps.* = {home}.gate_proj.*
            ffn_up_exps.* = {home}.up_proj.*
            ffn_down_exps.* = {home}.down_proj.*
        """),
        rule("ffn_gate_up_exps.*", pair, Parted(expert_rows)),
    )


def shared_expert(home: str) -> tuple[Rule, ...]:
    return rules(f"""
        ffn_gate_shexp.* = {home}.gate_proj.*
        ffn_up_shexp.* = {home}.up_proj.*
        ffn_down_shexp.* = {home}.down_proj.*
    """)


def _head_dim(file: Reading) -> None:
    size = file.count("attention.key_length", 0)
    if size:
        file.config["head_dim"] = size
    value = file.count("attention.value_length", size)
    if value != size:
        file.unsupported(f"heads have keys of {size} numbers and values of {value}, which is not computed")


def _write_head_dim(out: Writing) -> None:
    size = out.facts.get("head_dim")
    if size is not None:
        out.put("attention.key_length", size)
        out.put("attention.value_length", size)


HEAD_DIM = Special(_head_dim, _write_head_dim)
CONTEXT = Same("context_length", ("max_position_embeddings", "n_positions"))
HIDDEN = Same("embedding_length", ("hidden_size",), needed=True)
INNER = Same("feed_forward_length", ("intermediate_size",), needed=True)


def _kv_heads(file: Reading) -> None:
    heads = file.config["num_attention_heads"]
    file.config["num_key_value_heads"] = file.count("attention.head_count_kv", heads)


HEADS = (
    Same("attention.head_count", ("num_attention_heads",), needed=True),
    Special(_kv_heads, lambda out: out.put("attention.head_count_kv", out.facts.kv_heads)),
)
RMS = Same("attention.layer_norm_rms_epsilon", ("rms_norm_eps", "norm_eps"), needed=True)
LAYER_NORM = "attention.layer_norm_epsilon"
VOCAB = Written("vocab_size", lambda out: out.facts.get("vocab_size"))


def decoder(*more: Setting, rms: Setting = RMS, inner: Setting = INNER) -> tuple[Setting, ...]:
    """Sizes that every decoder has, then others."""
    return (CONTEXT, HIDDEN, inner, *HEADS, HEAD_DIM, rms, *more)


def bias_flag(name: str, tensor: str) -> Setting:
    """A field that says whether there are biases; the tensors do in GGUF."""

    def read(file: Reading) -> None:
        file.config[name] = any(f"blk.{i}.{tensor}.bias" in file.shapes for i in range(file.layers))

    return Special(read, lambda _: None)


def expert_settings(*names: str) -> tuple[Setting, ...]:
    """How many experts there are and how many are asked. names: of the field for the first."""
    return (
        Same("expert_count", names or ("num_experts", "num_local_experts"), needed=True),
        Same("expert_used_count", ("num_experts_per_tok",), needed=True),
    )


def windows(
    *, period: int | None = None, full_first: bool = False, pattern: bool = True, always: int | None = None
) -> tuple[Setting, ...]:
    """A window for some layers: `sliding_window` and `layer_types`.

    period: which layers see everything where the file does not say, every how many one (the last of them, or
    the first with full_first). pattern: does llama.cpp's converter write which? always: the window that
    llama.cpp takes where none is told.
    """

    def kinds(file: Reading) -> list[bool]:
        told = file.get("attention.sliding_window_pattern")
        if isinstance(told, list):
            if len(told) < file.layers:
                file.refuse(f"`{file.full('attention.sliding_window_pattern')}` has {len(told)} entries")
            return [bool(one) for one in told[: file.layers]]
        every = told if type(told) is int and told > 0 else period
        if every is None:
            return [True] * file.layers
        return [not _is_full(i, every, full_first) for i in range(file.layers)]

    def read(file: Reading) -> None:
        size = file.count("attention.sliding_window", always or 0)
        sliding = kinds(file) if size else [False] * file.layers
        file.config["sliding_window"] = size or None
        file.config["layer_types"] = [WORDS[one] for one in sliding]

    def write(out: Writing) -> None:
        size, told = out.facts.get("sliding_window"), sliding_layers(out)
        if size is None or not any(told):
            if period is not None:
                out.refuse(f"no layer has a window, which GGUF cannot say for {out.architecture}")
            return
        out.put("attention.sliding_window", size)
        if pattern:
            out.put("attention.sliding_window_pattern", told)
        elif period is None or told != [not _is_full(i, period, full_first) for i in range(len(told))]:
            out.refuse(f"layer_types are not those that llama.cpp takes for {out.architecture}")

    return (Special(read, write),)


WORDS = {True: "sliding_attention", False: "full_attention"}


def _is_full(layer: int, every: int, first: bool) -> bool:
    return layer % every == (0 if first else every - 1)


def sliding_layers(out: Writing) -> list[bool]:
    """Of each layer: does it have a window? By `layer_types`."""
    kinds = out.facts.get("layer_types", default=())
    if kinds:
        return [kind == WORDS[True] for kind in kinds]
    return [out.facts.get("sliding_window") is not None] * out.facts.layers


def no_window(out: Writing) -> None:
    """llama.cpp computes these models without one, so what is written only matters up to its length."""
    size = out.facts.get("sliding_window")
    if size is None or out.facts.get("use_sliding_window") is False:
        return
    if out.facts.get("layer_types") and not any(sliding_layers(out)):
        return
    out.notes.append(f"the window of {size:,} tokens has no place in GGUF: llama.cpp will see further back")


NO_WINDOW = Special(lambda _: None, no_window)


def has_experts(file: Reading) -> bool:
    return file.count("expert_count", 0) > 0


def put_nothing(_: Any) -> None:
    """For settings that write nothing."""


def output_norm(ours: str) -> tuple[Rule, ...]:
    """TOP with another name for the last norm."""
    return rules(f"""
        token_embd.* = model.embed_tokens.*
        output_norm.* = {ours}.*
        output.* = lm_head.*
    """)


def is_sparse(file: Reading) -> list[bool]:
    """Which layers are mixtures, by their tensors."""
    return [file.has(layer, "ffn_gate_inp") for layer in range(file.layers)]


def leading_dense(name: str = "first_k_dense_replace", default: int = 0) -> Setting:
    """How many layers are no mixtures, which are the first ones."""

    def read(file: Reading) -> None:
        sparse = is_sparse(file)
        count = sparse.index(True) if True in sparse else len(sparse)
        if not all(sparse[count:]):
            file.unsupported("mixtures and dense layers alternate, which is not known of this architecture")
        told = file.count("leading_dense_block_count", count)
        if told != count:
            file.notes.append(
                f"the metadata says {told} leading dense layers; by their tensors it is {count}"
            )
        file.config[name] = count

    def write(out: Writing) -> None:
        out.put("leading_dense_block_count", dense_count(out, name, default))

    return Special(read, write)


def dense_count(out: Writing, name: str, default: int) -> int:
    kinds = out.facts.get("mlp_layer_types")
    if not kinds:
        return out.facts.count(name, default=default)
    count = next((i for i, kind in enumerate(kinds) if kind != "dense"), len(kinds))
    if "dense" in kinds[count:]:
        out.refuse("mlp_layer_types has dense layers behind mixtures, which GGUF cannot say")
    return count


MOE_INNER = Same("expert_feed_forward_length", ("moe_intermediate_size",))
SHARED_COUNT = Same("expert_shared_count", ("n_shared_experts",))
ROUTED_SCALE = Same("expert_weights_scale", ("routed_scaling_factor",), kind=float)
NORMALIZED = Same("expert_weights_norm", ("norm_topk_prob",))
GROUPS = (
    Same("expert_group_count", ("n_group",)),
    Same("expert_group_used_count", ("topk_group",)),
)


def gating(only: int, *, written: bool = True) -> Setting:
    """How a router's scores become weights; the family knows, so a file may only agree."""
    return Written("expert_gating_func", lambda _: only if written else None, lambda _: only)


def _scale_of_one(file: Reading) -> None:
    told = file.number("expert_weights_scale", 1.0)
    if told not in (0.0, 1.0):
        file.unsupported(
            f"`{file.full('expert_weights_scale')}` is {told}, and this architecture has no such scale"
        )


SOFTMAX = (gating(1, written=False), Special(_scale_of_one, lambda _: None))
"""A router whose weights are a softmax's, not scaled."""


def heads_behind(name: str = "num_nextn_predict_layers", *, zero: bool = False) -> Setting:
    """Draft heads are blocks behind the last. zero: is it written that there are none?"""

    def write(out: Writing) -> None:
        if out.heads or zero:
            out.put("nextn_predict_layers", out.heads)

    return Special(lambda file: file.config.update({name: file.blocks - file.layers}), write)


NEXTN = rules("""
    nextn.eh_proj.* = eh_proj.*
    nextn.enorm.* = enorm.*
    nextn.hnorm.* = hnorm.*
    nextn.embed_tokens.* = embed_tokens.*
    nextn.shared_head_norm.* = shared_head.norm.*
    nextn.shared_head_head.* = shared_head.head.*
""")
CORRECTION = rule("exp_probs_b.bias", "mlp.gate.e_score_correction_bias")


def _write_unscaled(out: Writing) -> None:
    if rope_block(out.facts)["rope_type"] != "default":
        out.refuse(f"the rotation is scaled, which llama.cpp does not compute for {out.architecture}")
    out.put("rope.scaling.type", "none")


UNSCALED = Special(lambda _: None, _write_unscaled)
"""The rotation is never scaled, and the file says so."""
