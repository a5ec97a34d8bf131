"""Llama and its kin: pairs of rotated rows side by side, which checkpoints have half a head apart."""

from dataclasses import replace

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.moe import PLAIN_SOFTMAX, expert_settings, experts, has_experts
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
    PAIRED_ATTENTION,
    PAIRED_K,
    PAIRED_Q,
    TOP,
    VOCAB,
    bias_flag,
    decoder,
    qkv_rows,
    rule,
    rules,
)
from modelkit.source.gguf.architectures.rope import Rope, rope_block
from modelkit.source.gguf.architectures.rules import Joined, OneByOne, Parted
from modelkit.source.gguf.architectures.settings import Always, Same, Special, Written
from modelkit.source.gguf.architectures.windows import NO_WINDOW

_UNBIASED = Always("attention_bias", False), Always("mlp_bias", False)

_EXPERTS = 8
"""Of a Mixtral: files from before April 2024 have each in tensors of its own."""
_ONE_BY_ONE = tuple(
    rule(
        [f"ffn_{part}.{expert}.weight" for expert in range(_EXPERTS)],
        f"block_sparse_moe.switch_mlp.{part}_proj.weight",
        OneByOne(),
        written=False,
    )
    for part in ("gate", "up", "down")
)

_ALIASES = ("internlm", "internlm3", "iquestcoder", "telechat3", "aquila", "PanguEmbedded", "Yi", "kormo")
LLAMA = Architecture(
    "llama",
    (
        Kind(
            "mixtral",
            "MixtralForCausalLM",
            has_experts,
            settings=(*expert_settings("num_local_experts"), *PLAIN_SOFTMAX),
        ),
        Kind("llama", "LlamaForCausalLM", aliases=_ALIASES, settings=BIASES),
        Kind("mistral", "MistralForCausalLM", aliases=("ministral",)),
    ),
    decoder(Rope(), VOCAB, NO_WINDOW),
    TOP,
    (
        *NORMS,
        *PAIRED_ATTENTION,
        *MLP,
        rule("ffn_gate_inp.weight", "block_sparse_moe.gate.weight"),
        *experts("block_sparse_moe.switch_mlp"),
        *_ONE_BY_ONE,
    ),
    exact="bits; a sliding window is not in the file",
    either_way=True,
)
EMBED = replace(
    LLAMA,
    name="llama-embed",
    kinds=(Kind("llama", "LlamaModel", settings=BIASES),),
    always_ahead=True,
    exact="bits; written as llama",
    written=False,
)
"""A Llama that looks both ways, as the checkpoints that become such files do, whether these say so or not."""


XVERSE = Architecture(
    "xverse",
    (Kind("xverse", "XverseForCausalLM"),),
    decoder(Rope(), Written("tensor_data_layout", lambda _: "Meta AI original pth")),
    TOP,
    (*NORMS, *PAIRED_ATTENTION, *MLP),
)
NANBEIGE = Architecture(
    "nanbeige",
    (Kind("nanbeige", "NanbeigeForCausalLM"),),
    decoder(
        Rope(),
        VOCAB,
        Same("num_loops", ("num_loops",), default=1),
        Same("skip_loop_final_norm", ("skip_loop_final_norm",), default=False),
        *BIASES,
    ),
    TOP,
    (*NORMS, *PAIRED_ATTENTION, *MLP),
)


def _every_pass_ends_in_the_norm(file: Reading) -> None:
    if file.get("skip_loop_final_norm"):
        file.unsupported("passes do not end in the last norm, which is not computed for this family")


OURO = Architecture(
    "ouro",
    (Kind("ouro", "OuroForCausalLM"),),
    decoder(
        Rope(),
        VOCAB,
        NO_WINDOW,
        Same("num_loops", ("total_ut_steps",), default=4, absent=1),
        Special(_every_pass_ends_in_the_norm),
        Written("skip_loop_final_norm", lambda _: False),
        Always("hidden_act", "silu"),
    ),
    TOP,
    (
        *NORMS,
        *rules("""
            post_attention_norm.* = input_layernorm_2.*
            post_ffw_norm.* = post_attention_layernorm_2.*
        """),
        *PAIRED_ATTENTION,
        *MLP,
    ),
)
# Files of these are read as the Llamas that they are but for names.
EXAONE = Architecture(
    "exaone",
    (Kind("llama", "LlamaForCausalLM", aliases=("exaone",)),),
    decoder(Rope(), *_UNBIASED),
    TOP,
    (*NORMS, *ATTENTION, FUSED_QKV, *MLP),
    exact="function, as Llama",
)
INTERNLM2 = Architecture(
    "internlm2",
    (Kind("llama", "LlamaForCausalLM", aliases=("internlm2",)),),
    decoder(Rope(), Always("bias", False), *_UNBIASED),
    TOP,
    (
        *NORMS,
        *PAIRED_ATTENTION,
        rule(
            ("attn_q.*", "attn_k.*", "attn_v.*"),
            "attention.wqkv.*",
            Joined(Parted(qkv_rows, (PAIRED_Q, PAIRED_K, None), lambda facts: facts.kv_heads)),
        ),
        *MLP,
    ),
    exact="function, as Llama",
)
# Read alone.
PANGU = Architecture(
    "pangu-embedded",
    (Kind("llama", "LlamaForCausalLM"),),
    decoder(Rope(), BIASES[0]),
    TOP,
    (*NORMS, *ATTENTION, FUSED_QKV, *MLP),
    exact="function, as Llama",
    written=False,
)
ARCEE = Architecture(
    "arcee",
    (Kind("arcee", "ArceeForCausalLM"),),
    decoder(
        Rope(),
        VOCAB,
        Always("hidden_act", "relu2"),
        bias_flag("attention_bias", "attn_q"),
        bias_flag("mlp_bias", "ffn_up"),
    ),
    TOP,
    (*NORMS, *PAIRED_ATTENTION, *MLP),
)
OLMO = Architecture(
    "olmo",
    (Kind("olmo", "OlmoForCausalLM"),),
    (
        CONTEXT,
        HIDDEN,
        INNER,
        *HEADS,
        HEAD_DIM,
        Rope(dimensions=False),
        Written(LAYER_NORM, lambda _: 1e-5, lambda _: 1e-5),
        Same("attention.clamp_kqv", ("clip_qkv",), kind=float),
        bias_flag("attention_bias", "attn_q"),
    ),
    rules("token_embd.* = model.embed_tokens.*\noutput.* = lm_head.*"),
    (*PAIRED_ATTENTION, *MLP),
)


def _read_scales(file: Reading) -> None:
    block = file.config["rope_parameters"]
    scale = file.get("rope.scaling.yarn_log_multiplier")
    if scale:
        block |= {"mscale": 1.0, "mscale_all_dim": scale}  # the first is one to llama.cpp, whatever is told
    beta = file.get("attention.temperature_scale")
    if beta:
        if "original_max_position_embeddings" not in block:
            file.unsupported("queries grow with their place, and the length from which they do is not told")
        block["llama_4_scaling_beta"] = beta


def _write_scales(out: Writing) -> None:
    block = rope_block(out.facts)
    scale = block.get("mscale_all_dim")
    if scale is not None:
        if block.get("mscale") != 1:
            out.refuse("mscale is not 1, which GGUF cannot say for mistral3")
        out.put("rope.scaling.yarn_log_multiplier", float(scale))
    if block.get("llama_4_scaling_beta") is not None:
        out.put("attention.temperature_scale", float(block["llama_4_scaling_beta"]))


MISTRAL3 = Architecture(
    "mistral3",
    (Kind("ministral3", "Ministral3ForCausalLM"),),
    decoder(Rope(mscale=True), VOCAB, Special(_read_scales, _write_scales), NO_WINDOW),
    TOP,
    (*NORMS, *PAIRED_ATTENTION, *MLP),
)

SMOLLM3 = Architecture(
    "smollm3",
    (Kind("smollm3", "SmolLM3ForCausalLM"),),
    decoder(
        Rope(theta=2000000.0),
        VOCAB,
        Special(
            lambda file: file.config.update(
                no_rope_layers=[int((i + 1) % 4 != 0) for i in range(file.layers)]
            ),
            lambda out: _every_fourth(out),
        ),
        *BIASES,
        NO_WINDOW,
    ),
    TOP,
    (*NORMS, *PAIRED_ATTENTION, *MLP),
)


def _every_fourth(out: Writing) -> None:
    """llama.cpp leaves the rotation out of every fourth layer, whatever a file says."""
    listed = out.facts.get("no_rope_layers")
    wanted = [int((i + 1) % 4 != 0) for i in range(out.facts.layers)]
    step = out.facts.get("no_rope_layer_interval", default=4)
    if (listed or [int((i + 1) % step != 0) for i in range(out.facts.layers)]) != wanted:
        out.refuse(f"no_rope_layers is not every fourth layer, which GGUF cannot say for {out.architecture}")


_XIELU = ("alpha_p", "alpha_n", "beta", "eps")


def _read_xielu(file: Reading) -> None:
    for name in _XIELU:
        told = file.get(f".xielu.{name}")
        if not isinstance(told, list) or len(told) != file.layers:
            file.refuse(f"`xielu.{name}` has to hold one number for each of {file.layers} layers")
        for layer, number in enumerate(told):
            shape = (1,) if name.startswith("alpha") else ()
            file.constants[f"model.layers.{layer}.mlp.act_fn.{name}"] = shape, (number,)


def _write_xielu(out: Writing) -> None:
    for name in _XIELU:
        tensors = [f"model.layers.{layer}.mlp.act_fn.{name}" for layer in range(out.facts.layers)]
        out.put(f".xielu.{name}", [out.numbers(tensor)[0] for tensor in tensors])


APERTUS = Architecture(
    "apertus",
    (Kind("apertus", "ApertusForCausalLM"),),
    decoder(Rope(theta=12000000.0), VOCAB, Special(_read_xielu, _write_xielu), BIASES[0]),
    TOP,
    (
        *rules("""
            attn_norm.* = attention_layernorm.*
            ffn_norm.* = feedforward_layernorm.*
        """),
        *ATTENTION,
        FUSED_QKV,
        *HEAD_NORMS,
        *MLP,
    ),
)
