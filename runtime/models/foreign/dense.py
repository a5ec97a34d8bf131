"""Kinds without experts: Helium."""

from typing import Any

from runtime.models.foreign.fields import Count, Flag, Number
from runtime.models.foreign.kinds import (
    Kind,
    Values,
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
)
