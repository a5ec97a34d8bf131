"""GLM 4: the first, and the next, which has norms on both sides and text towers."""

from collections.abc import Callable

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.moves import Atom, Link, Side, row_count
from modelkit.source.gguf.architectures.parts import (
    ATTENTION,
    CONTEXT,
    FUSED_QKV,
    HEADS,
    HIDDEN,
    INNER,
    JOINED_MLP,
    NORMS,
    QKV,
    RMS,
    TOP,
    bias_flag,
    decoder,
    qkv_rows,
    rule,
    rules,
)
from modelkit.source.gguf.architectures.rope import SECTIONS, Rope, rope_block
from modelkit.source.gguf.architectures.rules import Kept, Members, Parted
from modelkit.source.gguf.architectures.settings import Special
from runtime.records import dataclass

_BIAS = bias_flag("attention_bias", "attn_q")


def _read_equal_heads(file: Reading) -> None:
    heads = max(file.count("attention.head_count"), 1)
    file.config["head_dim"] = max(file.count("embedding_length") // heads, 1)


def _write_equal_heads(out: Writing) -> None:
    facts = out.facts
    if facts.head_dim * facts.heads != facts.hidden:
        out.refuse(f"{facts.heads} heads of {facts.head_dim} do not share {facts.hidden} numbers among them")


CHATGLM = Architecture(
    "chatglm",
    (Kind("glm", "GlmForCausalLM"),),
    (
        CONTEXT,
        HIDDEN,
        INNER,
        *HEADS,
        Special(_read_equal_heads, _write_equal_heads),
        RMS,
        Rope(partial=0.5),
        _BIAS,
    ),
    TOP,
    (*NORMS, *ATTENTION, FUSED_QKV, *JOINED_MLP),
)


@dataclass(frozen=True, slots=True)
class _Halves:
    """Rows of a file that deals pairs to several axes: a pair's stand half of what turns apart."""

    heads: Callable[[Facts], int]

    def link(self, members: Members) -> Link | None:
        facts, (their,), (our,) = members.facts, members.theirs, members.ours
        block, heads = rope_block(facts), self.heads(facts)
        if "mrope_section" not in block:
            return Kept().link(members)
        shape = members.shapes[their if their in members.shapes else our]
        turned = int(facts.head_dim * block.get("partial_rotary_factor", 1.0))
        still = row_count(shape) - heads * turned
        if still < 0 or turned % 2:
            return None
        atoms = Atom(heads * turned, (heads, 2, turned // 2), (0, 2, 1)), Atom(still)
        return Link((Side(their, shape, (0, 1), heads),), (Side(our, shape, (0, 1), heads),), atoms)


class _WholeRows:
    """One matrix for queries, keys and values, where no rows stand by halves."""

    def link(self, members: Members) -> Link | None:
        halves = "mrope_section" in rope_block(members.facts)
        return None if halves else Parted(qkv_rows).link(members)


GLM4 = Architecture(
    "glm4",
    (Kind("glm4", "Glm4ForCausalLM", aliases=("glm4v_text", "glm_ocr_text")),),
    decoder(Rope(partial=0.5), SECTIONS, _BIAS),
    TOP,
    (
        *rules("""
            attn_norm.* = input_layernorm.*
            post_attention_norm.* = post_self_attn_layernorm.*
            ffn_norm.* = post_attention_layernorm.*
            post_ffw_norm.* = post_mlp_layernorm.*
        """),
        rule("attn_q.*", "self_attn.q_proj.*", _Halves(lambda facts: facts.heads)),
        rule("attn_k.*", "self_attn.k_proj.*", _Halves(lambda facts: facts.kv_heads)),
        *ATTENTION[2:],
        rule("attn_qkv.*", QKV, _WholeRows()),
        *JOINED_MLP,
    ),
)
