"""Qwen 1, 2 and 3, their mixtures, and the text towers of their vision models."""

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.dflash import is_block_draft
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.moe import (
    MOE_INNER,
    PLAIN_SOFTMAX,
    ROUTER,
    expert_settings,
    experts,
    shared_expert,
    shared_inner,
)
from modelkit.source.gguf.architectures.parts import (
    ATTENTION,
    FUSED_QKV,
    HEAD_COUNT,
    HEAD_NORMS,
    HIDDEN,
    INNER,
    MLP,
    NORMS,
    TOP,
    decoder,
    rule,
    rules,
)
from modelkit.source.gguf.architectures.rope import SECTIONS, Rope
from modelkit.source.gguf.architectures.rules import Rule
from modelkit.source.gguf.architectures.settings import Always, Setting, Special
from modelkit.source.gguf.architectures.windows import NO_WINDOW

_BLOCK = (*NORMS, *ATTENTION, FUSED_QKV, *HEAD_NORMS, *MLP)
_ROPE = Rope(dimensions=False)
_NO_WINDOW = (
    Special(lambda file: file.config.update(use_sliding_window=False)),
    NO_WINDOW,
)

_VL2 = ("qwen2_vl_text", "qwen2_5_vl_text", "qwen2_vl", "qwen2_5_vl")


def _read_first(file: Reading) -> None:
    config = file.config
    size = config["hidden_size"] // max(config["num_attention_heads"], 1)
    # llama.cpp's converter writes the second, and its program asks for the first.
    told = file.get("attention.layer_norm_rms_epsilon") or file.number("attention.layer_norm_epsilon")
    if file.count("rope.dimension_count", size) != size:
        file.unsupported("a part of each head is rotated, which is not computed")
    if file.get("rope.scaling.type") not in (None, "none"):
        file.unsupported("the rotation is scaled, which is not computed")
    length = file.count("context_length")
    config |= {"kv_channels": size, "layer_norm_epsilon": told, "max_position_embeddings": length}
    config |= {"seq_length": length, "rotary_emb_base": file.number("rope.freq_base", 10000.0)}


def _write_first(out: Writing) -> None:
    """The length up to which nothing is rescaled."""
    facts = out.facts
    whole = facts.count("max_position_embeddings", default=8192)
    rescaled = any(facts.get(name, default=True) for name in ("use_dynamic_ntk", "use_logn_attn"))
    out.put("context_length", min(whole, facts.count("seq_length", default=whole)) if rescaled else whole)
    out.put("attention.layer_norm_rms_epsilon", float(facts.get("layer_norm_epsilon", default=1e-6)))
    out.put("rope.freq_base", float(facts.get("rotary_emb_base", default=10000.0)))


QWEN = Architecture(
    "qwen",
    (Kind("qwen", "QWenLMHeadModel"),),
    (
        HIDDEN,
        INNER,
        HEAD_COUNT,
        Special(_read_first, _write_first),
        Always("tie_word_embeddings", False),
    ),
    rules("""
        token_embd.weight = transformer.wte.weight
        output_norm.weight = transformer.ln_f.weight
        output.weight = lm_head.weight
    """),
    rules("""
        attn_norm.weight = ln_1.weight
        attn_qkv.* = attn.c_attn.*
        attn_output.weight = attn.c_proj.weight
        ffn_norm.weight = ln_2.weight
        ffn_gate.weight = mlp.w2.weight
        ffn_up.weight = mlp.w1.weight
        ffn_down.weight = mlp.c_proj.weight
    """),
    home="transformer.h.{}.",
)
QWEN2 = Architecture(
    "qwen2",
    (Kind("qwen2", "Qwen2ForCausalLM", aliases=("mimo", *_VL2)),),
    decoder(_ROPE, *_NO_WINDOW),
    TOP,
    _BLOCK,
    either_way=True,
)
QWEN3 = Architecture(
    "qwen3",
    (Kind("qwen3", "Qwen3ForCausalLM", aliases=("qwen3_vl_text", "qwen3_vl")),),
    decoder(_ROPE, *_NO_WINDOW, Always("attention_bias", False)),
    TOP,
    _BLOCK,
    condition=lambda config: not is_block_draft(config),
    either_way=True,
)

_ALL_SPARSE = (Always("decoder_sparse_step", 1), Always("mlp_only_layers", []))
_EXPERTS = (
    *expert_settings(),
    *PLAIN_SOFTMAX,
    MOE_INNER,
    *_ALL_SPARSE,
)
SHARED_GATE = rule("ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight")

QWEN2MOE = Architecture(
    "qwen2moe",
    (Kind("qwen2_moe", "Qwen2MoeForCausalLM"),),
    decoder(
        _ROPE,
        *_EXPERTS,
        shared_inner("shared_expert_intermediate_size"),
        Always("norm_topk_prob", False),
        *_NO_WINDOW,
    ),
    TOP,
    (*_BLOCK, ROUTER, *experts(), *shared_expert("mlp.shared_expert"), SHARED_GATE),
)
QWEN3MOE = Architecture(
    "qwen3moe",
    (Kind("qwen3_moe", "Qwen3MoeForCausalLM", aliases=("qwen3_vl_moe_text", "qwen3_vl_moe")),),
    decoder(_ROPE, *_EXPERTS, Always("norm_topk_prob", True), *_NO_WINDOW, Always("attention_bias", False)),
    TOP,
    (*_BLOCK, ROUTER, *experts()),
)


def _text_of(name: str, kind: Kind, *more: Setting, block: tuple[Rule, ...] = _BLOCK) -> Architecture:
    """The text tower of a vision model: for text alone it is the plain model, and that is what is read."""
    hidden = Special(lambda file: file.skip("n_deepstack_layers"))
    return Architecture(
        name,
        (kind,),
        decoder(_ROPE, SECTIONS, hidden, *more),
        TOP,
        block,
        exact="bits, of the text tower; written as the plain model",
        written=False,
    )


QWEN2VL = _text_of("qwen2vl", Kind("qwen2", "Qwen2ForCausalLM"), *_NO_WINDOW)
QWEN3VL = _text_of("qwen3vl", Kind("qwen3", "Qwen3ForCausalLM"), *_NO_WINDOW, Always("attention_bias", False))
QWEN3VLMOE = _text_of(
    "qwen3vlmoe",
    Kind("qwen3_moe", "Qwen3MoeForCausalLM"),
    *_EXPERTS,
    Always("norm_topk_prob", True),
    *_NO_WINDOW,
    Always("attention_bias", False),
    block=(*_BLOCK, ROUTER, *experts()),
)
