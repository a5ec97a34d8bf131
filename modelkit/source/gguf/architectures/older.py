"""Decoders from before grouped heads had matrices of their own: Falcon, BLOOM, MPT, StarCoder 1; and DBRX,
which has MPT's names.
"""

from typing import Any

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.gpt import BY_HEAD
from modelkit.source.gguf.architectures.moe import PLAIN_SOFTMAX, experts
from modelkit.source.gguf.architectures.moves import Atom, Link, Side
from modelkit.source.gguf.architectures.parts import CONTEXT, HEAD_COUNT, HIDDEN, LAYER_NORM, rule, rules
from modelkit.source.gguf.architectures.rope import Rope
from modelkit.source.gguf.architectures.rules import Kept, Members
from modelkit.source.gguf.architectures.settings import Always, Same, Special, Written
from runtime.records import dataclass

_NORM = Same(LAYER_NORM, ("layer_norm_epsilon",), default=1e-5, needed=True)
_GELU = "gelu", "gelu_fast", "gelu_new", "gelu_pytorch_tanh"
"""llama.cpp computes the approximation by tanh, whichever a file means."""


def _key_heads(facts: Facts) -> int:
    """Falcon's."""
    grouped = facts.get("new_decoder_architecture", default=False)
    if not grouped and facts.get("multi_query", default=True):
        return 1
    return facts.count("num_kv_heads", default=facts.heads)


@dataclass(frozen=True, slots=True)
class _Grouped:
    """Queries, keys, values in GGUF; in the checkpoint those of each group of heads."""

    def link(self, members: Members) -> Link | None:
        plain = Kept().link(members)
        assert plain is not None
        groups, size = _key_heads(members.facts), members.facts.head_dim
        rows, (their,), (our,) = members.facts.heads * size, plain.theirs, plain.ours
        atoms = Atom(rows), Atom(groups * size), Atom(groups * size)
        if plain.atoms[0].rows != sum(atom.rows for atom in atoms) or members.facts.heads % groups:
            return None
        every = 0, 1, 2
        return Link(
            (Side(their.name, their.shape, every),), (Side(our.name, our.shape, every, groups),), atoms
        )


@dataclass(frozen=True, slots=True)
class _Beside:
    """Two tensors that are two, so that one of them alone is another thing."""

    def link(self, members: Members) -> Link | None:
        shapes = list(members.shapes.values())
        if shapes[0] != shapes[1]:
            return None

        def sides(names: Any) -> tuple[Side, ...]:
            return tuple(Side(name, shapes[0], (place,)) for place, name in enumerate(names))

        return Link(sides(members.theirs), sides(members.ours), (Atom(shapes[0][0]),) * 2)


def _read_falcon(file: Reading) -> None:
    heads = file.count("attention.head_count_kv", file.config["num_attention_heads"])
    two = file.has(0, "attn_norm_2")
    file.skip("tensor_data_layout")
    file.config.update(
        num_kv_heads=heads,
        multi_query=heads == 1,
        new_decoder_architecture=two or heads > 1,
        num_ln_in_parallel_attn=1 + two,
    )


def _write_falcon(out: Writing) -> None:
    if not out.facts.get("parallel_attn", default=True):
        out.refuse("one sublayer stands behind the other, which GGUF cannot say for falcon")
    out.put("attention.head_count_kv", _key_heads(out.facts))
    out.put("tensor_data_layout", "jploski")
    inner = out.facts.count("ffn_hidden_size", default=4 * out.facts.hidden)
    out.put("feed_forward_length", inner)


FALCON = Architecture(
    "falcon",
    (Kind("falcon", "FalconForCausalLM"),),
    (
        CONTEXT,
        HIDDEN,
        HEAD_COUNT,
        Special(_read_falcon, _write_falcon),
        Special(lambda file: _inner(file, "ffn_hidden_size")),
        _NORM,
        Rope(dimensions=False, silent=True),
        Always("activation", "gelu", unless=_GELU),
        Always("alibi", False),
        Always("bias", False),
        Always("parallel_attn", True),
    ),
    rules("""
        token_embd.* = transformer.word_embeddings.*
        output_norm.* = transformer.ln_f.*
        output.* = lm_head.*
    """),
    (
        rule(("attn_norm.*", "attn_norm_2.*"), ("ln_mlp.*", "ln_attn.*"), _Beside()),
        *rules("""
            attn_norm.* = input_layernorm.*
            attn_output.* = self_attention.dense.*
            ffn_up.* = mlp.dense_h_to_4h.*
            ffn_down.* = mlp.dense_4h_to_h.*
        """),
        rule("attn_qkv.*", "self_attention.query_key_value.*", _Grouped()),
    ),
    home="transformer.h.{}.",
)


def _inner(file: Reading, name: str) -> None:
    """The MLP's size, where the config has a field for it that is not four times the hidden size."""
    hidden, inner = file.count("embedding_length"), file.count("feed_forward_length", 0)
    file.config[name] = None if inner in (0, 4 * hidden) else inner


def _quadruple(file: Reading) -> int:
    return 4 * file.count("embedding_length")


BLOOM = Architecture(
    "bloom",
    (Kind("bloom", "BloomForCausalLM"),),
    (
        Same("context_length", ("seq_length",), default=2048),
        HIDDEN,
        Written("feed_forward_length", lambda out: 4 * out.facts.hidden, _quadruple),
        Special(lambda file: file.config.update(n_layer=file.config.pop("num_hidden_layers"))),
        Same("attention.head_count", ("n_head", "num_attention_heads"), needed=True),
        Written("attention.head_count_kv", lambda out: out.facts.heads),
        _NORM,
        Always("apply_residual_connection_post_layernorm", False),
    ),
    rules("""
        token_embd.* = transformer.word_embeddings.*
        token_embd_norm.* = transformer.word_embeddings_layernorm.*
        output_norm.* = transformer.ln_f.*
        output.* = lm_head.*
    """),
    (
        *rules("""
            attn_norm.* = input_layernorm.*
            ffn_norm.* = post_attention_layernorm.*
            attn_output.* = self_attention.dense.*
            ffn_up.* = mlp.dense_h_to_4h.*
            ffn_down.* = mlp.dense_4h_to_h.*
        """),
        rule("attn_qkv.*", "self_attention.query_key_value.*", BY_HEAD),
    ),
    home="transformer.h.{}.",
)


def _read_mpt(file: Reading) -> None:
    file.config["n_layers"] = file.config.pop("num_hidden_layers")
    steepness, clip = file.number("attention.max_alibi_bias", 0.0), file.number("attention.clamp_kqv", 0.0)
    file.config["attn_config"] = {
        "alibi": steepness > 0,
        "alibi_bias_max": int(steepness) if steepness == int(steepness) else steepness,
        "clip_qkv": clip or None,
    }
    hidden, inner = file.count("embedding_length"), file.count("feed_forward_length")
    if inner % max(hidden, 1):
        file.refuse(f"`{file.full('feed_forward_length')}` is {inner}, not a multiple of {hidden}")
    file.config["expansion_ratio"] = inner // max(hidden, 1)


def _write_mpt(out: Writing) -> None:
    block = out.facts.get("attn_config", default={})
    if block.get("softmax_scale") is not None:
        out.refuse("softmax_scale is a number, which GGUF cannot say for mpt")
    hidden = out.facts.count("d_model", "hidden_size")
    out.put("feed_forward_length", out.facts.count("expansion_ratio", default=4) * hidden)
    out.put("attention.max_alibi_bias", float(block.get("alibi_bias_max", 8)))
    if block.get("clip_qkv"):
        out.put("attention.clamp_kqv", float(block["clip_qkv"]))


MPT = Architecture(
    "mpt",
    (Kind("mpt", "MptForCausalLM"),),
    (
        Same("context_length", ("max_seq_len",), default=2048),
        Same("embedding_length", ("d_model", "hidden_size"), needed=True),
        Same("attention.head_count", ("n_heads", "num_attention_heads"), needed=True),
        _NORM,
        Special(_read_mpt, _write_mpt),
    ),
    rules("""
        token_embd.* = transformer.wte.*
        output_norm.* = transformer.norm_f.*
        output.* = lm_head.*
    """),
    rules("""
        attn_norm.* = norm_1.*
        attn_qkv.* = attn.Wqkv.*
        attn_output.* = attn.out_proj.*
        ffn_norm.* = norm_2.*
        ffn_up.* = ffn.up_proj.*
        ffn_down.* = ffn.down_proj.*
    """),
    home="transformer.blocks.{}.",
)


def _read_dbrx(file: Reading) -> None:
    file.config["n_layers"] = file.config.pop("num_hidden_layers")
    file.config["attn_config"] = {
        "clip_qkv": file.number("attention.clamp_kqv", 0.0) or None,
        "kv_n_heads": file.count("attention.head_count_kv", file.config["n_heads"]),
        "rope_theta": file.config["rope_parameters"]["rope_theta"],
    }
    file.config["ffn_config"] = {
        "ffn_hidden_size": file.count("feed_forward_length"),
        "moe_num_experts": file.count("expert_count"),
        "moe_top_k": file.count("expert_used_count"),
    }


def _write_dbrx(out: Writing) -> None:
    attention, mixture = Facts(out.facts.get("attn_config")), Facts(out.facts.get("ffn_config"))
    act = mixture.get("ffn_act_fn", default={}).get("name", "silu")
    if act not in ("silu", "swish"):
        out.refuse(f"the activation of experts is {act}, which GGUF cannot say for dbrx")
    if mixture.config.get("moe_normalize_expert_weights", 1) is None:
        out.refuse("moe_normalize_expert_weights is null, which GGUF cannot say for dbrx")
    out.put("attention.clamp_kqv", float(attention.get("clip_qkv", default=0.0)))
    out.put("attention.head_count_kv", attention.count("kv_n_heads", default=1))
    out.put("feed_forward_length", mixture.count("ffn_hidden_size", default=3584))
    out.put("expert_count", mixture.count("moe_num_experts", default=4))
    out.put("expert_used_count", mixture.count("moe_top_k", default=1))


DBRX = Architecture(
    "dbrx",
    (Kind("dbrx", "DbrxForCausalLM"),),
    (
        Same("context_length", ("max_seq_len", "max_position_embeddings"), default=2048),
        Same("embedding_length", ("d_model", "hidden_size"), default=2048, needed=True),
        Same("attention.head_count", ("n_heads", "num_attention_heads"), default=16, needed=True),
        Written(LAYER_NORM, lambda _: 1e-5, lambda _: 1e-5),
        Rope(dimensions=False),
        *PLAIN_SOFTMAX,
        Special(_read_dbrx, _write_dbrx),
        Always("tie_word_embeddings", False),
    ),
    rules("""
        token_embd.* = transformer.wte.*
        output_norm.* = transformer.norm_f.*
        output.* = lm_head.*
    """),
    (
        *rules("""
            attn_norm.* = norm_attn_norm.norm_1.*
            attn_qkv.* = norm_attn_norm.attn.Wqkv.*
            attn_output.* = norm_attn_norm.attn.out_proj.*
            attn_output_norm.* = norm_attn_norm.norm_2.*
            ffn_gate_inp.* = ffn.router.layer.*
        """),
        *experts("ffn.switch_mlp"),
    ),
    home="transformer.blocks.{}.",
)

STARCODER = Architecture(
    "starcoder",
    (Kind("gpt_bigcode", "GPTBigCodeForCausalLM"),),
    (
        Same("context_length", ("n_positions", "max_position_embeddings"), default=1024, needed=True),
        Same("embedding_length", ("n_embd", "hidden_size"), needed=True),
        Same("attention.head_count", ("n_head", "num_attention_heads"), needed=True),
        Written("attention.head_count_kv", lambda _: 1, lambda _: 1),
        _NORM,
        Special(lambda file: file.config.update(n_layer=file.config.pop("num_hidden_layers"))),
        Special(
            lambda file: _inner(file, "n_inner"),
            lambda out: out.put(
                "feed_forward_length", out.facts.count("n_inner", default=4 * out.facts.hidden)
            ),
        ),
        Always("activation_function", "gelu_pytorch_tanh", unless=_GELU),
        Always("scale_attn_weights", True),
        Always("multi_query", True),
    ),
    rules("""
        token_embd.* = transformer.wte.*
        position_embd.weight = transformer.wpe.weight
        output_norm.* = transformer.ln_f.*
        output.* = lm_head.*
    """),
    rules("""
        attn_norm.* = ln_1.*
        attn_qkv.* = attn.c_attn.*
        attn_output.* = attn.c_proj.*
        ffn_norm.* = ln_2.*
        ffn_up.* = mlp.c_fc.*
        ffn_down.* = mlp.c_proj.*
    """),
    home="transformer.h.{}.",
)
