"""Gemma 3n's text model: four streams, vectors per layer, sparse feed-forwards in the first layers."""

import math
from statistics import NormalDist

from modelkit.source.gguf.architectures.architecture import Architecture, Kind
from modelkit.source.gguf.architectures.exchange import Reading, Writing
from modelkit.source.gguf.architectures.gemma import Cap
from modelkit.source.gguf.architectures.numbers import as_float32
from modelkit.source.gguf.architectures.parts import (
    ATTENTION,
    CONTEXT,
    HEAD_DIM,
    HEAD_NORMS,
    HEADS,
    HIDDEN,
    MLP,
    RMS,
    bias_flag,
    rule,
    rules,
)
from modelkit.source.gguf.architectures.rope import TwoRopes
from modelkit.source.gguf.architectures.rules import Stacked
from modelkit.source.gguf.architectures.settings import Always, Same, Special
from modelkit.source.gguf.architectures.windows import windows

_STREAMS = 4
_NORMAL = NormalDist()


def _read_sparsity(file: Reading) -> None:
    """A layer's share of zeros, of the standard deviations beyond which a number is kept."""
    told = file.get("activation_sparsity_scale")
    if not isinstance(told, list) or len(told) != file.layers:
        file.refuse(f"`{file.full('activation_sparsity_scale')}` has to hold a number for each layer")
    shares = [0.0 if one == -math.inf else round(_NORMAL.cdf(one), 4) for one in told]
    file.config["activation_sparsity_pattern"] = shares


def _write_sparsity(out: Writing) -> None:
    shares = out.facts.get("activation_sparsity_pattern")
    if not isinstance(shares, (list, tuple)) or len(shares) != out.facts.layers:
        out.refuse("activation_sparsity_pattern has to hold a number for each layer")
    scales = [-math.inf if one <= 0 else as_float32(_NORMAL.inv_cdf(as_float32(one))) for one in shares]
    out.put("activation_sparsity_scale", scales)


def _read_widths(file: Reading) -> None:
    file.config["intermediate_size"] = file.each("feed_forward_length")


def _write_widths(out: Writing) -> None:
    told = out.facts.get("intermediate_size")
    out.put("feed_forward_length", list(told) if isinstance(told, (list, tuple)) else told)


def _read_tables(file: Reading) -> None:
    own = file.shapes.get("per_layer_token_embd.weight")
    if own is None:
        file.refuse("the tensor `per_layer_token_embd.weight` is missing")
    file.config["vocab_size_per_layer_input"] = own[0]
    file.config["laurel_rank"] = file.rows(0, "laurel_l")


def _check_tables(out: Writing) -> None:
    own, whole = out.facts.get("vocab_size_per_layer_input"), out.facts.get("vocab_size")
    if own is not None and own != whole:
        out.refuse(f"the vectors per layer are for {own:,} tokens of {whole:,}, and GGUF has one for each")


GEMMA3N = Architecture(
    "gemma3n",
    (Kind("gemma3n_text", "Gemma3nForCausalLM", aliases=("gemma3n",)),),
    (
        CONTEXT,
        HIDDEN,
        *HEADS,
        HEAD_DIM,
        RMS,
        TwoRopes(theta=1000000.0, window_theta=10000.0),
        Special(_read_widths, _write_widths),
        Cap("final_logit_softcapping", 30.0),
        *windows(period=5),
        Same("altup.active_idx", ("altup_active_idx",), default=0, needed=True),
        Same("altup.num_inputs", ("altup_num_inputs",), default=_STREAMS, needed=True),
        Same("embedding_length_per_layer_input", ("hidden_size_per_layer_input",), default=256, needed=True),
        Same("attention.shared_kv_layers", ("num_kv_shared_layers",), default=15, absent=20),
        Special(_read_sparsity, _write_sparsity),
        Special(_read_tables, _check_tables),
        Always("altup_correct_scale", True),
        bias_flag("attention_bias", "attn_q"),
    ),
    (
        *rules("""
            token_embd.* = model.embed_tokens.*
            output_norm.* = model.norm.*
            output.* = lm_head.*
            per_layer_token_embd.weight = model.embed_tokens_per_layer.weight
            per_layer_model_proj.weight = model.per_layer_model_projection.weight
            per_layer_proj_norm.weight = model.per_layer_projection_norm.weight
        """),
        *(
            rule(f"{theirs}.weight", [f"model.{ours}.{i}.weight" for i in range(_STREAMS - 1)], Stacked())
            for theirs, ours in (
                ("altup_proj", "altup_projections"),
                ("altup_unembd_proj", "altup_unembed_projections"),
            )
        ),
    ),
    (
        *rules("""
            attn_norm.* = input_layernorm.*
            post_attention_norm.* = post_attention_layernorm.*
            ffn_norm.* = pre_feedforward_layernorm.*
            post_ffw_norm.* = post_feedforward_layernorm.*
            inp_gate.* = per_layer_input_gate.*
            proj.* = per_layer_projection.*
            post_norm.* = post_per_layer_input_norm.*
            altup_correct_coef.weight = altup.correction_coefs.weight
            altup_correct_scale.weight = altup.correct_output_scale
            altup_predict_coef.weight = altup.prediction_coefs.weight
            altup_router.weight = altup.modality_router.weight
            altup_router_norm.weight = altup.router_norm.weight
            laurel_l.weight = laurel.linear_left.weight
            laurel_r.weight = laurel.linear_right.weight
            laurel_post_norm.weight = laurel.post_laurel_norm.weight
        """),
        *ATTENTION,
        *HEAD_NORMS,
        *MLP,
    ),
)
