"""The config fields of a Mamba mixer as Jamba, Bamba, Granite hybrid and their kin spell them, and which
layers have one.
"""

from collections.abc import Iterable

from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel
from runtime.nn.recurrent.mamba1 import Mamba1Spec
from runtime.nn.recurrent.mamba2 import Mamba2Spec, step_bounds
from runtime.quoting import quoted

_RECURRENT = ("mamba", "linear_attention")
_ATTENTION = ("attention", "full_attention")


def read_mamba1(fields: Fields, hidden: int, eps: float, activation: str = "hidden_act") -> Mamba1Spec:
    """The mixer, without norms; its width is mamba_expand times the hidden size. activation: the name of its
    field.
    """
    fields.choice(activation, ("silu", "swish"), "silu")
    automatic = fields.raw.get("mamba_dt_rank", "auto") == "auto"
    return Mamba1Spec(
        hidden=hidden,
        inner=fields.count("mamba_expand", 2, high=64) * hidden,
        state=fields.count("mamba_d_state", 16, high=4096),
        taps=fields.count("mamba_d_conv", 4, low=2, high=64),
        rank=-(-hidden // 16) if automatic else fields.count("mamba_dt_rank", high=1 << 20),
        eps=eps,
        conv_bias=fields.flag("mamba_conv_bias", True),
        bias=fields.flag("mamba_proj_bias"),
    )


def read_mamba2(fields: Fields, hidden: int, eps: float) -> Mamba2Spec:
    """The mixer; its width is mamba_expand times the hidden size. Its norm is by group, after the gate."""
    fields.choice("hidden_act", ("silu", "swish"), "silu")
    heads = fields.count("mamba_n_heads", 128, high=1 << 16)
    inner = fields.count("mamba_expand", 2, high=64) * hidden
    size = fields.raw.get("mamba_d_head") or "auto"
    if inner % heads or size not in ("auto", inner // heads):
        raise UnsupportedModel(
            f"config.json: mamba_n_heads {heads} of mamba_d_head {quoted(size)} do not make mamba_expand "
            f"times hidden_size, {inner}"
        )
    groups = fields.count("mamba_n_groups", 1, high=4096)
    bias = fields.flag("mamba_proj_bias")
    return Mamba2Spec(
        hidden=hidden,
        heads=heads,
        head_dim=inner // heads,
        groups=groups,
        state=fields.count("mamba_d_state", 256, high=4096),
        taps=fields.count("mamba_d_conv", 4, low=2, high=64),
        eps=eps,
        conv_bias=fields.flag("mamba_conv_bias", True),
        in_bias=bias,
        out_bias=bias,
        norm_groups=groups,
        steps=step_bounds(fields.raw),
    )


def recurrent_layers(fields: Fields, layers: int) -> tuple[bool, ...] | None:
    """Which layers are recurrent by the config's list of kinds, in either spelling; None when it has none."""
    for name in ("layer_types", "layers_block_type"):
        kinds = fields.words(name, layers, (*_RECURRENT, *_ATTENTION))
        if kinds is not None:
            return settled(fields, (kind in _RECURRENT for kind in kinds))
    return None


def settled(fields: Fields, recurrent: Iterable[bool]) -> tuple[bool, ...]:
    """Those that a config without such a list means."""
    return fields.settle("layer_types", (_RECURRENT[0], _ATTENTION[0]), recurrent)
