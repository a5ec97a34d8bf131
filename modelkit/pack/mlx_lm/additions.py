"""What mlx-lm wants to find and the model has not: the embedding again as the head, biases, columns and a
layer of zeros.
"""

from collections.abc import Callable

import mlx.core as mx

from modelkit.pack.mlx_lm.mutable_folder import MutableFolder
from modelkit.pack.mlx_lm.pieces import CannotFix, Computed, Zeros
from modelkit.pack.planning.plan_types import Output
from modelkit.units import size

_SMALL = 8  # columns of a head that is there for nothing
_EMBEDDINGS = ("embed_tokens", "embed_in", "embeddings")


def head(folder: MutableFolder) -> str:
    """The embedding once more, as the head; for those to whom mlx-lm gives one always, or a packed one."""
    (table,) = folder.modules(*_EMBEDDINGS) or [None]
    if table is None:
        raise CannotFix("embedding")
    family = "embed_out" if table.endswith("embed_in") else "lm_head"
    folder.repeat(table, family)
    folder.say(tie_word_embeddings=False)
    return f"the embedding is there a second time, as the output head ({size(folder.nbytes(family))})"


def zero_biases(field: str, *ends: str) -> Callable[[MutableFolder], str]:
    def act(folder: MutableFolder) -> str:
        dtype, there = folder.floats(), set(folder.names())
        for module in folder.modules(*ends):
            name = f"{module}.bias"
            if name not in there:
                height = folder.shape(f"{module}.weight")[0]
                folder.beside(f"{module}.weight", Zeros(Output(name, dtype, (height,))))
        folder.say(**{field: True})
        return "biases of zero"

    return act


def wider(folder: MutableFolder) -> str:
    """Inner columns of zeros: their activation is zero, whichever of gelu, relu and silu it is."""
    inner = 4 * folder.count("hidden_size")
    for module in folder.modules("dense_h_to_4h"):
        for name in (f"{module}.weight", f"{module}.bias"):
            tensor = folder.tensor(name)
            more = inner - tensor.shape[0]
            if more < 0 or tensor.dtype == "U32":
                raise CannotFix(name)
            shape = (inner, *tensor.shape[1:])
            pad = [(0, more), *[(0, 0)] * (len(shape) - 1)]
            folder.put(name, Computed(Output(name, tensor.dtype, shape), tensor, _padded(pad)))
    for module in folder.modules("dense_4h_to_h"):
        tensor = folder.tensor(f"{module}.weight")
        pad = [(0, 0), (0, inner - tensor.shape[1])]
        output = Output(tensor.name, tensor.dtype, (tensor.shape[0], inner))
        folder.put(tensor.name, Computed(output, tensor, _padded(pad)))
    folder.say(intermediate_size=inner)
    return f"MLPs are filled up with zeros to {inner:,} columns"


def _padded(pad: list[tuple[int, int]]) -> Callable[[mx.array], mx.array]:
    return lambda values: mx.pad(values, pad)


def mamba2(folder: MutableFolder) -> str:
    """Nemotron-H's state layers norm groups apart. Its class wants attention somewhere: the last layer is one
    whose matrices are zeros, so that it adds nothing, and as small as can be.
    """
    layers, hidden = folder.count("num_hidden_layers"), folder.count("hidden_size")
    if "lm_head.weight" not in folder.names():
        head(folder)
    start, dtype = f"backbone.layers.{layers}", folder.floats()
    shapes = {"norm": (hidden,), "mixer.o_proj": (hidden, _SMALL)}
    shapes |= {f"mixer.{part}_proj": (_SMALL, hidden) for part in "qkv"}
    empty = [Zeros(Output(f"{start}.{name}.weight", dtype, shape)) for name, shape in shapes.items()]
    folder.beside("backbone.norm_f.weight", *empty)
    folder.block.update(
        model_type="nemotron_h",
        architectures=["NemotronHForCausalLM"],
        hybrid_override_pattern=["M"] * layers + ["*"],
        mamba_num_heads=folder.count("num_heads"),
        mamba_head_dim=folder.count("head_dim"),
        ssm_state_size=folder.count("state_size"),
        mamba_proj_bias=folder.block.get("use_bias", False),
        num_hidden_layers=layers + 1,
        intermediate_size=hidden,
        max_position_embeddings=folder.block.get("max_position_embeddings") or 1 << 20,
        **dict.fromkeys(("num_attention_heads", "num_key_value_heads"), 1),
        **dict.fromkeys(("attention_bias", "mlp_bias"), False),
        head_dim=_SMALL,
    )
    return "as nemotron_h, with a last layer that adds nothing"
