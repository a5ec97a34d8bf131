"""Decoders of one kind of layer whose tensors only have other names."""

from dataclasses import replace

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.moe import PLAIN_SOFTMAX, ROUTER, expert_settings, experts
from modelkit.source.gguf.architectures.parts import (
    ATTENTION,
    BIASES,
    CONTEXT,
    FUSED_QKV,
    HEAD_DIM,
    HEAD_NORMS,
    HEADS,
    HIDDEN,
    INNER,
    LAYER_NORM,
    MLP,
    NORMS,
    ROWS,
    SHIFTED,
    TOP,
    UNSCALED,
    VOCAB,
    bias_flag,
    decoder,
    rule,
    rules,
)
from modelkit.source.gguf.architectures.rope import Rope, TwoRopes, rope_block
from modelkit.source.gguf.architectures.rules import Kept
from modelkit.source.gguf.architectures.settings import Always, Same, Setting, Special
from modelkit.source.gguf.architectures.windows import NO_WINDOW, windows

_POST_NORMS = rules("""
    post_attention_norm.* = post_attention_layernorm.*
    post_ffw_norm.* = post_feedforward_layernorm.*
""")
_BIAS = bias_flag("attention_bias", "attn_q")
_SILENT_ROPE = Rope(dimensions=False)


def layer_norm_decoder(name: str, *more: Setting) -> tuple[Setting, ...]:
    """Settings of a decoder with LayerNorm. name: of the field for what keeps it from dividing by zero."""
    return (CONTEXT, HIDDEN, INNER, *HEADS, HEAD_DIM, Same(LAYER_NORM, (name,), needed=True), *more)


def _windowed(file: Reading) -> bool:
    return file.count("attention.sliding_window", 0) > 0


def _write_unscaled_linear(out: Writing) -> None:
    """As its converter says it."""
    UNSCALED.write(out)
    out.put("rope.scaling.type", "linear")
    out.put("rope.scaling.factor", 1.0)


BITNET = Architecture(
    "bitnet",
    (Kind("bitnet", "BitNetForCausalLM"),),
    decoder(
        Rope(theta=500000.0),
        Special(writing=_write_unscaled_linear),
        VOCAB,
        Always("hidden_act", "silu"),
        Always("attention_bias", False),
        Always("tie_word_embeddings", True),
    ),
    TOP[:-1],
    (
        *NORMS,
        *ATTENTION,
        *MLP,
        *rules("""
            attn_sub_norm.weight = self_attn.attn_sub_norm.weight
            ffn_sub_norm.weight = mlp.ffn_sub_norm.weight
        """),
    ),
    exact="bits; inputs of matrices are not rounded",
)
"""Of the first BitNets (silu, a tied head), whose files have the ternary numbers as such."""
OLMO2 = Architecture(
    "olmo2",
    (
        Kind(
            "olmo3",
            "Olmo3ForCausalLM",
            _windowed,
            settings=(TwoRopes(theta=10000.0, window_theta=None), *windows(period=4)),
        ),
        Kind("olmo2", "Olmo2ForCausalLM", settings=(_SILENT_ROPE,)),
    ),
    decoder(_BIAS),
    TOP,
    (*_POST_NORMS, *ATTENTION, FUSED_QKV, *HEAD_NORMS, *MLP),
)
OLMOE = Architecture(
    "olmoe",
    (Kind("olmoe", "OlmoeForCausalLM"),),
    decoder(
        _SILENT_ROPE,
        *expert_settings(),
        *PLAIN_SOFTMAX,
        Always("norm_topk_prob", False),
        Always("clip_qkv", None),
        _BIAS,
    ),
    TOP,
    (*NORMS, *ATTENTION, FUSED_QKV, *HEAD_NORMS, ROUTER, *experts()),
)
SEED_OSS = Architecture(
    "seed_oss",
    (Kind("seed_oss", "SeedOssForCausalLM"),),
    decoder(
        _SILENT_ROPE,
        _BIAS,
        bias_flag("attention_out_bias", "attn_output"),
        bias_flag("mlp_bias", "ffn_gate"),
    ),
    TOP,
    (
        rule("attn_norm.*", "input_layernorm.*"),
        rule("post_attention_norm.*", "post_attention_layernorm.*"),
        *ATTENTION,
        FUSED_QKV,
        *MLP,
    ),
)
STARCODER2 = Architecture(
    "starcoder2",
    (Kind("starcoder2", "Starcoder2ForCausalLM"),),
    (
        *layer_norm_decoder("norm_epsilon", _SILENT_ROPE),
        Always("hidden_act", "gelu_pytorch_tanh"),
        bias_flag("use_bias", "attn_q"),
        NO_WINDOW,
    ),
    TOP,
    (*NORMS, *ATTENTION, FUSED_QKV, *rules("ffn_up.* = mlp.c_fc.*\nffn_down.* = mlp.c_proj.*")),
)


STABLELM = Architecture(
    "stablelm",
    (Kind("stablelm", "StableLmForCausalLM", aliases=("stablelm_epoch",)),),
    (
        *layer_norm_decoder("layer_norm_eps", Rope(partial=0.25, silent=True)),
        Same("use_parallel_residual", ("use_parallel_residual",), default=False),
        bias_flag("use_qkv_bias", "attn_q"),
        Special(lambda file: file.config.update(qk_layernorm=file.has(0, "attn_q_norm"))),
    ),
    TOP,
    (
        *NORMS,
        *ATTENTION,
        FUSED_QKV,
        rule("attn_q_norm.weight", "self_attn.q_norm.weight", ROWS),
        rule("attn_k_norm.weight", "self_attn.k_norm.weight", ROWS),
        *MLP,
    ),
)
EXAONE4 = Architecture(
    "exaone4",
    (Kind("exaone4", "Exaone4ForCausalLM"),),
    decoder(_SILENT_ROPE, VOCAB, *windows()),
    TOP,
    (*_POST_NORMS, *ATTENTION, FUSED_QKV, *HEAD_NORMS, *MLP),
)
NEMOTRON = Architecture(
    "nemotron",
    (Kind("nemotron", "NemotronForCausalLM"),),
    (
        *layer_norm_decoder("norm_eps", Rope(partial=0.5)),
        VOCAB,
        Special(
            lambda file: file.skip("attention.layer_norm_rms_epsilon", "rope.scaling.type"),
            lambda out: _write_nemotron(out),
        ),
        Always("hidden_act", "relu2"),
        _BIAS,
        bias_flag("mlp_bias", "ffn_up"),
    ),
    (
        *rules("token_embd.* = model.embed_tokens.*\noutput.* = lm_head.*"),
        rule("output_norm.weight", "model.norm.weight", SHIFTED),
        rule("output_norm.bias", "model.norm.bias"),
    ),
    (
        *(
            rule(f"{theirs}.{leaf}", f"{ours}.{leaf}", SHIFTED if leaf == "weight" else Kept())
            for theirs, ours in (("attn_norm", "input_layernorm"), ("ffn_norm", "post_attention_layernorm"))
            for leaf in ("weight", "bias")
        ),
        *ATTENTION,
        FUSED_QKV,
        *MLP,
    ),
    exact="bits; norms within 3e-8",
)


JAIS2 = Architecture(
    "jais2",
    (Kind("jais2", "Jais2ForCausalLM"),),
    (
        *layer_norm_decoder("layer_norm_eps", Rope()),
        Always("hidden_act", "relu2"),
        _BIAS,
        bias_flag("mlp_bias", "ffn_up"),
    ),
    TOP,
    (*NORMS, *ATTENTION, FUSED_QKV, *MLP),
)


def _write_nemotron(out: Writing) -> None:
    UNSCALED.write(out)
    out.put("attention.layer_norm_rms_epsilon", float(out.facts.get("norm_eps", default=1e-5)))


def _write_turns(out: Writing) -> None:
    """A dynamic rotation with an `alpha` is one of a larger base."""
    block, size = rope_block(out.facts), out.facts.head_dim
    alpha = block.get("alpha")
    if block["rope_type"] != "dynamic" or alpha is None or size < 3:
        _SILENT_ROPE.write(out)
        return
    out.put("rope.freq_base", float(block.get("rope_theta", 10000.0)) * alpha ** (size / (size - 2)))
    out.put("rope.scaling.type", "none")
    out.put("rope.scaling.factor", 1.0)


HUNYUAN_TURNS = Special(_SILENT_ROPE.read, _write_turns)


HUNYUAN_ATTENTION = (
    *NORMS,
    *ATTENTION,
    FUSED_QKV,
    rule("attn_q_norm.*", "self_attn.query_layernorm.*"),
    rule("attn_k_norm.*", "self_attn.key_layernorm.*"),
)


HUNYUAN = Architecture(
    "hunyuan-dense",
    (Kind("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM"),),
    decoder(HUNYUAN_TURNS, _BIAS),
    TOP,
    (*HUNYUAN_ATTENTION, *MLP),
    exact="function; a dynamic rotation comes back as its base",
)


def _read_alpha(file: Reading) -> None:
    """As `_write_turns`; the file has the base as it was."""
    alpha, size = file.number("rope.scaling.alpha", 0.0), Facts(file.config).head_dim
    file.skip("rope.dimension_sections", "rope.scaling.original_context_length")
    if alpha > 0 and size > 2:
        file.config["rope_parameters"]["rope_theta"] *= alpha ** (size / (size - 2))


_OF_TEXT = "bits, of the text tower; written as the plain model"
HUNYUAN_VL = replace(
    HUNYUAN,
    name="hunyuan_vl",
    settings=(*HUNYUAN.settings, Special(_read_alpha, lambda _: None)),
    exact=_OF_TEXT,
    written=False,
)


ERNIE = Architecture(
    "ernie4_5",
    (Kind("ernie4_5", "Ernie4_5ForCausalLM"),),
    decoder(Rope(theta=500000.0, dimensions=False), bias_flag("use_bias", "attn_q")),
    TOP,
    (*NORMS, *ATTENTION, FUSED_QKV, *MLP),
)
PADDLEOCR = Architecture(
    "paddleocr",
    (Kind("llama", "LlamaForCausalLM"),),
    decoder(
        Rope(dimensions=False),
        Special(lambda file: file.skip("rope.dimension_sections")),
        *BIASES,
    ),
    TOP,
    (*NORMS, *ATTENTION, FUSED_QKV, *MLP),
    exact=_OF_TEXT,
    written=False,
)
"""Ernie's text, but that halves of heads turn."""
COMMAND_R = Architecture(
    "command-r",
    (Kind("cohere", "CohereForCausalLM"),),
    (
        *layer_norm_decoder("layer_norm_eps", Rope(theta=500000.0, dimensions=False)),
        Same("logit_scale", ("logit_scale",), default=0.0625, absent=1.0, zero=1.0, kind=float),
        UNSCALED,
        Special(lambda file: file.config.update(use_qk_norm=file.has(0, "attn_q_norm"))),
        _BIAS,
    ),
    TOP,
    (
        rule("attn_norm.*", "input_layernorm.*"),
        *ATTENTION,
        FUSED_QKV,
        rule("attn_q_norm.weight", "self_attn.q_norm.weight", ROWS),
        rule("attn_k_norm.weight", "self_attn.k_norm.weight", ROWS),
        *MLP,
    ),
)
COHERE2 = Architecture(
    "cohere2",
    (Kind("cohere2", "Cohere2ForCausalLM"),),
    (
        *layer_norm_decoder("layer_norm_eps", Rope()),
        VOCAB,
        Same("logit_scale", ("logit_scale",), default=0.0625, zero=1.0, kind=float),
        UNSCALED,
        *windows(period=4, pattern=False),
        _BIAS,
    ),
    TOP,
    (rule("attn_norm.weight", "input_layernorm.weight"), *ATTENTION, FUSED_QKV, *MLP),
)
