"""Kinds without experts: Helium, MiniCPM3."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from runtime.errors import UnsupportedModel
from runtime.models.foreign.fields import Count, Flag, Number, Only
from runtime.models.foreign.kinds import (
    Kind,
    Values,
    latent,
    older_rope,
    same,
    sizes,
)
from runtime.models.foreign.rope import Ropes


def _whole_heads(values: Values) -> Values:
    heads = values["num_attention_heads"]
    same(values, "head_dim", values["hidden_size"] // heads, f"hidden_size over {heads} heads")
    return older_rope(values)


def _without_spare_head(model: Any, values: Values) -> Any:
    """The class makes a head whether it is used or not."""
    if values["tie_word_embeddings"]:
        model.pop("lm_head")
    return model


def _answering(module: Any, call: Callable[..., mx.array]) -> Any:
    """A module with the parts of this one that does call(module, ...) when it is called."""
    kind = type("Mended", (type(module),), {"__call__": call})
    mended = kind.__new__(kind)
    vars(mended).update(vars(module))
    dict.update(mended, module)
    return mended


def _spell_minicpm3(values: Values) -> Values:
    heads = values["num_attention_heads"]
    same(values, "num_key_value_heads", heads, "num_attention_heads")
    same(values, "v_head_dim", values["hidden_size"] // heads, f"hidden_size over {heads} heads")
    return {"rope_theta": values["rope"]["rope_theta"], "rope_scaling": _one_list(values)}


def _one_list(values: Values) -> Values:
    """The class divides by long_factor always, and wants a block even where nothing is scaled."""
    block, length = values["rope"], values["max_position_embeddings"]
    pairs = values["qk_rope_head_dim"] // 2
    if block["rope_type"] == "default":
        return {"long_factor": [1.0] * pairs, "original_max_position_embeddings": length}
    original, short, long = (
        block[name] for name in ("original_max_position_embeddings", "short_factor", "long_factor")
    )
    if len(short) != pairs or len(long) != pairs:
        raise UnsupportedModel(
            f"config.json: short_factor and long_factor should list {pairs} numbers each, one for a pair"
        )
    if short != long and original < length:
        raise UnsupportedModel(
            f"config.json: short_factor and long_factor differ, and mlx-lm's minicpm3 cannot change from one "
            f"to the other at {original} tokens (a max_position_embeddings up to that would do)"
        )
    return {"long_factor": short, "original_max_position_embeddings": original}


def _scale_tied_head(model: Any, values: Values) -> Any:
    """The class forgets to scale what goes into a tied head."""
    if not values["tie_word_embeddings"]:
        return model
    ratio = values["dim_model_base"] / values["hidden_size"]

    unscaled = type(model).__call__
    return _answering(model, lambda model, *args, **named: unscaled(model, *args, **named) * ratio)


KINDS = (
    Kind(
        "helium",
        ("helium",),
        ("HeliumForCausalLM",),
        {
            **sizes(2560, 7040, 24, 20, 20, 48000, 4096),
            "head_dim": Count(128),
            "rms_norm_eps": Number(1e-8),
            "tie_word_embeddings": Flag(False),
            "attention_bias": Flag(False),
            "mlp_bias": Flag(False),
        },
        Ropes(theta=100000.0),
        spell=_whole_heads,
        mend=_without_spare_head,
    ),
    Kind(
        "minicpm3",
        ("minicpm3",),
        ("MiniCPM3ForCausalLM",),
        {
            **sizes(2560, 6400, 62, 40, 40, 73448, 32768),
            **latent(768, 256, 32, 64, 64),
            "rms_norm_eps": Number(1e-5),
            "tie_word_embeddings": Flag(True),
            "attention_bias": Flag(False),
            "mlp_bias": Only(False),
            "scale_emb": Number(12),
            "scale_depth": Number(1.4),
            "dim_model_base": Count(256),
        },
        Ropes(types=("default", "longrope")),
        spell=_spell_minicpm3,
        mend=_scale_tied_head,
    ),
)
