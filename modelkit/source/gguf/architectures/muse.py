"""Muse Glimmer: heads are normed without weights and scaled, which GGUF says by weights of norms."""

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.numbers import shortest
from modelkit.source.gguf.architectures.parts import (
    MLP,
    PAIRED_ATTENTION,
    SHIFTED,
    TOP,
    bias_flag,
    decoder,
    rule,
    rules,
)
from modelkit.source.gguf.architectures.rope import Rope
from modelkit.source.gguf.architectures.settings import Always, Same, Special
from modelkit.source.gguf.architectures.windows import windows


def _read_norms(file: Reading) -> None:
    scales: set[float] = set()
    for layer in range(file.layers):
        for name in ("attn_q_norm", "attn_k_norm"):
            tensor = f"blk.{layer}.{name}.weight"
            if tensor not in file.shapes:
                file.refuse(f"the tensor `{tensor}` is missing")
            numbers = set(file.values(tensor))
            if len(numbers) != 1 or (name == "attn_k_norm" and numbers != {1.0}):
                file.unsupported(f"`{tensor}` has weights, and heads are normed without")
            file.used_tensors.add(tensor)
            scales |= numbers if name == "attn_q_norm" else set()
    if len(scales) != 1:
        file.unsupported("layers scale queries in different ways")
    file.config["qk_scale_factor"] = shortest(scales.pop())


def _write_norms(out: Writing) -> None:
    size, scale = out.facts.head_dim, float(out.facts.get("qk_scale_factor", default=3.87))
    for layer in range(out.facts.layers):
        out.extra[f"blk.{layer}.attn_q_norm.weight"] = (scale,) * size
        out.extra[f"blk.{layer}.attn_k_norm.weight"] = (1.0,) * size


def _rotations(file: Reading) -> None:
    """Layers that see everything are not rotated."""
    if file.config["rope_parameters"]["rope_type"] != "default":
        file.unsupported("the rotation is scaled, which llama.cpp does not compute for layers with a window")
    base = file.config["rope_parameters"]["rope_theta"]
    kinds = file.config["layer_types"]
    file.config["layer_rope_theta"] = [base if kind == "sliding_attention" else 0 for kind in kinds]


def _check_rotations(out: Writing) -> None:
    listed, kinds = out.facts.get("layer_rope_theta"), out.facts.get("layer_types", default=())
    if listed and [bool(base) for base in listed] != [kind == "sliding_attention" for kind in kinds]:
        out.refuse("layer_rope_theta is not zero exactly where a layer sees everything")


MUSE = Architecture(
    "muse-glimmer",
    (Kind("muse_glimmer_text", "MuseGlimmerForConditionalGeneration", aliases=("muse_glimmer",)),),
    decoder(
        Rope(dimensions=False),
        Same("final_logit_softcapping", ("final_logit_softcapping",), needed=True, kind=float),
        Same("logit_scale", ("output_multiplier",), needed=True, kind=float),
        *windows(period=4),
        Special(_rotations, _check_rotations),
        Special(_read_norms, _write_norms),
        Always("post_norm_eps", 0.001),
        bias_flag("attention_bias", "attn_q"),
    ),
    TOP,
    (
        *rules(
            """
            attn_norm.* = input_layernorm.*
            post_attention_norm.* = post_attention_layernorm.*
            ffn_norm.* = pre_feedforward_layernorm.*
            post_ffw_norm.* = post_feedforward_layernorm.*
            """,
            SHIFTED,
        ),
        *PAIRED_ATTENTION,
        rule("attn_gate.*", "self_attn.gate_proj.*"),
        *MLP,
    ),
    exact="bits; norms within 3e-8",
)
