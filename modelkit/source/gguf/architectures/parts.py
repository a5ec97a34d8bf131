"""What many rows of the table share: settings of a decoder, and rules for its usual tensors."""

from collections.abc import Mapping, Sequence
from itertools import product
from types import MappingProxyType

from modelkit.source.gguf.architectures.changes import PLUS_ONE
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.moves import Shape
from modelkit.source.gguf.architectures.rope import rope_block
from modelkit.source.gguf.architectures.rules import Joined, Kept, Move, Parted, Regrouped, Rule
from modelkit.source.gguf.architectures.settings import Same, Setting, Special, Written

KEPT = Kept()
SHIFTED = Kept(change=PLUS_ONE)
"""Norms that the file has whole and the checkpoint less one."""


def _with_rows(shape: Shape, _: Facts) -> Shape:
    return shape if len(shape) > 1 else (1, *shape)


ROWS = Kept(to_ours=_with_rows)
"""A matrix that may have one row, and is a vector in a file then."""


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


def qkv_rows(facts: Facts, layer: int) -> tuple[int, ...]:
    kv = facts.kv_heads * facts.head_dim
    return facts.heads * facts.head_dim, kv, kv


QKV = ("self_attn.q_proj.*", "self_attn.k_proj.*", "self_attn.v_proj.*")
FUSED_QKV = rule("attn_qkv.*", QKV, Parted(qkv_rows))
FUSED_QKV_PAIRED = rule("attn_qkv.*", QKV, Parted(qkv_rows, (PAIRED_Q, PAIRED_K, None)))
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


def feed_forward(home: str, ending: str = "") -> tuple[Rule, ...]:
    """The three matrices under a home. ending: of their names in a file."""
    return rules(f"""
        ffn_gate{ending}.* = {home}.gate_proj.*
        ffn_up{ending}.* = {home}.up_proj.*
        ffn_down{ending}.* = {home}.down_proj.*
    """)


MLP = feed_forward("mlp")


def _gate_up_rows(facts: Facts, _: int) -> tuple[int, ...]:
    return (facts.count("intermediate_size"),) * 2


JOINED_MLP = (
    rule(
        ("ffn_gate.weight", "ffn_up.weight"),
        "mlp.gate_up_proj.weight",
        Joined(Parted(_gate_up_rows)),
        written=False,
    ),
    rule("ffn_up.*", "mlp.gate_up_proj.*"),
    rule("ffn_down.*", "mlp.down_proj.*"),
)
"""One matrix for gate and up; a file may have them apart."""


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


HEAD_COUNT = Same("attention.head_count", ("num_attention_heads",), needed=True)
HEADS = (
    HEAD_COUNT,
    Special(_kv_heads, lambda out: out.put("attention.head_count_kv", out.facts.kv_heads)),
)
RMS = Same("attention.layer_norm_rms_epsilon", ("rms_norm_eps", "norm_eps", "layernorm_epsilon"), needed=True)
LAYER_NORM = "attention.layer_norm_epsilon"
VOCAB = Written("vocab_size", lambda out: out.facts.get("vocab_size"))


def decoder(*more: Setting, rms: Setting = RMS, inner: Setting = INNER) -> tuple[Setting, ...]:
    """Sizes that every decoder has, then others."""
    return (CONTEXT, HIDDEN, inner, *HEADS, HEAD_DIM, rms, *more)


def bias_flag(name: str, tensor: str, parts: Mapping[str, str] = MappingProxyType({})) -> Setting:
    """A field that says whether there are biases; the tensors do in GGUF.

    parts: of every matrix that the field speaks of, with its name in a checkpoint's layer. A file may have
    biases of some alone, and the others' are zeros.
    """
    told = (*(parts or (tensor,)), *(("attn_qkv",) if tensor == "attn_q" else ()))

    def read(file: Reading) -> None:
        layers = range(file.layers)
        file.config[name] = any(f"blk.{i}.{part}.bias" in file.shapes for i in layers for part in told)
        for layer, part in product(layers, parts if file.config[name] else ()):
            rows = file.rows(layer, part)
            if rows and f"blk.{layer}.{part}.bias" not in file.shapes:
                file.constants[f"model.layers.{layer}.{parts[part]}.bias"] = (rows,), (0.0,) * rows

    return Special(read)


BIASES = (
    bias_flag(
        "attention_bias",
        "attn_q",
        {f"attn_{part}": f"self_attn.{part[0]}_proj" for part in ("q", "k", "v", "output")},
    ),
    bias_flag("mlp_bias", "ffn_gate", {f"ffn_{part}": f"mlp.{part}_proj" for part in ("gate", "up", "down")}),
)


def output_norm(ours: str) -> tuple[Rule, ...]:
    """TOP with another name for the last norm."""
    return rules(f"""
        token_embd.* = model.embed_tokens.*
        output_norm.* = {ours}.*
        output.* = lm_head.*
    """)


def _write_unscaled(out: Writing) -> None:
    if rope_block(out.facts)["rope_type"] != "default":
        out.refuse(f"the rotation is scaled, which llama.cpp does not compute for {out.architecture}")
    out.put("rope.scaling.type", "none")


UNSCALED = Special(writing=_write_unscaled)
"""The rotation is never scaled, and the file says so."""
